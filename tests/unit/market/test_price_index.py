"""The price index: what counts, what is capped, when it is held, and what wash trades move."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, TokenAmount
from cloud_gpu.protocol.values import Address
from market.index.price_index import DAY_S, HOUR_S, PaidLease, price_index

Weighed = tuple[PaidLease, float]
CLASS = GpuClass("A100-SXM4-80GB")
NOON = 1_800_000_000 // DAY_S * DAY_S + 12 * HOUR_S


def account(number: int) -> Address:
    return Address(number.to_bytes(20, "big"))


def lease(price: int, *, by: int = 1, hours: int = 1, ago_h: float = 0.5) -> PaidLease:
    return PaidLease(
        gpu_class=CLASS,
        provider=account(1_000 + by),
        buyer=account(2_000 + by),
        per_hour=TokenAmount(price * 1_000),
        quantity=GpuSeconds(hours * HOUR_S),
        ended_at=NOON - int(ago_h * HOUR_S),
    )


def found(leases: Sequence[PaidLease], **other: object) -> IndexPoint:
    point = price_index(CLASS, leases, at=NOON, **other)  # type: ignore[arg-type]
    assert point is not None
    return point


def test_five_pairs_make_an_index_and_four_do_not() -> None:
    five = [lease(100 + n, by=n) for n in range(5)]
    assert found(five).per_hour == TokenAmount(102_000)
    assert not found(five).is_stale
    assert price_index(CLASS, five[:4], at=NOON) is None
    again = [*five[:4], lease(500, by=0)]
    assert price_index(CLASS, again, at=NOON) is None, "a pair counts once, however often it trades"


def test_hours_count_alike_however_much_was_traded_in_one() -> None:
    busy = [lease(300, by=n, ago_h=0.5) for n in range(20)]
    quiet = [lease(100, by=30, ago_h=1.5), lease(120, by=31, ago_h=2.5)]
    assert found([*busy, *quiet]).per_hour == TokenAmount(120_000)


def test_only_the_class_and_the_last_day_count() -> None:
    day = [lease(100, by=n) for n in range(5)]
    old = [lease(900, by=10 + n, ago_h=24.01) for n in range(5)]
    other = [replace(lease(900, by=20 + n), gpu_class=GpuClass("H100")) for n in range(5)]
    point = found([*day, *old, *other, replace(lease(900, by=40), ended_at=NOON)])
    assert (point.per_hour, point.pairs) == (TokenAmount(100_000), 5)


def test_a_pair_counts_for_a_twentieth_at_most() -> None:
    crowd = [lease(100, by=n) for n in range(30)]
    whale = [lease(200, by=99, hours=40)]
    point = found([*crowd, *whale])
    assert point.per_hour == TokenAmount(100_000)
    assert point.mean == TokenAmount((30 * 100 + 40 * 200) * 1_000 // 70)
    assert point.concentration == BasisPoints(40 * 10_000 // 70)
    assert point.quantity == GpuSeconds(70 * HOUR_S)


def test_with_too_few_pairs_the_last_index_is_held_and_follows_the_book_slowly() -> None:
    before = found([lease(1_000, by=n) for n in range(5)])
    later, few = NOON + DAY_S // 2, [lease(9_000)]
    held = price_index(CLASS, few, at=later, before=before)
    assert held is not None
    assert (held.per_hour, held.is_stale, held.mean) == (
        before.per_hour,
        True,
        TokenAmount(9_000_000),
    )
    for middle, expected in ((2_000_000, 1_025_000), (500_000, 975_000), (1_010_000, 1_010_000)):
        point = price_index(CLASS, [], at=later, before=before, middle=TokenAmount(middle))
        assert point is not None
        assert (point.per_hour, point.mean, point.pairs) == (TokenAmount(expected), None, 0)


def day_of_trade(random: Random, *, share: float, slots: int) -> list[PaidLease]:
    """144 ten-minute batches of a thin market, and one pair that trades with itself at +30 %."""
    trades: list[tuple[float, float, int, int]] = []
    for batch in range(144):
        for _ in range(_poisson(random, 1.5)):
            price, weight = math.exp(random.gauss(0, 0.04)), random.lognormvariate(3, 1)
            trades.append((price, weight, batch, random.randrange(40)))
    if share:
        volume = sum(weight for _, weight, _, _ in trades) * share / (1 - share)
        trades += [(1.3, volume / slots, batch, 99) for batch in random.sample(range(144), slots)]
    return [
        PaidLease(
            gpu_class=CLASS,
            provider=account(1_000 + who),
            buyer=account(2_000 + who),
            per_hour=TokenAmount(round(price * 10**4) * 1_000),
            quantity=GpuSeconds(max(1, round(weight * HOUR_S))),
            ended_at=NOON - DAY_S + 600 * batch,
        )
        for price, weight, batch, who in trades
    ]


def _poisson(random: Random, mean: float) -> int:
    count, product, limit = 0, random.random(), math.exp(-mean)
    while product > limit:
        count, product = count + 1, product * random.random()
    return count


def measures(leases: Sequence[PaidLease]) -> dict[str, float]:
    """Ours, and those that it is compared with; base units a GPU-hour."""
    whole = sum(each.quantity.value for each in leases)
    of_pair = Counter[Address]()
    for each in leases:
        of_pair[each.buyer] += each.quantity.value
    capped = [
        (each, each.quantity.value * min(1, whole / 20 / of_pair[each.buyer])) for each in leases
    ]
    plain = [(each, float(each.quantity.value)) for each in leases]
    batches = [average(rows) for rows in parts(plain, 600)]
    hours = [median(rows) for rows in parts(plain, HOUR_S)]
    return {
        "VWAP": average(plain),
        "TWAP of batch VWAPs": statistics.mean(batches),
        "mean of hourly medians": statistics.mean(hours),
        "median of hourly medians": statistics.median(hours),
        "VWAP with 5 % cap": average(capped),
        "ours": float(found(leases).per_hour.value),
    }


def parts(rows: Sequence[Weighed], seconds: int) -> list[list[Weighed]]:
    """Of the day, in which something was traded."""
    slots: dict[int, list[Weighed]] = {}
    for lease, weight in rows:
        slots.setdefault((NOON - 1 - lease.ended_at) // seconds, []).append((lease, weight))
    return list(slots.values())


def average(rows: Sequence[Weighed]) -> float:
    return sum(lease.per_hour.value * w for lease, w in rows) / sum(w for _, w in rows)


def median(rows: Sequence[Weighed]) -> float:
    half, reached = sum(weight for _, weight in rows) / 2, 0.0
    for lease, weight in sorted(rows, key=lambda row: row[0].per_hour.value):
        reached += weight
        if reached >= half:
            return lease.per_hour.value
    raise AssertionError("nothing was traded")


ATTACKS = ((0.1, 3), (0.3, 3), (0.3, 72), (0.5, 144))
"""A pair's share of the day's volume, and the ten minutes in which it trades with itself."""
MOVED = {
    "VWAP": (3.1, 9.0, 9.1, 15.0),
    "TWAP of batch VWAPs": (0.8, 0.8, 10.6, 19.4),
    "mean of hourly medians": (2.1, 3.6, 5.9, 18.8),
    "median of hourly medians": (0.4, 0.4, 2.6, 27.0),
    "VWAP with 5 % cap": (1.7, 2.1, 2.1, 2.8),
    "ours": (0.3, 0.3, 0.4, 0.6),
}
"""Percent, by attack: the table of the market's design, section 5."""


@pytest.mark.parametrize("attack", range(len(ATTACKS)))
def test_wash_trades_move_what_they_move_in_the_designs_table_and_hardly_the_index(
    attack: int,
) -> None:
    share, slots = ATTACKS[attack]
    moved, days = dict.fromkeys(MOVED, 0.0), 60
    for seed in range(days):
        honest = measures(day_of_trade(Random(seed), share=0, slots=0))
        washed = measures(day_of_trade(Random(seed), share=share, slots=slots))
        for name in MOVED:
            moved[name] += (washed[name] / honest[name] - 1) * 100 / days
    expected = {name: figures[attack] for name, figures in MOVED.items()}
    assert moved == pytest.approx(expected, rel=0.1, abs=0.5)
    assert moved["ours"] < 0.9
