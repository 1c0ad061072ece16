"""Lane B's search after the greedy allocation: move a bid, throw out what is in its way, resettle.

A step draws a bid of scope ALONE, one of its cheapest asks and a start. Bids of least surplus go
until it fits; each then takes the cheapest ask with room. A step that lowers the surplus is taken
back. Surplus is (limit - price) x GPUs x slots. So many steps, never so many seconds: the same
seed gives the same allocation on every machine.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from market.kernel.allocation import (
    ALONE,
    ASK_ENDS,
    ASK_FIELDS,
    ASK_GPUS,
    ASK_LOT,
    ASK_OPENS,
    ASK_PRICE,
    BID_COUNT,
    BID_EARLIEST,
    BID_LATEST,
    BID_LIMIT,
    BID_MODELS,
    BID_SCOPE,
    BID_SLOTS,
    BID_WORDS,
    Free,
    Words,
    eligible,
    first_start,
    next_ask,
    open_lists,
    take,
)
from market.kernel.compiling import compiled, inlined, signed, unowned

REACH: Final = 256
"""Asks that a bid looks at, cheapest first."""
NEAR: Final = 6
"""Two steps in three try one of so many cheapest asks."""

Dice = NDArray[np.uint64]

# A bid's place: the ask that holds it (-1: none), its start, and its neighbours among the ask's.
HOLDER, START, _AFTER, _BEFORE, PLACE_WORDS = 0, 1, 2, 3, 4


@inlined
def _draw(dice: Dice, count: int) -> int:
    """A number below `count`; Marsaglia's xorshift, 13, 7, 17."""
    word = dice[0]
    word ^= word << np.uint64(13)
    word ^= word >> np.uint64(7)
    word ^= word << np.uint64(17)
    dice[0] = word
    return signed(word >> np.uint64(32)) * count >> 32


@inlined
def _window(asks: Words, count: int, ask: int, bids: Words, at: int) -> tuple[int, int]:
    """First and last start of a bid in an ask."""
    low = max(bids[at + BID_EARLIEST], asks[ASK_OPENS * count + ask])
    high = min(bids[at + BID_LATEST], asks[ASK_ENDS * count + ask] - bids[at + BID_SLOTS])
    return low, high


@inlined
def _surplus(asks: Words, count: int, ask: int, bids: Words, bid: int) -> int:
    at = bid * BID_WORDS
    gain = bids[at + BID_LIMIT] - asks[ASK_PRICE * count + ask]
    return int(gain * bids[at + BID_COUNT] * bids[at + BID_SLOTS])


@compiled
def reach(
    asks: Words, offsets: Words, bids: Words, bounds: Words, found: Words, scratch: Words
) -> None:
    """The asks that each bid may take were they free, cheapest first: found[bounds[n]:...]."""
    asks_, offsets_, bids_, scratch_ = (
        unowned(asks),
        unowned(offsets),
        unowned(bids),
        unowned(scratch),
    )
    count, written = asks.size // ASK_FIELDS, 0
    for bid in range(bids.size // BID_WORDS):
        at = bid * BID_WORDS
        bounds[bid] = written
        if bids_[at + BID_SCOPE] != ALONE:
            continue
        lists = open_lists(offsets_, bids_[at + BID_MODELS], scratch_)
        while written < bounds[bid] + REACH:
            ask = next_ask(asks_, count, lists, scratch_)
            if ask < 0 or asks_[ASK_PRICE * count + ask] > bids_[at + BID_LIMIT]:
                break
            if not eligible(asks_, count, ask, bids_, at):
                continue
            gpus = bids_[at + BID_COUNT]
            if asks_[ASK_GPUS * count + ask] < gpus or gpus % asks_[ASK_LOT * count + ask] != 0:
                continue
            low, high = _window(asks_, count, ask, bids_, at)
            if low <= high:
                found[written] = ask
                written += 1
    bounds[bids.size // BID_WORDS] = written


@inlined
def _put(
    free: Free,
    horizon: int,
    bids: Words,
    places: Words,
    heads: Words,
    bid: int,
    ask: int,
    start: int,
) -> None:
    at, place = bid * BID_WORDS, bid * PLACE_WORDS
    take(free, ask * horizon, start, bids[at + BID_SLOTS], bids[at + BID_COUNT])
    places[place + HOLDER] = ask
    places[place + START] = start
    places[place + _AFTER] = heads[ask]
    places[place + _BEFORE] = -1
    if heads[ask] >= 0:
        places[heads[ask] * PLACE_WORDS + _BEFORE] = bid
    heads[ask] = bid


@inlined
def _drop(free: Free, horizon: int, bids: Words, places: Words, heads: Words, bid: int) -> None:
    at, place = bid * BID_WORDS, bid * PLACE_WORDS
    ask, after, before = places[place + HOLDER], places[place + _AFTER], places[place + _BEFORE]
    start, gpus = places[place + START], bids[at + BID_COUNT]
    take(free, ask * horizon, start, bids[at + BID_SLOTS], -gpus)
    places[place + HOLDER] = -1
    if before >= 0:
        places[before * PLACE_WORDS + _AFTER] = after
    else:
        heads[ask] = after
    if after >= 0:
        places[after * PLACE_WORDS + _BEFORE] = before


@inlined
def _least_at(
    asks: Words, count: int, bids: Words, places: Words, heads: Words, ask: int, slot: int
) -> int:
    """Of an ask's bids at a slot: the one of least surplus, then of the least row; -1: none."""
    least, least_surplus, bid = -1, 0, heads[ask]
    while bid >= 0:
        start = places[bid * PLACE_WORDS + START]
        if start <= slot < start + bids[bid * BID_WORDS + BID_SLOTS]:
            surplus = _surplus(asks, count, ask, bids, bid)
            if least < 0 or surplus < least_surplus or (surplus == least_surplus and bid < least):
                least, least_surplus = bid, surplus
        bid = places[bid * PLACE_WORDS + _AFTER]
    return int(least)


@inlined
def _make_room(
    asks: Words,
    count: int,
    free: Free,
    horizon: int,
    bids: Words,
    places: Words,
    heads: Words,
    bid: int,
    ask: int,
    start: int,
    gone: Words,
) -> tuple[int, bool]:
    """Throw out bids, into `gone` with their starts; how many, and whether there is room now."""
    at, thrown = bid * BID_WORDS, 0
    slot, end = start, start + bids[at + BID_SLOTS]
    while slot < end:
        if free[ask * horizon + slot] >= bids[at + BID_COUNT]:
            slot += 1
            continue
        least = _least_at(asks, count, bids, places, heads, ask, slot)
        if least < 0:
            return thrown, False
        gone[2 * thrown] = least
        gone[2 * thrown + 1] = places[least * PLACE_WORDS + START]
        thrown += 1
        _drop(free, horizon, bids, places, heads, least)
    return thrown, True


@inlined
def _resettle(
    asks: Words,
    count: int,
    free: Free,
    horizon: int,
    bids: Words,
    places: Words,
    heads: Words,
    bid: int,
    bounds: Words,
    found: Words,
) -> int:
    """Put a bid into the cheapest ask that has room; its surplus there, or 0."""
    at = bid * BID_WORDS
    for n in range(bounds[bid], bounds[bid + 1]):
        ask = found[n]
        low, high = _window(asks, count, ask, bids, at)
        slots, gpus = bids[at + BID_SLOTS], bids[at + BID_COUNT]
        start = first_start(free, ask * horizon, low, high, slots, gpus)
        if start >= 0:
            _put(free, horizon, bids, places, heads, bid, ask, start)
            return int(_surplus(asks, count, ask, bids, bid))
    return 0


@inlined
def _step(
    asks: Words,
    count: int,
    free: Free,
    horizon: int,
    bids: Words,
    places: Words,
    heads: Words,
    bid: int,
    ask: int,
    start: int,
    bounds: Words,
    found: Words,
    gone: Words,
) -> None:
    """Move a bid if the surplus of all does not fall by it."""
    old, old_start = places[bid * PLACE_WORDS + HOLDER], places[bid * PLACE_WORDS + START]
    lost, gained = 0, 0
    if old >= 0:
        lost += _surplus(asks, count, old, bids, bid)
        _drop(free, horizon, bids, places, heads, bid)
    thrown, has_room = _make_room(
        asks, count, free, horizon, bids, places, heads, bid, ask, start, gone
    )
    for n in range(thrown):
        lost += _surplus(asks, count, ask, bids, gone[2 * n])
    if has_room:
        _put(free, horizon, bids, places, heads, bid, ask, start)
        gained += _surplus(asks, count, ask, bids, bid)
        for n in range(thrown):
            gained += _resettle(
                asks, count, free, horizon, bids, places, heads, gone[2 * n], bounds, found
            )
        if gained >= lost:
            return
        _drop(free, horizon, bids, places, heads, bid)
        for n in range(thrown):
            if places[gone[2 * n] * PLACE_WORDS + HOLDER] >= 0:
                _drop(free, horizon, bids, places, heads, gone[2 * n])
    for n in range(thrown):
        _put(free, horizon, bids, places, heads, gone[2 * n], ask, gone[2 * n + 1])
    if old >= 0:
        _put(free, horizon, bids, places, heads, bid, old, old_start)


@compiled
def search(
    asks: Words,
    free: Free,
    horizon: int,
    bids: Words,
    places: Words,
    heads: Words,
    bounds: Words,
    found: Words,
    gone: Words,
    dice: Dice,
    steps: int,
) -> None:
    """Take `steps`; `places` hold what every bid has."""
    asks_, free_, bids_, places_ = unowned(asks), unowned(free), unowned(bids), unowned(places)
    heads_, bounds_, found_ = unowned(heads), unowned(bounds), unowned(found)
    gone_, dice_ = unowned(gone), unowned(dice)
    count, bid_count = asks.size // ASK_FIELDS, bids.size // BID_WORDS
    for bid in range(bid_count):
        place = bid * PLACE_WORDS
        ask = places_[place + HOLDER]
        if ask >= 0:  # it has its GPUs already; only its neighbours are missing
            gpus = bids_[bid * BID_WORDS + BID_COUNT]
            start, slots = places_[place + START], bids_[bid * BID_WORDS + BID_SLOTS]
            take(free_, ask * horizon, start, slots, -gpus)
            _put(free_, horizon, bids_, places_, heads_, bid, ask, start)
    for _ in range(steps if bid_count else 0):
        bid = _draw(dice_, bid_count)
        options = bounds_[bid + 1] - bounds_[bid]
        if options == 0:
            continue
        near = _draw(dice_, 3)
        ask = found_[bounds_[bid] + _draw(dice_, min(options, NEAR) if near else options)]
        if places_[bid * PLACE_WORDS + HOLDER] == ask and _draw(dice_, 4):
            continue
        low, high = _window(asks_, count, ask, bids_, bid * BID_WORDS)
        start = low + _draw(dice_, high - low + 1)
        _step(
            asks_,
            count,
            free_,
            horizon,
            bids_,
            places_,
            heads_,
            bid,
            ask,
            start,
            bounds_,
            found_,
            gone_,
        )
