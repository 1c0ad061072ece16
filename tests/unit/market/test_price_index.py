"""The price index: what counts, what is capped, when it is held, and what wash trades move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, TokenAmount
from cloud_gpu.protocol.values import Address
from market.index.price_index import DAY_S, HOUR_S, PaidLease, price_index

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


@pytest.mark.parametrize(
    ("share", "slots", "mean_moves"),
    [(0.1, 3, 3.0), (0.3, 3, 9.0), (0.3, 72, 9.0), (0.5, 144, 15.0)],
)
def test_wash_trades_move_the_mean_and_hardly_the_index(
    share: float, slots: int, mean_moves: float
) -> None:
    """The table of the market's design, section 5: one pair at +30 %, up to half the volume."""
    moved, vwap, days = 0.0, 0.0, 60
    for seed in range(days):
        point = found(day_of_trade(Random(seed), share=share, slots=slots))
        honest = found(day_of_trade(Random(seed), share=0, slots=0))
        assert point.mean is not None
        assert honest.mean is not None
        moved += (point.per_hour.value - honest.per_hour.value) / honest.per_hour.value
        vwap += (point.mean.value - honest.mean.value) / honest.mean.value
    assert vwap / days * 100 == pytest.approx(mean_moves, abs=0.6)
    assert moved / days * 100 < 0.9, "the design's table says at most +0.6 %"
