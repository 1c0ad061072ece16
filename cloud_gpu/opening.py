"""How a lease came to be usable, or why it did not: a party's notices as one decision.

The reasons become the exceptions that a user sees, each with what was found and what to do.
"""

from __future__ import annotations

from collections.abc import Callable

from cloud_gpu.protocol import notices as told
from cloud_gpu.protocol.errors import (
    CloudGpuError,
    FundsTooSmall,
    LeaseInterrupted,
    MarketUnavailable,
    NoMatch,
    Rejected,
    Rejection,
    RejectReason,
    StartTimeout,
)
from cloud_gpu.protocol.units import format_tokens


class WaitedTooLong(CloudGpuError):
    """Others did not answer in the time that the caller gave them; what was begun is given up."""

    exit_code = 9


class Opening:
    """Collects what a party tells until its lease is usable or cannot become so."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.progress = progress
        self._next: Callable[[told.AnyNotice], None] | None = None
        self._is_placed = False
        self.funded: told.LeaseFunded | None = None
        self.usable: told.LeaseUsable | None = None
        self._not_opened: told.LeaseNotOpened | None = None
        self._failing: told.LeaseFailing | None = None
        self._over: told.LeaseOver | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to look after."""
        return self._not_opened is not None or self._over is not None

    @property
    def is_spare(self) -> bool:
        """Whether a smaller alternative opened, which has no lease for this party."""
        return self._not_opened is not None and self._not_opened.kind == "fewer"

    @property
    def is_decided(self) -> bool:
        """Whether it is usable, or never will be."""
        return self.usable is not None or self.is_over

    @property
    def left_behind(self) -> str:
        """What became of it when nobody waits any more, in words."""
        if self.funded is None:
            return f"the bid {'is taken back' if self.is_over else 'stands until it expires'}"
        name = f"lease {self.funded.lease.short}"
        if self._over is None:
            return f"{name} is not over: what is not used returns by itself"
        return f"{name} is over: {format_tokens(self._over.refund)} tokens were refunded"

    def hand_over(self, take: Callable[[told.AnyNotice], None]) -> None:
        """From now on somebody else is told; what came late is told again."""
        self._next = take
        for notice in (self._failing, self._over):
            if notice is not None:
                take(notice)

    def take(self, notice: told.AnyNotice) -> None:
        """The party told something."""
        if self._next is not None:
            self._next(notice)
            return
        match notice:
            case told.BidPlaced():
                if not self._is_placed:  # its alternatives are the same wish
                    self.progress(f"bid {str(notice.bid)[:10]} placed")
                self._is_placed = True
            case told.LeaseFunded():
                self.funded = notice
                cap, price = format_tokens(notice.cap), format_tokens(notice.price)
                self.progress(
                    f"lease {notice.lease.short} funded: {price} tokens per GPU-hour, {cap} at most"
                )
            case told.LeaseUsable():
                self.usable = notice
                profile = notice.report.profile
                kind = "simulated GPUs" if profile.simulated else "GPUs"
                self.progress(
                    f"lease {notice.lease.short} runs: {len(profile.gpus)}x {profile.gpu_class}"
                    f" ({kind}, runtime {notice.report.runtime})"
                )
            case told.LeaseNotOpened():
                self._not_opened = notice
            case told.LeaseFailing():
                self._failing = notice
                self.progress(f"lease {notice.lease.short} is failing: {notice.detail}")
            case told.LeaseOver():
                self._over = notice
            case _:
                pass  # jobs and stops come after it is usable

    def failure(self) -> CloudGpuError | None:
        """Why there is no usable lease; None: there is one."""
        if self._not_opened is not None:
            return _not_opened(self._not_opened)
        if self._over is None:
            return None
        why = self._failing.detail if self._failing else self._over.reason.text
        refund = format_tokens(self._over.refund)
        text = f"the lease ended before it could be used: {why}. {refund} tokens were refunded."
        if self._over.reason.started:
            return LeaseInterrupted(self._over.reason.text, text)
        return StartTimeout(text)


def _not_opened(notice: told.LeaseNotOpened) -> CloudGpuError:
    rejection = notice.rejection
    match notice.kind:
        case "market-silent":
            return MarketUnavailable(notice.detail)
        case "funds" if rejection is not None:
            return FundsTooSmall(
                int(rejection.needed) if rejection.needed.isdigit() else 0,
                int(rejection.found) if rejection.found.isdigit() else 0,
                f"{rejection}. `cloud-gpu wallet fund` puts more in.",
            )
        case "rejected" if rejection is not None:
            return Rejected(rejection)
        case "no-match" | "expired":
            return NoMatch(
                rejection
                or Rejection(
                    reason=RejectReason.NO_MATCH,
                    field="start_timeout",
                    found=notice.detail,
                    needed="a match in that time",
                    next="Give it more time, or raise max_price.",
                )
            )
        case _:
            return Rejected(
                Rejection(reason=RejectReason.WRONG_STATE, field="bid", found=notice.detail)
            )
