"""One lease while it opens: its party, what that told, and how long it is waited for.

A gang has several that open together; the first of them talks to the market.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cloud_gpu.buyer import Buyer
from cloud_gpu.leased import Line
from cloud_gpu.opening import Opening, WaitedTooLong
from cloud_gpu.protocol.events import CloseWanted, LeaseWanted
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.ports import Clock
from cloud_gpu.protocol.units import Instant

ABANDON_S: Final = 10
"""How long a lease that was given up while it opened is looked after."""


@dataclass(frozen=True)
class Wanted:
    """Signed alternatives of one request."""

    bids: tuple[SignedBid, ...]
    slice_gpus: tuple[int, ...]
    """Of each: GPUs of one machine."""

    @property
    def nonce(self) -> int:
        """What they share."""
        return self.bids[0].bid.payload.nonce

    @property
    def machines(self) -> int:
        """How many leases may come of it at most."""
        pairs = zip(self.bids, self.slice_gpus, strict=True)
        return max(order.bid.payload.count // gpus for order, gpus in pairs)

    def event(self, member: int, adverts: tuple[SignedAdvert, ...]) -> LeaseWanted:
        """What starts one of its parties."""
        return LeaseWanted(
            bids=self.bids, slice_gpus=self.slice_gpus, adverts=adverts, member=member
        )


@dataclass(frozen=True)
class Member:
    """One lease that opens."""

    buyer: Buyer
    opening: Opening
    line: Line
    clock: Clock

    @property
    def is_spare(self) -> bool:
        """Whether a smaller alternative opened, which has no lease for it."""
        return self.opening.is_spare

    async def decided(self, until: Instant | None, given_s: float | None) -> None:
        """Until the lease is usable, or known not to be needed; `given_s` in all ends at `until`.

        Raises why it is neither, and `WaitedTooLong`.
        """
        while not self.opening.is_decided:
            left_s = None if until is None else (until - self.clock.now()) / 1000
            if left_s is not None and left_s <= 0:
                raise WaitedTooLong(f"no lease was usable after {given_s:g} s")
            await self.line.changed(left_s)
        failure = None if self.is_spare else self.opening.failure()
        if failure is not None:
            raise failure

    async def give_up(self, progress: Callable[[str], None]) -> None:
        """Look after what was begun: a bid is cancelled, a lease that starts is ended."""
        was_over = self.opening.is_over
        self.line.post(CloseWanted())
        deadline = self.clock.now() + ABANDON_S * 1000
        while not self.opening.is_over:
            left_ms = deadline - self.clock.now()
            if left_ms <= 0:
                break
            await self.line.changed(left_ms / 1000)
        if not was_over:
            progress(self.opening.left_behind)
        await self.line.close()
