"""Leases over time: each bid in turn takes the cheapest asks that fit, at the earliest start.

Asks lie model by model in the order of (price, rank), so that a bid reads only the lists of its
models, and only up to its limit. Each ask has its free GPUs per slot of time. Least in (price,
start, rank) wins; a gang takes the cheapest group of asks at one start, or nothing. Who calls
this is `Capacity`, which also says what the words mean.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from market.kernel.compiling import compiled, inlined, unowned

MODELS_MAX: Final = 64
REGIONS_MAX: Final = 64
CANDIDATES_MAX: Final = 4_096
"""Cheapest asks that a gang looks at: it tries each with every start of its window."""

ALONE: Final = 0
"""Scope: one ask holds the whole count."""
FABRIC: Final = 1
"""Scope: several asks of one fabric."""
REGION: Final = 2
ANY: Final = 3

Words = NDArray[np.int64]
Free = NDArray[np.int16]
Parts = NDArray[np.int32]

# An ask's words lie field by field, in the order of the lists; a bid's lie together.
ASK_PRICE, ASK_RANK, ASK_TRAITS, ASK_OWNER, ASK_REGION, ASK_FABRIC = 0, 1, 2, 3, 4, 5
ASK_GPUS, ASK_LOT, ASK_OPENS, ASK_ENDS, ASK_FIELDS = 6, 7, 8, 9, 10
BID_LIMIT, BID_MODELS, BID_REGIONS, BID_NEEDS, BID_BUYER, BID_COUNT = 0, 1, 2, 3, 4, 5
BID_SLOTS, BID_EARLIEST, BID_LATEST, BID_SCOPE, BID_LEAST, BID_WORDS = 6, 7, 8, 9, 10, 11
_PART_WORDS = 4
# The scratch of a gang: where each model's list is read and ends, then lists of candidates and of
# parts, then a word a group, which is -1 between gangs.
_LIST_ENDS = MODELS_MAX
_CANDIDATES = 2 * MODELS_MAX
_FOLLOWING = _CANDIDATES + CANDIDATES_MAX
_HEADS = _FOLLOWING + CANDIDATES_MAX
_TRIED = _HEADS + CANDIDATES_MAX
_BEST = _TRIED + 2 * CANDIDATES_MAX
GANG_WORDS = _BEST + 2 * CANDIDATES_MAX


@inlined
def eligible(asks: Words, count: int, ask: int, bids: Words, bid: int) -> bool:
    """Whether price and capacity alone decide."""
    needs = bids[bid + BID_NEEDS]
    return bool(
        bids[bid + BID_REGIONS] >> asks[ASK_REGION * count + ask] & 1 != 0
        and asks[ASK_TRAITS * count + ask] & needs == needs
        and asks[ASK_OWNER * count + ask] != bids[bid + BID_BUYER]
    )


@inlined
def first_start(free: Free, row: int, low: int, high: int, slots: int, gpus: int) -> int:
    """Earliest start from `low` to `high` with so many GPUs in all its slots; -1: none."""
    start, seen = low, low - 1
    while start <= high:
        slot = start + slots - 1
        end = slot
        while slot > seen and free[row + slot] >= gpus:
            slot -= 1
        if slot <= seen:
            return start
        start, seen = slot + 1, end
    return -1


@inlined
def _least_free(free: Free, row: int, start: int, slots: int) -> int:
    least = free[row + start]
    for slot in range(start + 1, start + slots):
        least = min(least, free[row + slot])
    return int(least)


@inlined
def take(free: Free, row: int, start: int, slots: int, gpus: int) -> None:
    for slot in range(row + start, row + start + slots):
        free[slot] -= gpus


@inlined
def _cheapest(
    asks: Words, count: int, offsets: Words, free: Free, horizon: int, bids: Words, bid: int
) -> tuple[int, int]:
    """The one ask for a bid, least in (price, start, rank), and the start; -1: none."""
    gpus, slots = bids[bid + BID_COUNT], bids[bid + BID_SLOTS]
    earliest, latest = bids[bid + BID_EARLIEST], bids[bid + BID_LATEST]
    price, best, best_start = bids[bid + BID_LIMIT], -1, latest
    models = bids[bid + BID_MODELS]
    for model in range(MODELS_MAX):
        if models >> model & 1 == 0:
            continue
        for ask in range(offsets[model], offsets[model + 1]):
            if asks[ASK_PRICE * count + ask] > price:
                break
            if not eligible(asks, count, ask, bids, bid):
                continue
            if asks[ASK_GPUS * count + ask] < gpus or gpus % asks[ASK_LOT * count + ask] != 0:
                continue
            same = best >= 0 and asks[ASK_PRICE * count + ask] == price
            low = max(earliest, asks[ASK_OPENS * count + ask])
            high = min(best_start if same else latest, asks[ASK_ENDS * count + ask] - slots)
            start = first_start(free, ask * horizon, low, high, slots, gpus)
            if start < 0:
                continue
            if (
                same
                and start == best_start
                and asks[ASK_RANK * count + ask] > asks[ASK_RANK * count + best]
            ):
                continue
            price, best, best_start = asks[ASK_PRICE * count + ask], ask, start
    return best, best_start


@inlined
def _group(asks: Words, count: int, ask: int, scope: int) -> int:
    if scope == FABRIC:
        return int(asks[ASK_FABRIC * count + ask])
    if scope == REGION:
        return int(asks[ASK_REGION * count + ask])
    return 0


@inlined
def open_lists(offsets: Words, models: int, scratch: Words) -> int:
    """Where the lists of the models begin and end; returns how many there are."""
    found = 0
    for model in range(MODELS_MAX):
        if models >> model & 1 and offsets[model] < offsets[model + 1]:
            scratch[found] = offsets[model]
            scratch[_LIST_ENDS + found] = offsets[model + 1]
            found += 1
    return found


@inlined
def next_ask(asks: Words, count: int, lists: int, scratch: Words) -> int:
    """The least unread ask in (price, rank) of all lists, read now; -1: none is left."""
    least, of = -1, 0
    for n in range(lists):
        ask = scratch[n]
        if ask == scratch[_LIST_ENDS + n]:
            continue
        if least >= 0:
            price, least_price = asks[ASK_PRICE * count + ask], asks[ASK_PRICE * count + least]
            rank, least_rank = asks[ASK_RANK * count + ask], asks[ASK_RANK * count + least]
            if price > least_price or (price == least_price and rank > least_rank):
                continue
        least, of = ask, n
    scratch[of] += least >= 0
    return least


@inlined
def _gathered(
    asks: Words, count: int, offsets: Words, bids: Words, bid: int, scratch: Words
) -> int:
    """The candidates of a gang in the order of (price, rank), chained group by group.

    Returns how many groups; they stand in the order of their cheapest asks.
    """
    found, groups, scope = 0, 0, bids[bid + BID_SCOPE]
    lists = open_lists(offsets, bids[bid + BID_MODELS], scratch)
    while found < CANDIDATES_MAX:
        ask = next_ask(asks, count, lists, scratch)
        if ask < 0 or asks[ASK_PRICE * count + ask] > bids[bid + BID_LIMIT]:
            break
        if (
            not eligible(asks, count, ask, bids, bid)
            or asks[ASK_OPENS * count + ask] > bids[bid + BID_LATEST]
            or asks[ASK_ENDS * count + ask] < bids[bid + BID_EARLIEST] + bids[bid + BID_SLOTS]
        ):
            continue
        scratch[_CANDIDATES + found] = ask
        scratch[_FOLLOWING + found] = -1
        tail = GANG_WORDS + _group(asks, count, ask, scope)
        if scratch[tail] < 0:
            scratch[_HEADS + groups] = found
            groups += 1
        else:
            scratch[_FOLLOWING + scratch[tail]] = found
        scratch[tail] = found
        found += 1
    for n in range(found):
        scratch[GANG_WORDS + _group(asks, count, scratch[_CANDIDATES + n], scope)] = -1
    return groups


@inlined
def _tried(
    asks: Words,
    count: int,
    free: Free,
    horizon: int,
    bids: Words,
    bid: int,
    head: int,
    start: int,
    bound: int,
    scratch: Words,
) -> tuple[int, int]:
    """One group at one start, cheapest asks first: parts and their price; -1: not to be had."""
    need, cost, parts, slots = bids[bid + BID_COUNT], 0, 0, bids[bid + BID_SLOTS]
    candidate = head
    while candidate >= 0:
        ask = scratch[_CANDIDATES + candidate]
        candidate = scratch[_FOLLOWING + candidate]
        if asks[ASK_OPENS * count + ask] > start or asks[ASK_ENDS * count + ask] < start + slots:
            continue
        has, lot = _least_free(free, ask * horizon, start, slots), asks[ASK_LOT * count + ask]
        gpus = min(has, need) // lot * lot
        if gpus == 0 or gpus < min(bids[bid + BID_LEAST], need):
            continue
        scratch[_TRIED + 2 * parts] = ask
        scratch[_TRIED + 2 * parts + 1] = gpus
        parts += 1
        cost += gpus * asks[ASK_PRICE * count + ask]
        need -= gpus
        if need == 0:
            return parts, cost
        if bound >= 0 and cost > bound:
            break
    return -1, 0


@inlined
def _cheapest_gang(
    asks: Words,
    count: int,
    offsets: Words,
    free: Free,
    horizon: int,
    bids: Words,
    bid: int,
    scratch: Words,
) -> tuple[int, int]:
    """Least in (price of all, start, group); how many parts, in _BEST, and the start. 0: none."""
    groups = _gathered(asks, count, offsets, bids, bid, scratch)
    best, best_cost, best_start = 0, -1, -1
    for group in range(groups):
        for start in range(bids[bid + BID_EARLIEST], bids[bid + BID_LATEST] + 1):
            head = scratch[_HEADS + group]
            parts, cost = _tried(
                asks, count, free, horizon, bids, bid, head, start, best_cost, scratch
            )
            if parts < 0 or (best and cost > best_cost):
                continue
            if best and cost == best_cost and start >= best_start:
                continue
            best, best_cost, best_start = parts, cost, start
            for n in range(2 * parts):
                scratch[_BEST + n] = scratch[_TRIED + n]
    return best, best_start


@compiled
def allocate(
    asks: Words,
    offsets: Words,
    free: Free,
    horizon: int,
    bids: Words,
    order: Words,
    parts: Parts,
    scratch: Words,
) -> int:
    """Serve bids in their order; returns how many parts were written."""
    asks_, offsets_, free_, bids_ = unowned(asks), unowned(offsets), unowned(free), unowned(bids)
    order_, parts_, scratch_ = unowned(order), unowned(parts), unowned(scratch)
    count, written = asks.size // ASK_FIELDS, 0
    for n in range(order.size):
        bid = order_[n] * BID_WORDS
        if bids_[bid + BID_SCOPE] == ALONE:
            ask, start = _cheapest(asks_, count, offsets_, free_, horizon, bids_, bid)
            taken = 0 if ask < 0 else 1
            scratch_[_BEST] = ask
            scratch_[_BEST + 1] = bids_[bid + BID_COUNT]
        else:
            taken, start = _cheapest_gang(
                asks_, count, offsets_, free_, horizon, bids_, bid, scratch_
            )
        for part in range(taken):
            ask, gpus = scratch_[_BEST + 2 * part], scratch_[_BEST + 2 * part + 1]
            take(free_, ask * horizon, start, bids_[bid + BID_SLOTS], gpus)
            out = written * _PART_WORDS
            parts_[out] = order_[n]
            parts_[out + 1] = ask
            parts_[out + 2] = start
            parts_[out + 3] = gpus
            written += 1
    return written
