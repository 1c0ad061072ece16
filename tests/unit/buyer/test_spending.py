"""Vouchers, nonces and escrow: what a buyer may promise. Examples and properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.bidding import make_bids
from cloud_gpu.protocol.errors import FundsTooSmall
from cloud_gpu.protocol.lease import LeaseTerms
from cloud_gpu.protocol.ports import AccountView
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.units import GpuSeconds, Price, TokenAmount, cost_down, cost_up
from cloud_gpu.spending import Promises, Tab, escrow_of, price_of, quote, require_funds
from cloud_gpu.testing.world import BUYER
from tests.unit.buyer.builders import CAP, LEASE, MARKET, PRODUCT, T0, purse, request


def tab(cap: int = CAP.value, duration: int = 600, interval: int = 2) -> Tab:
    terms = LeaseTerms(
        key=LEASE,
        buyer=BUYER.address,
        cap=TokenAmount(cap),
        duration=duration,
        start_deadline=T0 + 20,
        market_id=1,
        opened_at=T0,
    )
    return Tab(terms, T0, interval)


def account(cash: int = 10**9, base: int = 0, bits: int = 0) -> AccountView:
    return AccountView(id=1, cash=TokenAmount(cash), nonce_base=base, nonce_bits=bits)


@given(
    cap=st.integers(0, 2**48 - 1),
    duration=st.integers(1, 2**24 - 1),
    interval=st.integers(1, 3_600),
    steps=st.lists(st.integers(0, 10_000), max_size=30),
)
def test_vouchers_never_fall_never_pass_the_cap_nor_run_more_than_an_interval_ahead(
    cap: int, duration: int, interval: int, steps: list[int]
) -> None:
    held, at, before = tab(cap, duration, interval), T0, TokenAmount(0)
    for step in steps:
        at += step
        raised = held.raise_to_due(at)
        assert raised is None or raised == held.promised
        assert before <= held.promised <= TokenAmount(cap)
        assert held.promised <= accrued(TokenAmount(cap), at - T0 + interval, duration)
        assert held.promised >= accrued(TokenAmount(cap), at - T0, duration)
        before = held.promised


@given(at=st.integers(T0, T0 + 700), interval=st.integers(1, 60))
def test_the_next_voucher_is_due_within_an_interval(at: int, interval: int) -> None:
    held = tab(interval=interval)
    held.raise_to_due(at)
    due = held.next_due_at(at)
    if due is None:
        assert held.promised == CAP
    else:
        assert at < due <= at + interval
        assert held.raise_to_due(due - 1) is None
        assert held.raise_to_due(due) is not None or held.promised == CAP


def test_a_time_before_the_start_promises_one_interval() -> None:
    held = tab()
    assert held.raise_to_due(T0 - 50) == accrued(CAP, 2, 600)


@given(price=st.integers(1, 10**6).map(lambda n: n * 1_000), seconds=st.integers(1, 10**8))
def test_the_price_of_a_cap_is_the_price_that_locked_it_or_a_tick_less(
    price: int, seconds: int
) -> None:
    cap = cost_down(Price(price), GpuSeconds(seconds))
    found = price_of(cap, GpuSeconds(seconds))
    assert found <= Price(price)
    assert cost_down(found, GpuSeconds(seconds)) == cap


def test_a_quote_never_falls_short_of_what_is_locked() -> None:
    price = Price(1_001_000)
    assert quote(price, 1, 1) == cost_up(price, GpuSeconds(1))
    assert quote(price, 3, 7) >= cost_down(price, GpuSeconds(21))


# Nonces.


@given(base=st.integers(0, 1_000), bits=st.integers(0, 2**128 - 2), draw=st.integers(0, 2**32))
def test_a_chosen_nonce_is_free_on_chain(base: int, bits: int, draw: int) -> None:
    found = account(base=base, bits=bits)
    nonce = Promises().free_nonce(found, draw)
    assert found.nonce_is_free(nonce)
    assert base <= nonce <= base + 128


def test_nonces_of_live_bids_are_left_alone() -> None:
    promises, taken = Promises(), set()
    for draw in range(128):
        nonce = promises.free_nonce(account(), draw)
        assert nonce not in taken
        taken.add(nonce)
        promises.add([bid.bid.payload for bid in bids(nonce)])
    with pytest.raises(ValueError, match="128"):
        promises.free_nonce(account(), 0)


def test_a_full_window_slides_when_nothing_of_ours_is_in_it() -> None:
    assert Promises().free_nonce(account(base=5, bits=2**128 - 1), 7) == 133


def bids(nonce: int = 0, **words: object):  # type: ignore[no-untyped-def]
    return make_bids(request(**words), [(PRODUCT, 2)], MARKET, purse(), nonce=nonce, at=T0)


# Escrow.


def test_live_bids_count_against_the_vault_until_they_expire_or_open() -> None:
    promises = Promises()
    first, second = bids(0), bids(1)
    each = escrow_of(first[0].bid.payload)
    assert each == quote(Price(2_000_000), 2, 600)
    promises.add([bid.bid.payload for bid in first])
    assert promises.escrow == each
    cash = 2 * each.value - 1
    with pytest.raises(FundsTooSmall, match=f"the vault of {BUYER.address} is too small") as short:
        require_funds(account(cash), promises, [bid.bid.payload for bid in second])
    assert (short.value.needed, short.value.have) == (each.value, each.value - 1)
    promises.expire(T0 + 60)
    assert promises.escrow == each, "it may still open in its last second"
    promises.expire(T0 + 61)
    assert promises.escrow == TokenAmount(0)
    require_funds(account(cash), promises, [bid.bid.payload for bid in second])


def test_of_alternatives_only_the_dearest_counts() -> None:
    promises = Promises()
    cheap, dear = bids(4), bids(4, max_price="4.00")
    promises.add([bid.bid.payload for bid in (*cheap, *dear)])
    assert promises.escrow == quote(Price(4_000_000), 2, 600)
    promises.drop(4)
    assert promises.escrow == TokenAmount(0)


def test_more_promised_than_held_leaves_nothing_free() -> None:
    promises = Promises()
    promises.add([bid.bid.payload for bid in bids(0)])
    with pytest.raises(FundsTooSmall) as short:
        require_funds(account(1), promises, [bid.bid.payload for bid in bids(1)])
    assert short.value.have == 0
