"""Seconds to slots, at every edge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market.kernel.grid import Grid

HOURS = Grid(begins=1_000, width_s=3_600, slots=4)


@pytest.mark.parametrize(
    ("at", "first", "last", "whole"),
    [
        (0, 0, -1, 0),
        (999, 0, -1, 0),
        (1_000, 0, 0, 0),
        (1_001, 1, 0, 0),
        (4_599, 1, 0, 0),
        (4_600, 1, 1, 1),
        (4_601, 2, 1, 1),
        (11_800, 3, 3, 3),
        (11_801, 4, 3, 3),
        (15_400, 4, 3, 4),
        (99_999, 4, 3, 4),
    ],
)
def test_an_instant_has_its_slots(at: int, first: int, last: int, whole: int) -> None:
    assert (HOURS.first_from(at), HOURS.last_by(at), HOURS.whole_until(at)) == (first, last, whole)


@pytest.mark.parametrize(("duration", "slots"), [(1, 1), (3_600, 1), (3_601, 2), (14_400, 4)])
def test_a_duration_is_rounded_up(duration: int, slots: int) -> None:
    assert HOURS.needed(duration) == slots


@given(st.integers(0, 30_000), st.integers(0, 30_000), st.integers(1, 20_000))
def test_what_fits_in_slots_fits_in_seconds(opens: int, ends: int, duration: int) -> None:
    start, slots = HOURS.first_from(opens), HOURS.needed(duration)
    if start + slots <= HOURS.whole_until(ends):
        assert opens <= HOURS.second(start)
        assert HOURS.second(start) + duration <= ends


@pytest.mark.parametrize("change", [{"width_s": 0}, {"slots": 0}])
def test_a_grid_has_slots(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))}: found 0, needed 1 or more"):
        Grid(**{"begins": 0, "width_s": 1, "slots": 1, **change})
