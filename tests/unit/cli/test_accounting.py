"""Leases followed through their events, and balances explained by them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.accounting import Books, Holding, LeaseLife, explain, lease_lives
from cloud_gpu.protocol import chain_events as ev
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import Address, Digest

PROVIDER, BUYER, OPERATOR = (Address(bytes([n]) * 20) for n in (1, 2, 3))
MACHINE = MachineKey(provider=PROVIDER, index=0)
KEY = LeaseKey(provider=PROVIDER, index=0, seq=1)
CAP = TokenAmount(1_000_000)


def tables(gpus: int = 2) -> list[ev.ChainEvent]:
    return [
        ev.ProductRegistered(
            product=7,
            gpu_class=GpuClass("A100-SXM4-40GB"),
            slice_gpus=gpus,
            region_group="",
            min_bond=BasisPoints(0),
            notice=0,
            penalty=BasisPoints(0),
            flags=0,
        ),
        ev.MarketRegistered(market_id=1, account=OPERATOR, fee=BasisPoints(100)),
        ev.MachineAdded(machine=MACHINE, product=7, bond=TokenAmount(0)),
    ]


def opened(cap: TokenAmount = CAP, duration: int = 600) -> ev.LeaseOpened:
    terms = LeaseTerms(
        key=KEY,
        buyer=BUYER,
        cap=cap,
        duration=duration,
        start_deadline=110,
        market_id=1,
        opened_at=100,
    )
    return ev.LeaseOpened(terms=terms, bid=Digest(bytes(32)), at=100, transaction=Digest(bytes(32)))


def closed(paid: int, reason: LeaseEndReason) -> ev.LeaseClosed:
    return ev.LeaseClosed(lease=KEY, reason=reason, paid=TokenAmount(paid), at=200)


def only(events: list[ev.ChainEvent]) -> LeaseLife:
    (life,) = lease_lives(events)
    return life


def test_a_lease_that_ran_is_paid_charged_a_fee_and_refunded() -> None:
    started = ev.LeaseStarted(lease=KEY, started_at=103, at=104)
    life = only([*tables(), opened(), started, closed(300_000, LeaseEndReason.STOPPED)])
    assert (life.started_at, life.closed_at, life.reason) == (103, 200, LeaseEndReason.STOPPED)
    assert (life.paid, life.fee, life.refund) == (
        TokenAmount(300_000),
        TokenAmount(3_000),
        TokenAmount(700_000),
    )


def test_the_fee_of_a_lease_settled_in_parts_is_the_sum_of_floors() -> None:
    parts = [
        ev.LeaseSettled(lease=KEY, paid=TokenAmount(199), at=150),
        ev.LeaseSettled(lease=KEY, paid=TokenAmount(398), at=160),
    ]
    life = only([*tables(), opened(), *parts, closed(597, LeaseEndReason.STOPPED)])
    assert life.fee == TokenAmount(3)  # 1 + 1 + 1; of 597 at once it would be 5


def test_a_provider_that_did_not_show_up_pays_and_takes_no_fee() -> None:
    penalty = ev.PenaltyPaid(lease=KEY, amount=TokenAmount(500_000), at=200)
    life = only([*tables(), opened(), penalty, closed(0, LeaseEndReason.PROVIDER_NO_SHOW)])
    assert (life.paid.value, life.fee.value, life.refund, life.penalty) == (
        0,
        0,
        CAP,
        TokenAmount(500_000),
    )


def test_a_buyer_that_did_not_show_up_owes_no_fee() -> None:
    life = only([*tables(), opened(), closed(500_000, LeaseEndReason.BUYER_NO_SHOW)])
    assert (life.paid.value, life.fee.value) == (500_000, 0)


@given(
    ticks=st.integers(1, 10**6),
    gpus=st.integers(1, 16),
    duration=st.integers(4, 10**6),
)
def test_the_price_is_recovered_from_the_cap(ticks: int, gpus: int, duration: int) -> None:
    price = Price(ticks * 1_000)
    cap = cost_down(price, GpuSeconds(gpus * duration))
    assert only([*tables(gpus), opened(cap, duration)]).price == price


def books(cash: dict[Address, int], *, held: int | None = None) -> Books:
    holdings = {
        account: Holding(wallet=5, cash=amount, bond=10, escrow=0)
        for account, amount in cash.items()
    }
    owed = sum(h.cash + h.bond for h in holdings.values())
    return Books(block=1, holdings=holdings, held=owed if held is None else held)


def test_every_change_is_explained_by_the_leases() -> None:
    before = books({PROVIDER: 100_000, BUYER: 2_000_000, OPERATOR: 0})
    after = books({PROVIDER: 397_000, BUYER: 1_700_000, OPERATOR: 3_000})
    life = only([*tables(), opened(), closed(300_000, LeaseEndReason.STOPPED)])
    changes = {c.account: c for c in explain(before, after, [life], {1: OPERATOR})}
    assert changes[BUYER].why == (("paid for leases", -300_000),)
    assert changes[PROVIDER].why == (("earned from leases", 297_000),)
    assert changes[OPERATOR].why == (("fees", 3_000),)
    assert [c.unexplained for c in changes.values()] == [0, 0, 0]
    assert sum(c.difference for c in changes.values()) == 0


def test_what_no_lease_explains_is_shown() -> None:
    before = books({BUYER: 100})
    after = books({BUYER: 99})
    (change,) = explain(before, after, [], {})
    assert (change.difference, change.unexplained) == (-1, -1)


@pytest.mark.parametrize("missing", [1, -1])
def test_a_contract_that_holds_less_or_more_than_it_owes_is_seen(missing: int) -> None:
    sound = books({BUYER: 100})
    assert sound.difference == 0
    assert replace(sound, held=sound.held + missing).difference == missing
