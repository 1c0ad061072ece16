"""The auction by example: each tie-break of the price and of the fills, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from market.kernel.auction import BUY, QUANTITY_MAX, SELL, TICKS, Orders, clear

Row = tuple[int, int, int, int, int]
"""Side, tick, quantity, entry batch, rank."""


def batch(*rows: Row) -> Orders:
    return Orders(*np.array(rows, np.int64).reshape(-1, 5).T.copy())


def cleared(*rows: Row, reference: int = 0) -> tuple[int, int, list[int]]:
    found = clear(batch(*rows), reference)
    return found.tick, found.volume, found.fills.tolist()


def test_nothing_crosses() -> None:
    assert cleared() == (-1, 0, [])
    assert cleared((BUY, 4, 1, 0, 0), (SELL, 5, 1, 0, 1)) == (-1, 0, [0, 0])
    assert cleared((BUY, 4, 1, 0, 0)) == (-1, 0, [0])


def test_the_price_trades_most() -> None:
    rows = ((BUY, 9, 5, 0, 0), (BUY, 5, 5, 0, 1), (SELL, 5, 8, 0, 2), (SELL, 9, 5, 0, 3))
    assert cleared(*rows, reference=9) == (5, 8, [5, 3, 8, 0])


def test_of_these_the_least_imbalance_then_the_nearest_to_the_reference_then_the_lowest() -> None:
    assert cleared((BUY, 9, 5, 0, 0), (SELL, 3, 5, 0, 1), (SELL, 7, 2, 0, 2), reference=9) == (
        6,
        5,
        [5, 5, 0],
    )
    pair = (BUY, 9, 5, 0, 0), (SELL, 3, 5, 0, 1)
    assert [cleared(*pair, reference=at)[0] for at in (0, 6, 20)] == [3, 6, 9]
    equal = (BUY, 4, 1, 0, 0), (BUY, 6, 1, 0, 1), (SELL, 4, 1, 0, 2), (SELL, 6, 1, 0, 3)
    assert cleared(*equal, reference=5)[0] == 5
    apart = (BUY, 4, 1, 0, 0), (BUY, 5, 1, 0, 1), (SELL, 4, 1, 0, 2), (SELL, 5, 1, 0, 3)
    assert cleared(*apart, reference=9)[0] == 5
    assert cleared(*apart, reference=0)[0] == 4


def test_on_the_rationed_tick_the_older_entry_batch_is_first() -> None:
    rows = ((BUY, 5, 4, 1, 0), (BUY, 5, 4, 0, 1), (BUY, 6, 4, 2, 2), (SELL, 5, 9, 0, 3))
    assert cleared(*rows) == (5, 9, [1, 4, 4, 9])


def test_within_a_batch_shares_are_pro_rata_with_the_largest_remainder() -> None:
    rows = ((BUY, 5, 3, 0, 0), (BUY, 5, 3, 0, 1), (BUY, 5, 6, 0, 2), (SELL, 5, 5, 0, 3))
    assert cleared(*rows) == (5, 5, [1, 1, 3, 5])  # 1.25, 1.25, 2.5


def test_equal_remainders_go_to_the_least_rank() -> None:
    rows = ((SELL, 5, 3, 0, 7), (SELL, 5, 3, 0, 2), (SELL, 5, 3, 0, 5), (BUY, 5, 4, 0, 1))
    assert cleared(*rows) == (5, 4, [1, 2, 1, 4])


def test_the_greatest_quantities_and_ticks_are_exact() -> None:
    most = QUANTITY_MAX // 3 - 1  # odd
    rows = (
        (BUY, TICKS - 1, most, 0, 0),
        (BUY, TICKS - 1, most, 0, 1),
        (SELL, 0, most, 0, 2),
    )
    assert cleared(*rows, reference=TICKS) == (TICKS - 1, most, [most // 2 + 1, most // 2, most])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((2, 5, 1, 0, 1), "sides: found 2, needed 0 to 1"),
        ((-1, 5, 1, 0, 1), "sides: found -1"),
        ((BUY, -1, 1, 0, 1), "ticks: found -1, needed 0 to 262143"),
        ((BUY, TICKS, 1, 0, 1), "ticks: found 262144"),
        ((BUY, 5, 0, 0, 1), "quantities: found 0, needed 1"),
        ((BUY, 5, 1 << 31, 0, 1), "quantities: found 2147483648"),
        ((BUY, 5, QUANTITY_MAX, 0, 1), "total of quantities: found 2147483648"),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused(row: Row, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clear(batch((SELL, 5, 1, 0, 0), row), 0)


@pytest.mark.parametrize("field", Orders.__slots__)
def test_fields_of_another_form_are_refused(field: str) -> None:
    orders = batch((SELL, 5, 1, 0, 0), (BUY, 5, 1, 0, 1))
    column = getattr(orders, field)
    for wrong in (column.astype(np.float64), column[:1], np.repeat(column, 2)[::2]):
        with pytest.raises(ValueError, match=r"needed \d contiguous int64"):
            clear(replace(orders, **{field: wrong}), 0)
