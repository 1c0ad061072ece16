"""The compiled ladder against the naive book: same codes, same fills, same best prices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._naive_ladder import NaiveLadder
from market.kernel.ladder import BUY, QUANTITY_MAX, REQUEST, SELL, TICKS, Ladder

CAPACITY = 20

# Few near ticks meet; the far ones cross words and levels of the tree.
ticks = st.one_of(
    st.integers(100, 104),
    st.sampled_from((0, 63, 64, 4_095, 4_096, TICKS - 1, TICKS, 2**32 - 1)),
)
quantities = st.one_of(st.integers(0, 9), st.sampled_from((QUANTITY_MAX - 1, QUANTITY_MAX)))
requests = st.tuples(
    st.sampled_from((0, 0, 0, 1, 1, 2)),
    st.integers(0, CAPACITY + 1),
    st.sampled_from((BUY, SELL, BUY, SELL, 2)),
    ticks,
    quantities,
)


@given(st.lists(requests, max_size=60))
def test_a_batch_does_what_the_naive_book_does(
    found: list[tuple[int, int, int, int, int]],
) -> None:
    book, twin = Ladder(CAPACITY), NaiveLadder(CAPACITY)
    fills, codes = book.run(np.array(found, REQUEST))
    assert codes.tolist() == twin.run(found)
    assert fills.tolist() == twin.fills
    assert [book.best(side) for side in (BUY, SELL)] == [twin.best(s) for s in (BUY, SELL)]


@given(st.lists(requests, max_size=40))
def test_single_calls_do_what_a_batch_does(found: list[tuple[int, int, int, int, int]]) -> None:
    book, twin = Ladder(CAPACITY), NaiveLadder(CAPACITY)
    for kind, order, side, tick, quantity in found:
        if kind == 0:
            before = len(twin.fills)
            count = book.place(order, side, tick, quantity)
            assert count == twin.place(order, side, tick, quantity)
            told = [word for fill in twin.fills[before:] for word in fill]
            assert book.last_fills(max(0, count)) == told
        else:
            assert book.cancel(order) == twin.cancel(order)
        assert book.best(side & 1) == twin.best(side & 1)
