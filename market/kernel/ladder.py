"""A price-time book on a dense ladder of ticks: place, cancel and best price in constant time.

Each tick of a side is a queue; a tree of bits, 64 to a word and three words high, finds the best
tick that is not empty. Orders lie in a pool at their ids, which the caller numbers from 1 and may
use again once the pool forgot them. A tick is (price - lowest price) / price step: whoever maps
prices to ticks refuses those outside the band. No clock, no price, no account is known here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from market.kernel.compiling import (
    compiled,
    entry_point,
    highest_bit,
    inlined,
    lowest_bit,
    signed,
    unowned,
)

TICKS: Final = 1 << 18
ORDERS_MAX: Final = (1 << 32) - 2
QUANTITY_MAX: Final = (1 << 32) - 1
BUY: Final = 0
SELL: Final = 1
PLACE: Final = 0
CANCEL: Final = 1

ORDER_UNKNOWN: Final = -1
"""Code: the id is not of this pool (1 to its capacity), or rests no longer."""
ORDER_RESTS: Final = -2
"""Code: an order of this id rests already."""
SIDE_UNKNOWN: Final = -3
TICK_OUTSIDE: Final = -4
"""Code: not 0 to TICKS - 1."""
QUANTITY_OUTSIDE: Final = -5
"""Code: not 1 to QUANTITY_MAX."""
KIND_UNKNOWN: Final = -6

REQUEST: Final = np.dtype(
    [("kind", "<u4"), ("order", "<u4"), ("side", "<u4"), ("tick", "<u4"), ("quantity", "<u4")]
)
"""Place an order, or cancel one (the fields after `order` say nothing then)."""
FILL: Final = np.dtype([("taker", "<u4"), ("maker", "<u4"), ("tick", "<u4"), ("quantity", "<u4")])
"""`maker` rested; the price is his."""

_Words = NDArray[np.uint32]
_Bits = NDArray[np.uint64]

# The pool: four words an order. `LEVEL` is side << 18 | tick, as the ladder counts its queues.
_NEXT, _PREV, _QUANTITY, _LEVEL, _ORDER_WORDS = 0, 1, 2, 3, 4
_HEAD, _TAIL, _QUEUE_WORDS = 0, 1, 2
_TAKER, _MAKER, _TICK, _FILLED, _FILL_WORDS = 0, 1, 2, 3, 4
_REQUEST_WORDS = 5
# The tree of a side: leaves, then their parents, then the root.
_PARENTS = TICKS >> 6
_ROOT = _PARENTS + (TICKS >> 12)
_TREE_WORDS = _ROOT + 1
_ONE = np.uint64(1)
_NONE = np.uint64(0)


@inlined
def _bit(place: int) -> np.uint64:
    return _ONE << np.uint64(place & 63)


@inlined
def _mark(bits: _Bits, side: int, tick: int) -> None:
    tree = side * _TREE_WORDS
    bits[tree + (tick >> 6)] |= _bit(tick)
    bits[tree + _PARENTS + (tick >> 12)] |= _bit(tick >> 6)
    bits[tree + _ROOT] |= _bit(tick >> 12)


@inlined
def _unmark(bits: _Bits, side: int, tick: int) -> None:
    tree = side * _TREE_WORDS
    leaf = tree + (tick >> 6)
    bits[leaf] &= ~_bit(tick)
    if bits[leaf] == _NONE:
        parent = tree + _PARENTS + (tick >> 12)
        bits[parent] &= ~_bit(tick >> 6)
        if bits[parent] == _NONE:
            bits[tree + _ROOT] &= ~_bit(tick >> 12)


@inlined
def _lowest(bits: _Bits, side: int) -> int:
    """The lowest tick of a side; -1: it is empty."""
    tree = side * _TREE_WORDS
    if bits[tree + _ROOT] == _NONE:
        return -1
    found = signed(lowest_bit(bits[tree + _ROOT]))
    found = found << 6 | signed(lowest_bit(bits[tree + _PARENTS + found]))
    return found << 6 | signed(lowest_bit(bits[tree + found]))


@inlined
def _highest(bits: _Bits, side: int) -> int:
    """The highest tick of a side; -1: it is empty."""
    tree = side * _TREE_WORDS
    if bits[tree + _ROOT] == _NONE:
        return -1
    found = signed(highest_bit(bits[tree + _ROOT]))
    found = found << 6 | signed(highest_bit(bits[tree + _PARENTS + found]))
    return found << 6 | signed(highest_bit(bits[tree + found]))


@inlined
def _join(pool: _Words, ladder: _Words, bits: _Bits, order: int, level: int, left: int) -> None:
    """Last in the queue of its level."""
    queue, own = level * _QUEUE_WORDS, order * _ORDER_WORDS
    last = signed(ladder[queue + _TAIL])
    pool[own + _NEXT] = 0
    pool[own + _PREV] = last
    pool[own + _QUANTITY] = left
    pool[own + _LEVEL] = level
    if last:
        pool[last * _ORDER_WORDS + _NEXT] = order
    else:
        ladder[queue + _HEAD] = order
        _mark(bits, level >> 18, level & (TICKS - 1))
    ladder[queue + _TAIL] = order


@inlined
def _cancel(pool: _Words, capacity: int, ladder: _Words, bits: _Bits, order: int) -> int:
    own = order * _ORDER_WORDS
    if order < 1 or order > capacity or pool[own + _QUANTITY] == 0:
        return ORDER_UNKNOWN
    after, before = signed(pool[own + _NEXT]), signed(pool[own + _PREV])
    level = signed(pool[own + _LEVEL])
    if before:
        pool[before * _ORDER_WORDS + _NEXT] = after
    else:
        ladder[level * _QUEUE_WORDS + _HEAD] = after
    if after:
        pool[after * _ORDER_WORDS + _PREV] = before
    else:
        ladder[level * _QUEUE_WORDS + _TAIL] = before
    if not (before or after):
        _unmark(bits, level >> 18, level & (TICKS - 1))
    pool[own + _QUANTITY] = 0
    return 0


@inlined
def _refusal(pool: _Words, capacity: int, order: int, side: int, tick: int, quantity: int) -> int:
    if order < 1 or order > capacity:
        return ORDER_UNKNOWN
    if side < BUY or side > SELL:
        return SIDE_UNKNOWN
    if tick < 0 or tick >= TICKS:
        return TICK_OUTSIDE
    if quantity < 1 or quantity > QUANTITY_MAX:
        return QUANTITY_OUTSIDE
    if pool[order * _ORDER_WORDS + _QUANTITY]:
        return ORDER_RESTS
    return 0


@inlined
def _take(
    pool: _Words,
    ladder: _Words,
    bits: _Bits,
    fills: _Words,
    filled: int,
    order: int,
    level: int,
    wanted: int,
) -> tuple[int, int]:
    """Fill an order from one level, oldest first; returns the count of fills and what is left."""
    queue, left = level * _QUEUE_WORDS, wanted
    maker = signed(ladder[queue + _HEAD])
    while True:
        own, out = maker * _ORDER_WORDS, filled * _FILL_WORDS
        has = signed(pool[own + _QUANTITY])
        quantity = min(has, left)
        fills[out + _TAKER] = order
        fills[out + _MAKER] = maker
        fills[out + _TICK] = level & (TICKS - 1)
        fills[out + _FILLED] = quantity
        filled += 1
        left -= quantity
        pool[own + _QUANTITY] = has - quantity
        if has > quantity:
            ladder[queue + _HEAD] = maker
            return filled, left
        maker = signed(pool[own + _NEXT])
        if maker == 0:
            ladder[queue + _HEAD] = 0
            ladder[queue + _TAIL] = 0
            _unmark(bits, level >> 18, level & (TICKS - 1))
            return filled, left
        pool[maker * _ORDER_WORDS + _PREV] = 0
        if left == 0:
            ladder[queue + _HEAD] = maker
            return filled, left


@inlined
def _place(
    pool: _Words,
    capacity: int,
    ladder: _Words,
    bits: _Bits,
    fills: _Words,
    filled: int,
    order: int,
    side: int,
    tick: int,
    quantity: int,
) -> int:
    """Returns `filled` plus the new fills; negative: a code, and nothing changed."""
    refusal = _refusal(pool, capacity, order, side, tick, quantity)
    if refusal:
        return refusal
    left, other = quantity, side ^ 1
    while left:
        if side == BUY:
            best = _lowest(bits, other)
            if best < 0 or best > tick:
                break
        else:
            best = _highest(bits, other)
            if best < tick:
                break
        filled, left = _take(pool, ladder, bits, fills, filled, order, other << 18 | best, left)
    if left:
        _join(pool, ladder, bits, order, side << 18 | tick, left)
    return filled


@compiled
def place_one(
    pool: _Words,
    ladder: _Words,
    bits: _Bits,
    log: _Words,
    order: int,
    side: int,
    tick: int,
    quantity: int,
) -> int:
    """One order; returns how many fills it made, or a code.

    The first word of `log` says where its fills go, behind those before; where an order could
    need more room than is left, they begin anew.
    """
    capacity = pool.size // _ORDER_WORDS - 1
    first = signed(log[0])
    if first + capacity + 1 > log.size // _FILL_WORDS:
        first = 1
    pool_, ladder_, bits_, log_ = unowned(pool), unowned(ladder), unowned(bits), unowned(log)
    end = _place(pool_, capacity, ladder_, bits_, log_, first, order, side, tick, quantity)
    if end < 0:
        return end
    log_[0] = end
    return end - first


@compiled
def cancel_one(pool: _Words, ladder: _Words, bits: _Bits, order: int) -> int:
    """Take an order out; returns 0, or a code."""
    capacity = pool.size // _ORDER_WORDS - 1
    return _cancel(unowned(pool), capacity, unowned(ladder), unowned(bits), order)


@compiled
def run_all(
    pool: _Words,
    ladder: _Words,
    bits: _Bits,
    fills: _Words,
    requests: _Words,
    codes: NDArray[np.int8],
) -> int:
    """Requests in their order; returns the count of fills. Code 0: done."""
    pool_, ladder_, bits_, fills_ = unowned(pool), unowned(ladder), unowned(bits), unowned(fills)
    requests_, codes_, filled = unowned(requests), unowned(codes), 0
    capacity = pool.size // _ORDER_WORDS - 1
    for n in range(codes.size):
        at = n * _REQUEST_WORDS
        kind, order = requests_[at], signed(requests_[at + 1])
        if kind == PLACE:
            side, tick = signed(requests_[at + 2]), signed(requests_[at + 3])
            quantity = signed(requests_[at + 4])
            found = _place(
                pool_, capacity, ladder_, bits_, fills_, filled, order, side, tick, quantity
            )
            codes_[n] = min(found, 0)
            filled = max(found, filled)
        elif kind == CANCEL:
            codes_[n] = _cancel(pool_, capacity, ladder_, bits_, order)
        else:
            codes_[n] = KIND_UNKNOWN
    return filled


@compiled
def best_tick(bits: _Bits, side: int) -> int:
    """Highest tick of buyers, lowest of sellers; -1: none."""
    return _highest(unowned(bits), side) if side == BUY else _lowest(unowned(bits), side)


def empty_book(capacity: int) -> tuple[_Words, _Words, _Bits]:
    """Pool, ladder and bits of a book that has no order yet."""
    return (
        np.zeros((capacity + 1) * _ORDER_WORDS, np.uint32),
        np.zeros(2 * TICKS * _QUEUE_WORDS, np.uint32),
        np.zeros(2 * _TREE_WORDS, np.uint64),
    )


class Ladder:
    """One book and its memory: 16 bytes an order of `capacity`, 4.2 MB for the ticks.

    Code that is negative refuses a request, which then changed nothing.
    """

    def __init__(self, capacity: int) -> None:
        """`capacity` is the highest id, at most ORDERS_MAX; raises ValueError outside."""
        if not 1 <= capacity <= ORDERS_MAX:
            raise ValueError(f"capacity: found {capacity}, needed 1 to {ORDERS_MAX}")
        self._pool, self._ladder, self._bits = empty_book(capacity)
        self._log = np.empty((3 * capacity + 4) * _FILL_WORDS, np.uint32)
        self._log[0] = 1
        self._logged = self._log.data
        place, cancel = _entry_points()
        self.place: Callable[[int, int, int, int], int] = partial(
            place, self._pool, self._ladder, self._bits, self._log
        )
        """Match (order, side, tick, quantity) and rest what is left: how many fills, or a code.

        Raises OverflowError for a number beyond 64 bits.
        """
        self.cancel: Callable[[int], int] = partial(cancel, self._pool, self._ladder, self._bits)
        """Take a resting order out; 0, or a code."""

    def last_fills(self, count: int) -> list[int]:
        """Of the last `place`, which made `count`: taker, maker, tick, quantity, one by one."""
        end = self._logged[0]
        return self._logged[(end - count) * _FILL_WORDS : end * _FILL_WORDS].tolist()

    @property
    def log(self) -> NDArray[np.void]:
        """Fills (FILL) of `place`, oldest first; it begins anew after 2 x `capacity` at least."""
        return self._log.view(FILL)[1 : self._logged[0]]

    def run(self, requests: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.int8]]:
        """Many requests (REQUEST) in their order: their fills (FILL), and a code for each."""
        # A fill uses up an order that rested or was placed, or else it ends a taker.
        most = self._pool.size // _ORDER_WORDS + 2 * len(requests)
        fills, codes = np.empty(most, FILL), np.empty(len(requests), np.int8)
        words = np.ascontiguousarray(requests, REQUEST).view(np.uint32)
        count = run_all(self._pool, self._ladder, self._bits, fills.view(np.uint32), words, codes)
        return fills[:count], codes

    def best(self, side: int) -> int:
        """Highest tick of buyers, lowest of sellers; -1: none."""
        return best_tick(self._bits, side)


@cache
def _entry_points() -> tuple[Callable[..., int], Callable[..., int]]:
    words, bits = np.zeros(_ORDER_WORDS, np.uint32), np.zeros(1, np.uint64)  # has no room
    return (
        entry_point(place_one, words, words, bits, words, 0, 0, 0, 0),
        entry_point(cancel_one, words, words, bits, 0),
    )
