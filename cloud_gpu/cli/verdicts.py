"""What a market first says of what was handed in: it acknowledges at once, and judges later.

A command that hands in and leaves waits so long for it, and fails if it is a refusal.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

from msgspec import structs

from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.protocol.errors import (
    MarketUnavailable,
    NoMatch,
    Rejected,
    Rejection,
    RejectReason,
)
from cloud_gpu.protocol.match import BidState

VERDICT_S: Final = 5
"""How long a first word is waited for: a refusal takes a second, a batch may take a minute."""
_LOOK_S: Final = 0.3
ENDED: Final = (BidState.REJECTED, BidState.EXPIRED, BidState.CANCELLED)
"""Where an order never opens."""

ReportT = TypeVar("ReportT")


def first_verdict(
    run: Invocation,
    look: str,
    read: Callable[[], ReportT],
    is_told: Callable[[ReportT], bool],
) -> ReportT | None:
    """The first report that tells something, or the last one in `VERDICT_S`.

    None: the market tells nothing any more. What was handed in stands, and `look` shows it.
    """
    try:
        report = read()
        for pause in _pauses():
            if is_told(report):
                break
            time.sleep(pause)
            report = read()
    except (MarketUnavailable, Rejected) as error:
        run.say.progress(_untold(error, look))
        return None
    except KeyboardInterrupt:
        run.say.progress(f"it was handed in, and stands: {look}")
        raise
    return report


async def first_verdict_on_loop(
    run: Invocation,
    look: str,
    read: Callable[[], Awaitable[ReportT]],
    is_told: Callable[[ReportT], bool],
) -> ReportT | None:
    """`first_verdict` for who reads on an event loop."""
    import anyio

    try:
        report = await read()
        for pause in _pauses():
            if is_told(report):
                break
            await anyio.sleep(pause)
            report = await read()
    except (MarketUnavailable, Rejected) as error:
        run.say.progress(_untold(error, look))
        return None
    return report


def _pauses() -> Iterator[float]:
    """Seconds before each further look."""
    until = time.monotonic() + VERDICT_S
    while time.monotonic() < until:
        yield _LOOK_S


def _untold(error: MarketUnavailable | Rejected, look: str) -> str:
    return f"handed in, but how it fares was not told: {error}. See {look}"


def is_judged(state: BidState, rejection: Rejection | None) -> bool:
    """Whether an order was refused, matched, or passed over with a reason."""
    return state is not BidState.PENDING or rejection is not None


def require_standing(state: BidState, rejection: Rejection | None, look: str) -> None:
    """Raises `Rejected` for an order that can never open, `NoMatch` where nothing met it."""
    if state in ENDED:
        raise refusal(rejection, str(state), look)


def refusal(rejection: Rejection | None, state: str, look: str) -> Rejected:
    """A market's refusal with a next step, its own or `look`."""
    why = rejection or Rejection(reason=RejectReason.WRONG_STATE, found=state)
    kind = NoMatch if why.reason is RejectReason.NO_MATCH else Rejected
    return kind(structs.replace(why, next=why.next or look))
