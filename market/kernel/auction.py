"""One price for a batch of orders: most volume, least imbalance, nearest the reference, lowest.

Who bids better than the price is filled whole. On the tick where one side has more than the other
takes, older entry batches come first; within the one that does not fit whole, each order has its
share pro rata, rounded down, and the units left go to the largest remainders, then to the least
ranks. So it gains nobody to split an order or to be early within a batch. Ranks are the caller's
tie keys, all different; ticks are (price - lowest price) / price step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from market.kernel.compiling import compiled, unowned

BUY: Final = 0
SELL: Final = 1
TICKS: Final = 1 << 18
QUANTITY_MAX: Final = (1 << 31) - 1
"""Of an order, and of all together: a share is the product of two quantities."""

Words = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Orders:
    """A batch, field by field: int64, contiguous, of one length."""

    sides: Words
    ticks: Words
    quantities: Words
    entries: Words
    """Entry batch; less is older."""
    ranks: Words


def orders_of(rows: Iterable[tuple[int, int, int, int]]) -> Orders:
    """A batch of (side, tick, quantity, entry batch), ranked as they are given."""
    sides, ticks, quantities, entries = np.array(list(rows), np.int64).reshape(-1, 4).T.copy()
    return Orders(sides, ticks, quantities, entries, np.arange(len(sides)))


@dataclass(frozen=True, slots=True)
class Cleared:
    """The price, how much is traded at it, and what each order has of that."""

    tick: int
    """-1: nothing crosses."""
    volume: int
    fills: Words


# What `_survey` finds.
_LEAST_SIDE, _MOST_SIDE, _LOW, _HIGH, _LEAST, _MOST, _TOTAL, _SURVEYED = 0, 1, 2, 3, 4, 5, 6, 7
# What `_price` finds; the rationed side is -1 where there is none.
_TICK, _VOLUME, _SIDE, _RATIONED, _LEFT, _PRICED = 0, 1, 2, 3, 4, 5


@compiled
def _survey(sides: Words, ticks: Words, quantities: Words, found: Words) -> None:
    """Bounds of the fields."""
    sides_, ticks_, quantities_ = unowned(sides), unowned(ticks), unowned(quantities)
    least_side, most_side = sides_[0], sides_[0]
    low, high, least, most, total = ticks_[0], ticks_[0], quantities_[0], quantities_[0], 0
    for n in range(sides.size):
        least_side, most_side = min(least_side, sides_[n]), max(most_side, sides_[n])
        low, high = min(low, ticks_[n]), max(high, ticks_[n])
        least, most = min(least, quantities_[n]), max(most, quantities_[n])
        total += quantities_[n]
    found[_LEAST_SIDE], found[_MOST_SIDE], found[_LOW], found[_HIGH] = (
        least_side,
        most_side,
        low,
        high,
    )
    found[_LEAST], found[_MOST], found[_TOTAL] = least, most, total


@compiled
def _price(
    sides: Words,
    ticks: Words,
    quantities: Words,
    low: int,
    reference: int,
    levels: Words,
    found: Words,
) -> None:
    """The clearing price; `levels`, all 0, has room for each side's ticks from `low` on."""
    sides_, ticks_, quantities_ = unowned(sides), unowned(ticks), unowned(quantities)
    levels_, span = unowned(levels), levels.size // 2
    for n in range(sides.size):
        levels_[sides_[n] * span + ticks_[n] - low] += quantities_[n]
    demand, supply = 0, 0
    for tick in range(span):
        demand += levels_[tick]
    best, volume, imbalance, distance = -1, 0, 0, 0
    best_demand, best_supply = 0, 0
    for tick in range(span):
        supply += levels_[span + tick]
        traded, off, away = min(demand, supply), abs(demand - supply), abs(low + tick - reference)
        if traded > volume or (
            traded == volume
            and best >= 0
            and (off < imbalance or (off == imbalance and away < distance))
        ):
            best, volume, imbalance, distance = tick, traded, off, away
            best_demand, best_supply = demand, supply
        demand -= levels_[tick]
    found[_TICK], found[_VOLUME], found[_SIDE] = best, volume, -1
    if best_demand > volume:
        found[_SIDE], found[_RATIONED], found[_LEFT] = BUY, span, volume
        while found[_LEFT] >= 0:
            found[_RATIONED] -= 1
            found[_LEFT] -= levels_[found[_RATIONED]]
        found[_LEFT] += levels_[found[_RATIONED]]
    elif best_supply > volume:
        found[_SIDE], found[_RATIONED], found[_LEFT] = SELL, -1, volume
        while found[_LEFT] >= 0:
            found[_RATIONED] += 1
            found[_LEFT] -= levels_[span + found[_RATIONED]]
        found[_LEFT] += levels_[span + found[_RATIONED]]


@compiled
def _fill(
    sides: Words,
    ticks: Words,
    quantities: Words,
    worst_buy: int,
    worst_sell: int,
    side: int,
    rationed: int,
    fills: Words,
    rows: Words,
) -> int:
    """Fill whole what is as good as the worst ticks; how many rows lie on the rationed one."""
    sides_, ticks_, quantities_ = unowned(sides), unowned(ticks), unowned(quantities)
    fills_, rows_, found = unowned(fills), unowned(rows), 0
    for n in range(sides.size):
        tick, is_buy = ticks_[n], sides_[n] == BUY
        good = (is_buy & (tick >= worst_buy)) | ((not is_buy) & (tick <= worst_sell))
        fills_[n] = quantities_[n] * good
        rows_[found] = n
        found += (sides_[n] == side) & (tick == rationed)
    return found


def clear(orders: Orders, reference: int) -> Cleared:
    """Clear a batch; raises ValueError where a field breaks a rule."""
    count = len(orders.sides)
    for name in Orders.__slots__:
        field = getattr(orders, name)
        if field.dtype != np.int64 or field.shape != (count,) or not field.flags.c_contiguous:
            raise ValueError(f"orders: {name}: needed {count} contiguous int64")
    if not count:
        return Cleared(-1, 0, np.zeros(0, np.int64))
    sides, ticks, quantities = orders.sides, orders.ticks, orders.quantities
    surveyed = np.empty(_SURVEYED, np.int64)
    _survey(sides, ticks, quantities, surveyed)
    _check(surveyed)
    low, span = int(surveyed[_LOW]), int(surveyed[_HIGH] - surveyed[_LOW]) + 1
    priced = np.zeros(_PRICED, np.int64)
    _price(sides, ticks, quantities, low, reference, np.zeros(2 * span, np.int64), priced)
    best, volume, side, rationed, left = priced.tolist()
    if volume == 0:
        return Cleared(-1, 0, np.zeros(count, np.int64))
    tick, rationed = low + best, low + rationed
    worst_buy = rationed + 1 if side == BUY else tick
    worst_sell = rationed - 1 if side == SELL else tick
    fills, rows = np.empty(count, np.int64), np.empty(count + 1, np.int64)
    found = _fill(sides, ticks, quantities, worst_buy, worst_sell, side, rationed, fills, rows)
    if left and side >= 0:
        _ration(orders, rows[:found], left, fills)
    return Cleared(tick, volume, fills)


def _check(found: Words) -> None:
    least_side, most_side, low, high, least, most, total = found.tolist()
    for name, (value, worst), bounds in (
        ("sides", (least_side, most_side), (BUY, SELL)),
        ("ticks", (low, high), (0, TICKS - 1)),
        ("quantities", (least, most), (1, QUANTITY_MAX)),
        ("total of quantities", (total, total), (1, QUANTITY_MAX)),
    ):
        if value < bounds[0] or worst > bounds[1]:
            wrong = value if value < bounds[0] else worst
            raise ValueError(f"orders: {name}: found {wrong}, needed {bounds[0]} to {bounds[1]}")


def _ration(orders: Orders, rows: Words, left: int, fills: Words) -> None:
    """Give `left` to orders of one tick and side that want more."""
    rows = rows[np.argsort(orders.entries[rows], kind="stable")]
    entries, wanted = orders.entries[rows], orders.quantities[rows]
    until = np.cumsum(wanted)
    entry = entries[np.searchsorted(until, left, side="left")]
    first, end = np.searchsorted(entries, entry, "left"), np.searchsorted(entries, entry, "right")
    fills[rows[:first]] = wanted[:first]
    left -= int(until[first - 1]) if first else 0
    some, wanted = rows[first:end], wanted[first:end]
    shares, remainders = np.divmod(wanted * left, int(wanted.sum()))
    luckiest = np.lexsort((orders.ranks[some], -remainders))[: left - int(shares.sum())]
    shares[luckiest] += 1
    fills[some] = shares
