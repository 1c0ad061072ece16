"""The forward curve of a product: a price for each coming day, read off the futures that cleared.

Information only. Windows that overlap are taken apart, the shorter one first: a week less the days
that traded is what the rest of it costs. Where that leaves a choice, the curve bends and climbs as
little as it can: least sum of squared second and first differences. Second differences alone (the
market's design, section 5) would draw a line through a dear day and its week that ends below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.price_reports import CurvePoint
from cloud_gpu.protocol.units import Price, TokenAmount

DAY_S: Final = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearedSeries:
    """What a series cost when it last cleared."""

    series: Series
    price: Price
    units: int
    """Machines that changed hands at that price."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Days, and what one of them costs in the mean: what one series adds to the shorter ones."""

    days: tuple[int, ...]
    mean: float


def forward_curve(cleared: Sequence[ClearedSeries]) -> tuple[CurvePoint, ...]:
    """Daily prices from the first to the last window's day; empty: nothing cleared.

    All series are of one product. Every series that shorter ones do not cover wholly is met by the
    mean of its days, to the base unit's rounding; a series that they do cover says nothing new.
    """
    if not cleared:
        return ()
    blocks = _blocks(cleared)
    days = [day for block in blocks for day in block.days]
    first, last = min(days), max(days)
    prices = _least_bent(blocks, first, (last - first) // DAY_S + 1)
    traded = {block.days[0] for block in blocks if len(block.days) == 1}
    return tuple(
        CurvePoint(
            day=(day := first + place * DAY_S),
            per_hour=TokenAmount(max(0, round(float(price)))),
            is_illiquid=day not in traded,
        )
        for place, price in enumerate(prices)
    )


def _blocks(cleared: Sequence[ClearedSeries]) -> list[_Block]:
    """The series without overlaps: windows below a day first, as means of their day."""
    means = _days_of_hours([each for each in cleared if each.series.window_seconds < DAY_S])
    whole = [each for each in cleared if each.series.window_seconds >= DAY_S]
    own_days = {e.series.window_start for e in whole if e.series.window_seconds == DAY_S}
    taken: dict[int, float] = {day: mean for day, mean in means.items() if day not in own_days}
    blocks = [_Block((day,), mean) for day, mean in sorted(taken.items())]
    order = sorted(whole, key=lambda e: (e.series.window_seconds, e.series.window_start))
    for each in order:
        start, length = each.series.window_start, each.series.window_seconds
        days = range(start, start + length, DAY_S)
        free = tuple(day for day in days if day not in taken)
        if not free:
            continue
        known = sum(taken[day] for day in days if day in taken)
        mean = (each.price.value * len(days) - known) / len(free)
        taken.update(dict.fromkeys(free, mean))
        blocks.append(_Block(free, mean))
    return blocks


def _days_of_hours(cleared: Sequence[ClearedSeries]) -> dict[int, float]:
    """Of each day in which only parts of it cleared: their mean by machine-hours."""
    sums: dict[int, tuple[int, int]] = {}
    for each in cleared:
        day = each.series.window_start // DAY_S * DAY_S
        weight = each.units * each.series.window_seconds
        value, of = sums.get(day, (0, 0))
        sums[day] = value + each.price.value * weight, of + weight
    return {day: value / of for day, (value, of) in sums.items() if of}


def _least_bent(blocks: Sequence[_Block], first: int, days: int) -> npt.NDArray[np.float64]:
    """Minimise |D2 f|^2 + |D1 f|^2 where each block's mean is met: one linear system."""
    bends = np.diff(np.eye(days), n=2, axis=0)
    slopes = np.diff(np.eye(days), n=1, axis=0)
    meets = np.zeros((len(blocks), days))
    for row, block in enumerate(blocks):
        for day in block.days:
            meets[row, (day - first) // DAY_S] = 1 / len(block.days)
    size = days + len(blocks)
    system = np.zeros((size, size))
    system[:days, :days] = bends.T @ bends + slopes.T @ slopes
    system[days:, :days], system[:days, days:] = meets, meets.T
    wanted = np.concatenate([np.zeros(days), [block.mean for block in blocks]])
    return np.linalg.solve(system, wanted)[:days]
