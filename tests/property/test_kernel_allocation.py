"""The allocation kernel against its naive twin, and what no bid can complain of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks._naive_allocation import NaiveCapacity, rows
from benchmarks._naive_search import improved
from market.kernel.allocation import ALONE, ANY, FABRIC, REGION
from market.kernel.capacity import ASK, BID, Capacity, by_price, by_value, surplus

HORIZON = 8
Rows = NDArray[np.void]


@st.composite
def ask_rows(draw: st.DrawFn) -> Rows:
    """A few asks; ranks are places in a shuffled row."""
    count = draw(st.integers(0, 8))
    ranks = draw(st.permutations(range(count)))
    found = np.zeros(count, ASK)
    for row in range(count):
        gpus = draw(st.sampled_from((1, 2, 4, 8)))
        first = draw(st.integers(0, HORIZON - 1))
        found[row] = (
            draw(st.integers(1, 4)),
            ranks[row],
            draw(st.integers(0, 3)),
            draw(st.integers(0, 2)),
            draw(st.sampled_from((0, 1, 63))),
            draw(st.sampled_from((0, 1, 63))),
            draw(st.integers(0, 2)),
            gpus,
            draw(st.sampled_from((1, gpus, 2 if gpus > 1 else 1))),
            first,
            draw(st.integers(first + 1, HORIZON)),
        )
    return found


@st.composite
def bid_rows(draw: st.DrawFn, scopes: tuple[int, ...] = (ALONE, FABRIC, REGION, ANY)) -> Rows:
    """A few bids, most of them easy to please."""
    count = draw(st.integers(0, 8))
    ranks = draw(st.permutations(range(count)))
    found = np.zeros(count, BID)
    for row in range(count):
        gpus, slots = draw(st.integers(1, 12)), draw(st.integers(1, 4))
        earliest = draw(st.integers(0, HORIZON - slots))
        found[row] = (
            draw(st.integers(1, 5)),
            ranks[row],
            draw(st.sampled_from((-1, -1, 1, 2, 0))),
            draw(st.sampled_from((-1, -1, 3, -(1 << 63)))),
            draw(st.sampled_from((0, 0, 1, 2))),
            draw(st.sampled_from((9, 9, 0))),
            gpus,
            slots,
            earliest,
            draw(st.integers(earliest, HORIZON - slots)),
            draw(st.sampled_from(scopes)),
            draw(st.integers(1, gpus)),
        )
    return found


def taken(asks: Rows, bids: Rows, order: NDArray[np.int64]) -> list[tuple[int, int, int, int]]:
    return [tuple(part) for part in Capacity(asks, HORIZON).allocate(bids, order).tolist()]


@given(ask_rows(), bid_rows(), st.booleans())
def test_bids_take_what_the_naive_twin_gives_them(asks: Rows, bids: Rows, dear: bool) -> None:
    order = by_price(bids) if dear else by_value(bids)
    capacity, twin = Capacity(asks, HORIZON), NaiveCapacity(asks, HORIZON)
    assert capacity.allocate(bids, order).tolist() == twin.allocate(bids, order.tolist())
    free = np.empty_like(capacity.free)
    free[capacity.places] = capacity.free
    assert free.tolist() == [twin.free[row] for row in range(len(asks))]


@given(ask_rows(), bid_rows(), st.data())
def test_the_order_of_rows_changes_nothing(asks: Rows, bids: Rows, data: st.DataObject) -> None:
    ask_at = data.draw(st.permutations(range(len(asks))))
    bid_at = data.draw(st.permutations(range(len(bids))))
    other_asks, other_bids = asks[np.array(ask_at, int)], bids[np.array(bid_at, int)]
    found = taken(other_asks, other_bids, by_price(other_bids))
    assert [(bid_at[bid], ask_at[ask], start, gpus) for bid, ask, start, gpus in found] == taken(
        asks, bids, by_price(bids)
    )


@given(ask_rows(), bid_rows(), st.booleans())
def test_doubling_all_prices_changes_nothing(asks: Rows, bids: Rows, dear: bool) -> None:
    order = by_price if dear else by_value
    dear_asks, dear_bids = asks.copy(), bids.copy()
    dear_asks["price"] *= 2
    dear_bids["limit"] *= 2
    assert taken(dear_asks, dear_bids, order(dear_bids)) == taken(asks, bids, order(bids))


@given(ask_rows(), bid_rows(scopes=(ALONE,)), st.data())
def test_raising_a_bid_never_unfills_it(asks: Rows, bids: Rows, data: st.DataObject) -> None:
    filled = sorted({bid for bid, *_ in taken(asks, bids, by_price(bids))})
    if not filled:
        return
    raised, bid = bids.copy(), data.draw(st.sampled_from(filled))
    raised["limit"][bid] += data.draw(st.integers(1, 5))
    assert bid in {found for found, *_ in taken(asks, raised, by_price(raised))}


@given(ask_rows(), bid_rows())
def test_no_bid_has_justified_envy(asks: Rows, bids: Rows) -> None:
    """Were all bids after an unfilled one gone, it would still have nothing."""
    order = by_price(bids)
    filled = {bid for bid, *_ in taken(asks, bids, order)}
    for place, bid in enumerate(order):
        if bid not in filled:
            assert bid not in {found for found, *_ in taken(asks, bids, order[: place + 1])}


@given(ask_rows(), bid_rows(scopes=(ALONE,)))
def test_nobody_served_later_sits_on_something_better(asks: Rows, bids: Rows) -> None:
    """A bid would not move if everything that later bids took were given back."""
    order = by_price(bids)
    parts = Capacity(asks, HORIZON).allocate(bids, order)
    for place, part in enumerate(parts):
        capacity = Capacity(asks, HORIZON)
        capacity.allocate(bids, parts["bid"][:place])
        assert capacity.allocate(bids, part["bid"].reshape(1)).tolist() == [part.tolist()]


@given(ask_rows(), bid_rows())
def test_what_is_released_is_free_again(asks: Rows, bids: Rows) -> None:
    capacity = Capacity(asks, HORIZON)
    before = capacity.free.copy()
    parts = capacity.allocate(bids, by_price(bids))
    capacity.release(parts, bids)
    assert (capacity.free == before).all()


@given(ask_rows(), bid_rows(scopes=(ALONE,)), st.integers(0, 2**64), st.integers(0, 40))
def test_the_search_steps_as_the_naive_twin_does(
    asks: Rows, bids: Rows, seed: int, steps: int
) -> None:
    capacity, twin = Capacity(asks, HORIZON), NaiveCapacity(asks, HORIZON)
    order = by_value(bids)
    found = capacity.improve(bids, capacity.allocate(bids, order), steps, seed)
    expected = improved(twin, rows(bids), twin.allocate(bids, order.tolist()), steps, seed)
    assert [tuple(part) for part in found.tolist()] == expected


@given(ask_rows(), bid_rows(), st.integers(0, 9), st.integers(0, 200))
def test_the_search_never_lowers_the_surplus_nor_moves_a_gang(
    asks: Rows, bids: Rows, seed: int, steps: int
) -> None:
    capacity = Capacity(asks, HORIZON)
    before = capacity.allocate(bids, by_value(bids))
    after = capacity.improve(bids, before, steps, seed)
    assert surplus(asks, bids, after) >= surplus(asks, bids, before)
    gangs = [part for part in before.tolist() if bids["scope"][part[0]] != ALONE]
    assert [part for part in after.tolist() if bids["scope"][part[0]] != ALONE] == gangs
    assert (capacity.free >= 0).all()
    capacity.release(after, bids)
    assert (capacity.free == Capacity(asks, HORIZON).free).all()
