"""One request's bids on their way to one market or several: what stands, and who failed.

A bid of one market stands whatever another one does, so a failure there fails nothing here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from cloud_gpu.protocol.errors import MarketUnavailable, Rejected
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.values import Address


class HandingIn:
    """What became of each bid."""

    def __init__(self) -> None:
        self.standing: list[SignedBid] = []
        """Those that a market has, or may have: an answer can be lost."""
        self._failed: dict[Address, Rejected | MarketUnavailable] = {}
        self._took: set[Address] = set()

    def sendable(self, orders: Sequence[SignedBid]) -> Iterator[SignedBid]:
        """One after the other, without those of a market that failed."""
        for order in orders:
            if order.bid.payload.matcher not in self._failed:
                yield order

    @contextmanager
    def trying(self, order: SignedBid) -> Iterator[None]:
        """While a bid is handed in; keeps what its market raises for `settled`."""
        matcher = order.bid.payload.matcher
        try:
            yield
        except Rejected as refused:
            self._failed[matcher] = refused
        except MarketUnavailable as silent:
            self.standing.append(order)
            self._failed[matcher] = silent
        except BaseException:
            self.standing.append(order)
            raise
        else:
            self.standing.append(order)
            self._took.add(matcher)

    def settled(self) -> list[Rejected | MarketUnavailable]:
        """Why markets failed, where another one took all its bids; else raises the first reason."""
        failures = list(self._failed.values())
        if failures and not self._took - self._failed.keys():
            raise failures[0]
        return failures


async def handed_in(
    orders: Sequence[SignedBid],
    submit: Callable[[SignedBid], Awaitable[object]],
    progress: Callable[[str], None],
) -> tuple[SignedBid, ...]:
    """Submit all; those that stand. Raises `Rejected`, `MarketUnavailable` where no market took it.

    `progress` is told of each market that failed beside another one that did not.
    """
    handed = HandingIn()
    for order in handed.sendable(orders):
        with handed.trying(order):
            await submit(order)
    for failure in handed.settled():
        progress(f"one market less has a bid: {failure}")
    return tuple(handed.standing)
