"""Rates, freshness, bans and turns: bounded tables, time as an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.adapters.admission import Conduct, Freshness, TokenBuckets, Turns

SECOND = 10**9


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    buckets = TokenBuckets(rate_s=2, burst=3)
    assert [buckets.take(b"a", 0) for _ in range(4)] == [True, True, True, False]
    assert buckets.wait_s(b"a", 0) == pytest.approx(0.5)
    assert buckets.take(b"b", 0)
    assert [buckets.take(b"a", 0.5), buckets.take(b"a", 0.5)] == [True, False]
    assert [buckets.take(b"a", 100) for _ in range(4)] == [True, True, True, False]


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60))
def test_no_schedule_takes_more_than_burst_and_rate_allow(times: list[float]) -> None:
    buckets = TokenBuckets(rate_s=3, burst=5)
    taken = sum(buckets.take(b"a", at) for at in sorted(times))
    assert taken <= 5 + 3 * (max(times) - min(times)) + 1e-6


def test_a_clock_that_steps_back_gives_nothing() -> None:
    buckets = TokenBuckets(rate_s=1, burst=1)
    assert buckets.take(b"a", 10)
    assert not buckets.take(b"a", 5)


def test_invented_keys_push_out_the_idle_and_not_grow_the_table() -> None:
    buckets = TokenBuckets(rate_s=1, burst=1, keys_max=2)
    for key in (b"a", b"b", b"a", b"c"):
        buckets.take(key, 0)
    assert not buckets.take(b"a", 0)  # kept: it was used after b
    assert buckets.take(b"b", 0)  # forgotten


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_bucket_that_never_gives_is_a_mistake(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="positive rate"):
        TokenBuckets(rate_s=rate, burst=burst)


def test_what_is_far_older_than_its_originators_newest_is_stale() -> None:
    fresh = Freshness(behind_s=100, skew_s=1_000)
    assert fresh.is_fresh(b"a", 500 * SECOND, 500 * SECOND)
    assert fresh.is_fresh(b"a", 401 * SECOND, 500 * SECOND)
    assert not fresh.is_fresh(b"a", 399 * SECOND, 500 * SECOND)
    assert fresh.is_fresh(b"b", 399 * SECOND, 500 * SECOND)


def test_a_stale_one_does_not_move_the_newest() -> None:
    fresh = Freshness(behind_s=100, skew_s=1_000)
    assert fresh.is_fresh(b"a", 500 * SECOND, 500 * SECOND)
    assert not fresh.is_fresh(b"a", 300 * SECOND, 500 * SECOND)
    assert not fresh.is_fresh(b"a", 350 * SECOND, 500 * SECOND)


@pytest.mark.parametrize("offset_s", [-1_001, 1_001])
def test_what_is_far_from_our_clock_is_stale(offset_s: int) -> None:
    fresh = Freshness(behind_s=100, skew_s=1_000)
    assert not fresh.is_fresh(b"a", (5_000 + offset_s) * SECOND, 5_000 * SECOND)


def test_a_few_strikes_ban_for_a_while() -> None:
    conduct = Conduct(strikes_max=3, window_s=10, ban_s=20)
    assert [conduct.strike("a", at) for at in (0, 1)] == [False, False]
    assert not conduct.is_banned("a", 1)
    assert conduct.strike("a", 2)
    assert conduct.is_banned("a", 21.9)
    assert not conduct.is_banned("a", 22)
    assert not conduct.is_banned("b", 2)


def test_strikes_that_are_long_ago_do_not_count() -> None:
    conduct = Conduct(strikes_max=2, window_s=10, ban_s=20)
    assert not conduct.strike("a", 0)
    assert not conduct.strike("a", 10)


def test_turns_are_bounded_for_one_and_for_all() -> None:
    turns = Turns(per_key=2, in_all=3)
    assert [turns.begin(key) for key in ("a", "a", "a", "b", "c")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    turns.end("a")
    assert turns.begin("c")
    for key in ("a", "b", "c"):
        turns.end(key)
    assert all(turns.begin("a") for _ in range(2))
