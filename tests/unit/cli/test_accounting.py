"""Leases followed through their events, and balances explained by them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.accounting import (
    BURN,
    AuditPayees,
    BatchLife,
    Books,
    Holding,
    LeaseLife,
    explain,
    lease_lives,
)
from cloud_gpu.protocol import chain_events as ev
from cloud_gpu.protocol.audit import BatchState, Opening
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import (
    LeaseEndReason,
    LeaseFlags,
    LeaseKey,
    LeaseTerms,
    MachineKey,
)
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import Address, Digest

PROVIDER, BUYER, OPERATOR, AUDITS = (Address(bytes([n]) * 20) for n in (1, 2, 3, 4))
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


def opened(cap: TokenAmount = CAP, duration: int = 600, flags: int = 0) -> ev.LeaseOpened:
    terms = LeaseTerms(
        key=KEY,
        buyer=BUYER,
        cap=cap,
        duration=duration,
        start_deadline=110,
        market_id=1,
        opened_at=100,
        flags=flags,
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


# ------------------------------------------------------------------------------- verified leases

PAID = 1_000


def held(
    *after: ev.ChainEvent, reason: LeaseEndReason = LeaseEndReason.STOPPED
) -> list[ev.ChainEvent]:
    """A verified lease that closed at `PAID`, and what came after."""
    return [*tables(), opened(flags=LeaseFlags.VERIFIED), closed(PAID, reason), *after]


def committed(value: int = PAID, batch_no: int = 0) -> ev.BatchCommitted:
    return ev.BatchCommitted(
        lease=KEY,
        batch_no=batch_no,
        root=Digest(bytes(32)),
        n=3,
        value=TokenAmount(value),
        locked=TokenAmount(20_000),
        at=300,
        block=9,
    )


def drawn() -> ev.BatchDrawn:
    return ev.BatchDrawn(lease=KEY, batch_no=0, seed=Digest(bytes(32)), at=310)


def accused(i: int) -> ev.SegmentAccused:
    opening = Opening(i=i, leaf=Digest(bytes(32)), weight=100_000, proof=())
    return ev.SegmentAccused(lease=KEY, batch_no=0, until=330, opening=opening, at=320)


def contested(i: int, refund: int) -> ev.AccusationContested:
    return ev.AccusationContested(lease=KEY, batch_no=0, i=i, refund=TokenAmount(refund), at=325)


def convicted(i: int, refund: int, fine: int) -> ev.SegmentConvicted:
    return ev.SegmentConvicted(
        bounty=TokenAmount(fine // 10),
        lease=KEY,
        batch_no=0,
        i=i,
        refund=TokenAmount(refund),
        fine=TokenAmount(fine),
        at=340,
    )


def finalised(
    state: BatchState,
    *,
    provider: int,
    market: int,
    audits: int = 0,
    buyer: int = 0,
    burnt: int = 0,
) -> ev.BatchFinalised:
    amounts = {"provider": provider, "market": market, "audits": audits}
    amounts |= {"buyer": buyer, "burnt": burnt}
    return ev.BatchFinalised(
        lease=KEY,
        batch_no=0,
        state=state,
        at=350,
        **{name: TokenAmount(amount) for name, amount in amounts.items()},
    )


def reasons(life: LeaseLife, *, audits: bool = True) -> dict[Address, dict[str, int]]:
    nothing = books(dict.fromkeys((PROVIDER, BUYER, OPERATOR, AUDITS), 0))
    bounties = sum(batch.bounties.value for batch in life.batches)
    after = replace(nothing, burnt=life.fines.value - bounties + life.forfeited.value)
    payees = {batch.key: AUDITS for batch in life.batches} if audits else {}
    changes = explain(
        nothing, after, [life], {1: OPERATOR}, AuditPayees(shares=payees, bounties=payees)
    )
    return {change.account: dict(change.why) for change in changes if change.why}


def batch_of(*after: ev.ChainEvent) -> BatchLife:
    (batch,) = only(held(*after)).batches
    return batch


def test_pay_of_a_verified_lease_is_held_and_owes_no_fee_yet() -> None:
    life = only(held())
    assert (life.verified, life.held.value, life.fee.value, life.paid_out.value) == (
        True,
        PAID,
        0,
        0,
    )
    assert reasons(life) == {
        BUYER: {"paid for leases": -PAID},
        PROVIDER: {"pay still held": PAID},
    }


def test_a_batch_goes_through_its_states() -> None:
    told: list[ev.ChainEvent] = [committed(), drawn(), accused(0), accused(1)]
    told += [contested(0, 100), convicted(1, 100, 2_000)]
    told.append(finalised(BatchState.PARTIAL, provider=792, market=8, audits=56, buyer=14))
    states = [batch_of(*told[: i + 1]).state for i in range(len(told))]
    assert states == [
        BatchState.COMMITTED,
        BatchState.DRAWN,
        *[BatchState.ACCUSED] * 3,
        BatchState.DRAWN,
        BatchState.PARTIAL,
    ]
    assert [batch_of(*told[: i + 1]).left.value for i in (4, 5, 6)] == [PAID - 100, PAID - 200, 0]
    batch = batch_of(*told)
    first, second = batch.accused
    assert (first.contested_at, first.convicted_at, second.convicted_at) == (325, None, 340)
    assert (batch.inconclusive.value, batch.bounties.value) == (100, 200)
    assert (batch.committed_at, batch.drawn_at, batch.finalised_at) == (300, 310, 350)


def test_each_part_of_a_batch_has_its_reason_and_they_sum_to_nothing() -> None:
    end = finalised(BatchState.PARTIAL, provider=693, market=7, audits=49, buyer=221)
    why = reasons(only(held(committed(), drawn(), accused(1), convicted(1, 100, 2_000), end)))
    assert why == {
        BUYER: {
            "paid for leases": -PAID,
            "refund for convicted work": 100,
            "refund for inconclusive audits": 200,  # the rest of the 221 is audit share, unspent
            "audit share": -49,
        },
        PROVIDER: {"earned from leases": 693, "fine": -2_000},
        OPERATOR: {"fees": 7},
        AUDITS: {"audit share": 49, "bounty": 200},
        BURN: {"fines": 1_800},
    }
    assert sum(sum(parts.values()) for parts in why.values()) == 0


def test_a_second_conviction_burns_the_rest() -> None:
    faults: list[ev.ChainEvent] = [accused(0), accused(1)]
    faults += [convicted(0, 300, 6_000), convicted(1, 300, 6_000)]
    end = finalised(BatchState.PARTIAL, provider=0, market=0, burnt=400, buyer=70)
    life = only(held(committed(), drawn(), *faults, end))
    assert (life.forfeited.value, life.inconclusive.value, life.held.value) == (400, 0, 0)
    assert reasons(life)[BURN] == {"fines": 10_800, "forfeited pay": 400}
    assert reasons(life)[PROVIDER] == {"fine": -12_000}
    assert reasons(life)[AUDITS] == {"bounty": 1_200}


def silent(j: int, refund: int, fine: int) -> ev.SilenceConvicted:
    amounts = TokenAmount(refund), TokenAmount(fine)
    return ev.SilenceConvicted(
        lease=KEY, batch_no=0, j=j, refund=amounts[0], fine=amounts[1], at=335
    )


def test_silence_is_refunded_and_its_fine_is_all_burnt() -> None:
    end = finalised(BatchState.PARTIAL, provider=792, market=8, audits=56, buyer=14)
    life = only(held(committed(), drawn(), silent(1, 200, 4_000), end))
    assert (life.inconclusive.value, life.held.value) == (0, 0)
    assert reasons(life)[BUYER]["refund for convicted work"] == 200
    assert reasons(life)[BURN] == {"fines": 4_000}


def test_fraud_found_after_an_unverified_end_changes_nothing_that_was_paid() -> None:
    end = finalised(BatchState.FINAL_UNVERIFIED, provider=990, market=10, buyer=70)
    fraud = finalised(BatchState.SLASHED, provider=0, market=0)
    life = only(held(committed(), end, accused(2), convicted(2, 100, 9_000), fraud))
    assert life.batches[0].state is BatchState.SLASHED
    assert reasons(life)[PROVIDER]["earned from leases"] == 990


def test_a_conviction_after_an_unverified_end_is_refunded_from_the_bond() -> None:
    end = finalised(BatchState.FINAL_UNVERIFIED, provider=990, market=10, buyer=70)
    life = only(held(committed(), end, accused(2), convicted(2, 100, 2_000)))
    assert life.batches[0].state is BatchState.FINAL_UNVERIFIED
    assert reasons(life)[PROVIDER] == {
        "earned from leases": 990,
        "refund for convicted work, from the bond": -100,
        "fine": -2_000,
    }
    assert reasons(life)[BUYER]["refund for convicted work"] == 100


def test_what_no_batch_took_returns_without_its_audit_share_counting_as_pay() -> None:
    back = ev.HeldReturned(lease=KEY, amount=TokenAmount(428), at=400)  # 400 and 7 % of it
    life = only(held(committed(600), back))
    assert (life.returned.value, life.held.value) == (400, 600)
    assert reasons(life)[BUYER] == {
        "paid for leases": -PAID,
        "held pay returned: nothing committed": 400,
    }


def test_a_buyer_that_did_not_show_up_pays_a_verified_leases_provider_at_once() -> None:
    life = only(held(reason=LeaseEndReason.BUYER_NO_SHOW))
    assert (life.held.value, life.paid_out.value, life.fee.value) == (0, PAID, 0)


def test_batches_of_one_lease_are_followed_by_their_numbers() -> None:
    end = finalised(BatchState.FINAL, provider=594, market=6, audits=42)
    life = only(held(committed(600), committed(400, batch_no=1), drawn(), end))
    assert [batch.state for batch in life.batches] == [BatchState.FINAL, BatchState.COMMITTED]
    assert (life.held.value, life.paid_out.value, life.fee.value) == (400, 600, 6)


def test_an_audit_share_that_went_to_nobody_knows_whom_is_not_explained() -> None:
    end = finalised(BatchState.FINAL, provider=990, market=10, audits=70)
    assert AUDITS not in reasons(only(held(committed(), drawn(), end)), audits=False)


def test_held_pay_is_owed_and_a_locked_bond_is_counted_once() -> None:
    holding = Holding(wallet=1, cash=2, bond=4, escrow=8, held_pay=16, bond_locked=3)
    assert (holding.in_book, holding.total) == (30, 31)
    sheet = Books(block=1, holdings={PROVIDER: holding}, held=30)
    assert sheet.difference == 0
