"""The forward curve: every series is met, shorter windows come first, gaps bend least."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.units import Price
from market.index.forward_curve import DAY_S, ClearedSeries, forward_curve

WEEK_S = 7 * DAY_S
FIRST = 2_600 * WEEK_S


def cleared(day: int, price: int, length: int = DAY_S, *, hour: int = 0) -> ClearedSeries:
    series = Series(
        product=1, window_start=FIRST + day * DAY_S + hour * 3600, window_seconds=length
    )
    return ClearedSeries(series=series, price=Price(price * 1_000), units=1)


def prices(*series: ClearedSeries) -> list[int]:
    return [point.per_hour.value for point in forward_curve(series)]


def test_nothing_cleared_is_no_curve() -> None:
    assert forward_curve(()) == ()


def test_a_day_alone_is_its_price_and_a_week_alone_is_flat() -> None:
    assert prices(cleared(0, 1_000)) == [1_000_000]
    assert prices(cleared(0, 1_000, WEEK_S)) == [1_000_000] * 7


def test_a_gap_between_two_days_is_a_straight_line_and_is_flagged() -> None:
    curve = forward_curve((cleared(0, 1_000), cleared(4, 2_000)))
    assert [point.per_hour.value for point in curve] == [
        1_000_000,
        1_250_000,
        1_500_000,
        1_750_000,
        2_000_000,
    ]
    assert [point.is_illiquid for point in curve] == [False, True, True, True, False]
    assert [point.day for point in curve] == [FIRST + n * DAY_S for n in range(5)]


def test_a_week_less_its_traded_days_is_what_the_rest_costs() -> None:
    curve = prices(cleared(0, 1_000, WEEK_S), cleared(2, 1_600))
    assert curve[2] == 1_600_000
    assert sum(curve) == pytest.approx(7_000_000, abs=4)


def test_hours_stand_for_their_day_unless_the_day_itself_cleared() -> None:
    hours = cleared(0, 900, 3_600), cleared(0, 1_500, 4 * 3_600, hour=4)
    assert prices(*hours) == [round((900_000 + 4 * 1_500_000) / 5)]
    assert prices(*hours, cleared(0, 1_000)) == [1_000_000]


@given(
    weeks=st.dictionaries(st.integers(0, 3), st.integers(500, 2_000), min_size=1),
    days=st.dictionaries(st.integers(0, 27), st.integers(900, 1_100), max_size=5),
)
def test_every_series_that_shorter_ones_do_not_cover_is_met(
    weeks: dict[int, int], days: dict[int, int]
) -> None:
    series = [cleared(7 * n, price, WEEK_S) for n, price in weeks.items()]
    series += [cleared(day, price) for day, price in days.items()]
    curve = {point.day: point.per_hour.value for point in forward_curve(series)}
    if min(curve.values()) == 0:  # days far above their week: the rest would be below zero
        return
    for each in series:
        start, length = each.series.window_start, each.series.window_seconds
        of = [curve[day] for day in range(start, start + length, DAY_S)]
        assert sum(of) / len(of) == pytest.approx(each.price.value, abs=1)
