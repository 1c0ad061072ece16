"""The search of lane B, written plainly: who holds what is a dict, and a step makes a new one."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks._naive_allocation import NaiveCapacity, Part, Row, fits
from market.kernel.allocation import ALONE
from market.kernel.ejection import NEAR, REACH

Held = dict[int, tuple[Row, int]]
"""Of a bid: its ask and its start."""


def improved(
    capacity: NaiveCapacity, bids: list[Row], parts: list[Part], steps: int, seed: int
) -> list[Part]:
    """Does what Capacity.improve does; bids of scope ALONE only."""
    ask_of = {ask.row: ask for ask in capacity.asks}
    held: Held = {row: (ask_of[ask_row], start) for row, ask_row, start, _gpus in parts}
    for row, ask_row, start, gpus in parts:
        _take(capacity, ask_row, start, bids[row].slots, -gpus)
        assert bids[row].scope == ALONE, row
    options = [
        [ask for ask in capacity.asks if fits(bid, ask) and _can_hold(bid, ask)][:REACH]
        for bid in bids
    ]
    draws = _numbers(seed)

    def draw(count: int) -> int:
        return (next(draws) >> 32) * count >> 32

    for _ in range(steps if bids else 0):
        bid = bids[draw(len(bids))]
        asks = options[bid.row]
        if not asks:
            continue
        ask = asks[draw(min(len(asks), NEAR)) if draw(3) else draw(len(asks))]
        if bid.row in held and held[bid.row][0] is ask and draw(4):
            continue
        low, high = _window(bid, ask)
        moved = _step(capacity, bids, options, held, bid, ask, low + draw(high - low + 1))
        if _surplus(bids, moved) >= _surplus(bids, held):
            held = moved
    return [
        (row, place[0].row, place[1], bids[row].gpus)
        for row, place in sorted(held.items(), key=lambda pair: pair[0])
    ]


def _numbers(seed: int) -> Iterator[int]:
    word, mask = seed % (2**64 - 1) + 1, 2**64 - 1
    while True:
        word ^= word << 13 & mask
        word ^= word >> 7
        word ^= word << 17 & mask
        yield word


def _window(bid: Row, ask: Row) -> tuple[int, int]:
    return max(bid.earliest, ask.first), min(bid.latest, ask.end - bid.slots)


def _can_hold(bid: Row, ask: Row) -> bool:
    low, high = _window(bid, ask)
    return ask.gpus >= bid.gpus and bid.gpus % ask.lot == 0 and low <= high


def _take(capacity: NaiveCapacity, ask: int, start: int, slots: int, gpus: int) -> None:
    for slot in range(start, start + slots):
        capacity.free[ask][slot] -= gpus


def _surplus(bids: list[Row], held: Held) -> int:
    return sum(
        (bids[bid].limit - ask.price) * bids[bid].gpus * bids[bid].slots
        for bid, (ask, _start) in held.items()
    )


def _free(capacity: NaiveCapacity, bids: list[Row], held: Held, ask: Row, slot: int) -> int:
    used = sum(
        bids[bid].gpus
        for bid, (other, start) in held.items()
        if other is ask and start <= slot < start + bids[bid].slots
    )
    return int(capacity.free[ask.row][slot] - used)


def _step(
    capacity: NaiveCapacity,
    bids: list[Row],
    options: list[list[Row]],
    held: Held,
    bid: Row,
    ask: Row,
    start: int,
) -> Held:
    """Who holds what after the step; as before where no room can be made."""
    after = {other: place for other, place in held.items() if other != bid.row}
    thrown = []
    for slot in range(start, start + bid.slots):
        while _free(capacity, bids, after, ask, slot) < bid.gpus:
            there = [
                (_surplus(bids, {other: place}), other)
                for other, place in after.items()
                if place[0] is ask and place[1] <= slot < place[1] + bids[other].slots
            ]
            if not there:
                return held
            thrown.append(min(there)[1])
            del after[thrown[-1]]
    after[bid.row] = ask, start
    for other in thrown:
        for option in options[other]:
            low, high = _window(bids[other], option)
            ways = [
                first
                for first in range(low, high + 1)
                if all(
                    _free(capacity, bids, after, option, slot) >= bids[other].gpus
                    for slot in range(first, first + bids[other].slots)
                )
            ]
            if ways:
                after[other] = option, ways[0]
                break
    return after
