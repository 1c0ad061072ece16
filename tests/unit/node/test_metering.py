"""What a job used, how far a voucher pays, which interval was missed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.units import GpuSeconds, TokenAmount
from node.metering import gpu_seconds, missed_at, missed_intervals, paid_seconds

caps = st.integers(1, 2**48 - 1).map(TokenAmount)
durations = st.integers(1, 2**24 - 1)


def test_begun_seconds_count_on_every_gpu() -> None:
    assert gpu_seconds(2, 1_000, 2_001) == GpuSeconds(4)
    assert gpu_seconds(2, 1_000, 1_000) == GpuSeconds(0)
    assert gpu_seconds(2, 2_000, 1_000) == GpuSeconds(0), "a clock that stepped back earns nothing"


@given(caps, durations, st.data())
def test_a_voucher_pays_exactly_the_seconds_that_it_was_signed_for(
    cap: TokenAmount, duration: int, data: st.DataObject
) -> None:
    signed_for = data.draw(st.integers(0, duration))
    amount = accrued(cap, signed_for, duration)
    paid_s = paid_seconds(amount, cap, duration)
    assert signed_for <= paid_s <= duration, "rounding never costs the buyer a second"
    assert accrued(cap, paid_s, duration) <= amount, "nor gives one away"
    if paid_s < duration:
        assert accrued(cap, paid_s + 1, duration) > amount


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 600), st.integers(0, 10**8))
def test_an_interval_is_missed_when_it_is_over(
    paid_s: int, started_at: int, interval_s: int, now: int
) -> None:
    missed = missed_intervals(paid_s, started_at, interval_s, now)
    assert missed >= 0
    assert missed_at(paid_s, started_at, interval_s, missed + 1) > now
    if missed:
        assert missed_at(paid_s, started_at, interval_s, missed) <= now
