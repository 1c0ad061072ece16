"""The auction kernel against its naive twin, and what a uniform price promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._naive_auction import Order, naive_clear, numpy_clear
from market.kernel.auction import BUY, Cleared, Orders, clear

references = st.integers(0, 12)


@st.composite
def batches(draw: st.DrawFn) -> list[Order]:
    """Orders on few ticks and of few entry batches, so that they tie."""
    count = draw(st.integers(0, 14))
    ranks = draw(st.permutations(range(count)))
    row = st.tuples(st.integers(0, 1), st.integers(2, 9), st.integers(1, 20), st.integers(0, 2))
    return [(*draw(row), rank) for rank in ranks]


def packed(orders: list[Order]) -> Orders:
    return Orders(*np.array(orders, np.int64).reshape(-1, 5).T.copy())


def told(found: Cleared) -> tuple[int, int, list[int]]:
    return found.tick, found.volume, found.fills.tolist()


@given(batches(), references)
def test_price_volume_and_fills_are_the_naive_twins(orders: list[Order], reference: int) -> None:
    expected = naive_clear(orders, reference)
    assert told(clear(packed(orders), reference)) == expected
    if orders:
        assert told(numpy_clear(packed(orders), reference)) == expected


@given(batches(), references)
def test_both_sides_trade_the_volume_within_their_limits(
    orders: list[Order], reference: int
) -> None:
    tick, volume, fills = told(clear(packed(orders), reference))
    bought = [n for order, n in zip(orders, fills, strict=True) if order[0] == BUY]
    assert sum(bought) == sum(fills) - sum(bought) == volume
    for (side, limit, quantity, _entry, _rank), filled in zip(orders, fills, strict=True):
        assert 0 <= filled <= quantity
        assert not filled or (limit >= tick if side == BUY else limit <= tick)
        if volume and (limit > tick if side == BUY else limit < tick):
            others = [
                n
                for order, n in zip(orders, fills, strict=True)
                if order[0] == side and (order[1] < limit if side == BUY else order[1] > limit)
            ]
            assert filled == quantity or not any(others), "a worse limit traded before it"


@given(batches(), references, st.data())
def test_the_order_within_a_batch_changes_nothing(
    orders: list[Order], reference: int, data: st.DataObject
) -> None:
    places = data.draw(st.permutations(range(len(orders))))
    tick, volume, fills = told(clear(packed([orders[place] for place in places]), reference))
    assert (tick, volume, [fills[places.index(n)] for n in range(len(orders))]) == told(
        clear(packed(orders), reference)
    )


@given(batches(), references)
def test_doubling_all_prices_doubles_the_price_alone(orders: list[Order], reference: int) -> None:
    """Where both prices beside an order's are none of its own, the nearest may be between them."""
    found = packed(orders)
    on_ticks = {order[1] for order in orders} | {reference}
    before, after = (
        clear(found, reference),
        clear(replace(found, ticks=2 * found.ticks), 2 * reference),
    )
    assert after.volume == before.volume
    if before.tick in on_ticks:
        assert after.fills.tolist() == before.fills.tolist()


@given(batches(), references, st.data())
def test_raising_a_bid_never_lowers_its_fill(
    orders: list[Order], reference: int, data: st.DataObject
) -> None:
    fills = clear(packed(orders), reference).fills
    buys = [n for n, order in enumerate(orders) if order[0] == BUY]
    if not buys:
        return
    row = data.draw(st.sampled_from(buys))
    side, tick, quantity, entry, rank = orders[row]
    raised = list(orders)
    raised[row] = (side, tick + data.draw(st.integers(1, 5)), quantity, entry, rank)
    assert clear(packed(raised), reference).fills[row] >= fills[row]


@given(batches(), references, st.data())
def test_splitting_an_order_moves_at_most_one_unit(
    orders: list[Order], reference: int, data: st.DataObject
) -> None:
    """Of what everybody else has, pro rata."""
    large = [n for n, order in enumerate(orders) if order[2] > 1]
    if not large:
        return
    row = data.draw(st.sampled_from(large))
    side, tick, quantity, entry, rank = orders[row]
    part = data.draw(st.integers(1, quantity - 1))
    split = [*orders, (side, tick, quantity - part, entry, len(orders))]
    split[row] = (side, tick, part, entry, rank)
    before, after = (clear(packed(each), reference) for each in (orders, split))
    assert (after.tick, after.volume) == (before.tick, before.volume)
    moved = after.fills[: len(orders)] - before.fills
    moved[row] += after.fills[-1]
    assert abs(moved).max() <= 1
