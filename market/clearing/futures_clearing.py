"""Lane C: one price for all that trade in a series' batch, and who opens a contract with whom.

The price: most units, then least imbalance, then nearest to the reference, then the lower. An order
opens in one contract alone, since its nonce is used by it; what the contract leaves of it lapses.
So a level's units are not divided pro rata, which would only cut orders down: of each side as many
orders as the other has are served, better limit first, then older batch, then more units, then the
tie key, and among those the largest meets the largest: so many contracts cannot carry more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.units import Price
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
    price = uniform_price(buys, sells, reference)
    if price is None:
        return None
    longs = [each for each in buys if each.limit >= price]
    shorts = [each for each in sells if each.limit <= price]
    count = min(len(longs), len(shorts))
    pairs = (
        Pair(long, short, min(long.units, short.units))
        for long, short in zip(_by_size(longs[:count]), _by_size(shorts[:count]), strict=True)
    )
    return FutureClearing(price, tuple(pairs))


def _by_size(ranked: Sequence[RestingFuture]) -> list[RestingFuture]:
    return sorted(ranked, key=lambda each: (-each.units, each.rank))


def uniform_price(
    buys: Sequence[RestingFuture], sells: Sequence[RestingFuture], reference: Price | None
) -> Price | None:
    """The one price, a whole number of ticks. Without a reference: the middle of those that tie.

    Demand falls with the price and supply rises, so the prices that tie lie side by side.
    """
    if not buys or not sells or max(b.limit for b in buys) < min(s.limit for s in sells):
        return None
    from market.kernel.auction import BUY, SELL, clear, orders_of  # numba: not for API workers

    tick = limits.PRICE_TICK
    stretches = _stretches(sorted({each.limit.value for each in (*buys, *sells)}), tick)
    level_of = {first: level for level, (first, _) in enumerate(stretches)}
    batch = orders_of(
        (side, level_of[each.limit.value], each.units)
        for side, orders in ((BUY, buys), (SELL, sells))
        for each in orders
    )
    if reference is None:
        low, high = (stretches[clear(batch, end).tick] for end in (0, len(stretches)))
        return Price((low[0] + high[1]) // 2 // tick * tick)
    nearest = sum(1 for first, _ in stretches[1:] if first <= reference.value)
    first, last = stretches[clear(batch, nearest).tick]
    return Price(min(max(reference.value, first), last))


def _stretches(prices: Sequence[int], tick: int) -> list[tuple[int, int]]:
    """Each price, and between two the ticks at which nobody's limit lies; first and last tick."""
    found = []
    for place, price in enumerate(prices):
        if place and prices[place - 1] + tick < price:
            found.append((prices[place - 1] + tick, price - tick))
        found.append((price, price))
    return found
