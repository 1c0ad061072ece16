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

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.units import Price
from market.futures_book import RestingFuture


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
    """Orders of one series; None: no buy's limit reaches any sell's."""
    price = uniform_price(buys, sells, reference)
    if price is None:
        return None
    longs = sorted((each for each in buys if each.limit >= price), key=lambda each: each.rank)
    shorts = sorted((each for each in sells if each.limit <= price), key=lambda each: each.rank)
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
    tick = limits.PRICE_TICK
    limits_met = sorted({each.limit.value for each in (*buys, *sells)})
    best: tuple[int, int] | None = None
    low = high = 0
    for first, last in _stretches(limits_met, tick):
        demand = sum(each.units for each in buys if each.limit.value >= last)
        supply = sum(each.units for each in sells if each.limit.value <= first)
        found = -min(demand, supply), abs(demand - supply)
        if best is None or found < best:
            best, low, high = found, first, last
        elif found == best:
            high = last
    if reference is None:
        return Price((low + high) // 2 // tick * tick)
    return Price(min(max(reference.value, low), high))


def _stretches(prices: Sequence[int], tick: int) -> list[tuple[int, int]]:
    """Each price, and between two the ticks at which nobody's limit lies; first and last tick."""
    found = []
    for place, price in enumerate(prices):
        if place and prices[place - 1] + tick < price:
            found.append((prices[place - 1] + tick, price - tick))
        found.append((price, price))
    return found
