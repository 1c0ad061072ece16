"""Lane C, with money: a batch cleared again without the orders whose margins are not covered.

Each contract locks a margin of its own, so an order needs their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from market.books.futures_book import RestingFuture
from market.clearing.futures_clearing import FutureClearing, clear_futures
from market.doors.futures_door import cash_too_low

MarginOf = Callable[[RestingFuture, Price, int], TokenAmount]
"""Of an order's side of one contract, at a price, for so many units."""


def clear_covered(
    reference: Price | None,
    orders: Sequence[RestingFuture],
    cash: Mapping[Address, int],
    margin: MarginOf,
) -> tuple[FutureClearing | None, dict[Digest, Rejection]]:
    """The clearing, and the orders left out of it for want of cash; `cash` in base units."""
    short: dict[Digest, Rejection] = {}
    while True:
        left = [order for order in orders if order.id not in short]
        clearing = clear_futures(
            [each for each in left if each.order.payload.is_buy],
            [each for each in left if not each.order.payload.is_buy],
            reference,
        )
        uncovered = _uncovered(clearing, cash, margin)
        if not uncovered:
            return clearing, short
        short.update(uncovered)


def _uncovered(
    clearing: FutureClearing | None, cash: Mapping[Address, int], margin: MarginOf
) -> dict[Digest, Rejection]:
    found: dict[Digest, Rejection] = {}
    if clearing is None:
        return found
    needs: dict[Digest, tuple[RestingFuture, int]] = {}
    for pair in clearing.pairs:
        for order in (pair.buy, pair.sell):
            _, before = needs.get(order.id, (order, 0))
            needs[order.id] = order, before + margin(order, clearing.price, pair.units).value
    left = dict(cash)
    for order, need in needs.values():
        trader = order.nonce[0]
        free = left.get(trader, 0)
        if free < need:
            found[order.id] = cash_too_low(free, TokenAmount(need))
        else:
            left[trader] = free - need
    return found
