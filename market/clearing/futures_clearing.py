"""Lane C: one price for all that trade in a series' batch, and who opens a contract with whom.

The price: most units, then least imbalance, then nearest to the reference, then the lower. Units go
to the better limit, then the older batch, and within it pro rata by largest remainder (equal ones:
by tie key), so it gains nobody to split an order or to be early. Then the largest share meets the
largest, what is left of it goes on to the next: one contract fewer than orders, at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.units import Price, price_down
from market.books.futures_book import RestingFuture

ORDERS_MAX: Final = 16_383
"""Of a side in one batch: so many orders of 65,535 units are within the kernel's bounds."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A long's order and a short's, and the machines of their contract."""

    buy: RestingFuture
    sell: RestingFuture
    units: int


@dataclass(frozen=True, slots=True)
class FutureClearing:
    """A batch's outcome."""

    price: Price
    pairs: tuple[Pair, ...]


def clear_futures(
    buys: Sequence[RestingFuture], sells: Sequence[RestingFuture], reference: Price | None
) -> FutureClearing | None:
    """Orders of one series; None: no buy's limit reaches any sell's.

    The best ORDERS_MAX of each side take part, the others wait for the next batch.
    """
    buys, sells = (sorted(side, key=lambda each: each.rank)[:ORDERS_MAX] for side in (buys, sells))
    if not buys or not sells or buys[0].limit < sells[0].limit:
        return None
    price, units = _auction([*buys, *sells], reference)
    shares = list(zip((*buys, *sells), units, strict=True))
    return FutureClearing(
        price, tuple(_paired(_by_size(shares[: len(buys)]), _by_size(shares[len(buys) :])))
    )


def _auction(
    orders: Sequence[RestingFuture], reference: Price | None
) -> tuple[Price, Sequence[int]]:
    """The one price, a whole number of ticks, and each order's units at it.

    The orders are ranked as they are given, and some cross. Demand falls with the price and supply
    rises, so the prices that tie lie side by side; the units are the same at all of them. Without
    a reference it is the middle one.
    """
    from market.kernel.auction import BUY, SELL, clear, orders_of  # numba: not for API workers

    tick = limits.PRICE_TICK
    stretches = _stretches(sorted({each.limit.value for each in orders}), tick)
    level_of = {first: level for level, (first, _) in enumerate(stretches)}
    batch = orders_of(
        (
            BUY if each.order.payload.is_buy else SELL,
            level_of[each.limit.value],
            each.units,
            each.batch,
        )
        for each in orders
    )
    if reference is None:
        lowest, highest = (clear(batch, end) for end in (0, len(stretches)))
        middle = (stretches[lowest.tick][0] + stretches[highest.tick][1]) // 2
        return price_down(middle), lowest.fills.tolist()
    nearest = sum(1 for first, _ in stretches[1:] if first <= reference.value)
    cleared = clear(batch, nearest)
    first, last = stretches[cleared.tick]
    return Price(min(max(reference.value, first), last)), cleared.fills.tolist()


def _stretches(prices: Sequence[int], tick: int) -> list[tuple[int, int]]:
    """Each price, and between two the ticks at which nobody's limit lies; first and last tick."""
    found = []
    for place, price in enumerate(prices):
        if place and prices[place - 1] + tick < price:
            found.append((prices[place - 1] + tick, price - tick))
        found.append((price, price))
    return found


def _by_size(
    shares: Sequence[tuple[RestingFuture, int]],
) -> list[tuple[RestingFuture, int]]:
    served = (share for share in shares if share[1])
    return sorted(served, key=lambda share: (-share[1], share[0].rank))


def _paired(
    longs: Sequence[tuple[RestingFuture, int]], shorts: Sequence[tuple[RestingFuture, int]]
) -> Iterator[Pair]:
    """Both sides have equally many units in all."""
    left_over = iter(shorts)
    sell, offered = next(left_over)
    for buy, wanted in longs:
        while wanted:
            if not offered:
                sell, offered = next(left_over)
            units = min(wanted, offered)
            yield Pair(buy, sell, units)
            wanted, offered = wanted - units, offered - units
