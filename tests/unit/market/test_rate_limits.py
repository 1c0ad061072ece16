"""Token buckets: never more than the limit says, whatever the order and the keys."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market.rate_limits import RateLimit, TokenBuckets, bucket_of, client_address

NOW = 1_800_000_000_000


def buckets(per_s: int, burst: int, keys_max: int = 100) -> TokenBuckets:
    return TokenBuckets(RateLimit(name="test", per_s=per_s, burst=burst), keys_max)


def test_a_burst_then_so_many_a_second_and_it_says_how_long_to_wait() -> None:
    found = buckets(10, 20)
    assert [found.take("ada", 1, NOW) for _ in range(21)] == [0] * 20 + [100]
    assert found.take("ada", 1, NOW + 99) == 1
    assert found.take("ada", 1, NOW + 100) == 0
    assert found.take("eve", 20, NOW) == 0, "each has its own"
    assert found.take("ada", 5, NOW + 600) == 0
    assert found.take("ada", 1, NOW + 600) == 100


def test_no_limit_takes_all_and_remembers_nobody() -> None:
    found = buckets(0, 0)
    assert not any(found.take(number, 1_000, NOW) for number in range(1_000))
    assert len(found) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 12)), max_size=60),
    st.integers(1, 500),
    st.integers(1, 30),
)
def test_in_no_window_more_than_the_burst_and_the_rate_are_given(
    asked: list[tuple[int, int]], per_s: int, burst: int
) -> None:
    found, now, given_at = buckets(per_s, burst), NOW, []
    for later_ms, count in asked:
        now += later_ms
        wait_ms = found.take("ada", count, now)
        if wait_ms == 0:
            given_at.append((now, count))
        elif count <= burst:
            assert found.take("ada", count, now + wait_ms) == 0, "after the wait it is given"
            given_at.append((now := now + wait_ms, count))
    for first, (begin, _) in enumerate(given_at):
        total = 0
        for at, count in given_at[first:]:
            total += count
            assert total <= burst + (at - begin) * per_s / 1000 + 1


def test_a_flood_of_keys_holds_no_more_memory_and_shuts_nobody_known_out() -> None:
    found = buckets(1, 2, keys_max=50)
    assert found.take("known", 1, NOW) == 0
    for number in range(10_000):
        found.take(number, 1, NOW)
    assert len(found) <= 51
    assert found.take("known", 1, NOW) == 0
    assert found.take("newcomer", 1, NOW) > 0, "newcomers share a bucket meanwhile"
    assert found.take("newcomer", 1, NOW + 60_000) == 0
    assert len(found) <= 3, "what is full again is forgotten"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "6.6.6.6, 198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("10.0.0.1", "nonsense", "nonsense"),
        ("", "198.51.100.7", ""),
    ],
)
def test_only_a_trusted_proxy_says_for_whom_it_asks(peer: str, forwarded: str, client: str) -> None:
    assert client_address(peer, forwarded, (ip_network("10.0.0.0/8"),)) == client


def test_an_address_counts_by_what_one_client_has() -> None:
    assert bucket_of("192.0.2.1") != bucket_of("192.0.2.2")
    assert bucket_of("2001:db8::1") == bucket_of("2001:db8::ffff:1") != bucket_of("2001:db8:1::1")
    assert bucket_of("::ffff:192.0.2.1") == bucket_of("192.0.2.1")
    assert bucket_of("127.0.0.1") is bucket_of("::1") is None
    assert bucket_of("nonsense") == bucket_of("") == ""
