"""The ledger: money and machines as the chain's own rules move them, and back again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchFinalised,
    BidsCancelled,
    BondAdded,
    CashChanged,
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    LeaseClosed,
    LeaseOpened,
    LeaseSettled,
    LeaseStarted,
    LeaseStopped,
    MachineAdded,
    MachineRetired,
    MachineRetiring,
    MarketRegistered,
    PenaltyPaid,
    SegmentConvicted,
)
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseState, MachineStatus
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest
from market.books.ledger import Ledger
from market.undo import REWIND_BLOCKS_MAX
from tests.unit.market.builders import (
    FEE,
    MARKET_KEY,
    NOW_S,
    RULES,
    TOKEN,
    joined,
    key,
    machine,
    opened,
    order,
    price,
    product,
    provider,
)

ADA, BOB = key("ada").address, key("bob").address
BID = order("bob").bid.payload
OPENED = opened(BID, machine("ada"), price(1))
LEASE = OPENED.terms.key
MORE_BOND = BondAdded(machine=machine("ada"), added=TokenAmount(40 * TOKEN))
"""50 units in all."""


def ledger_after(*events: ChainEvent) -> Ledger:
    ledger = Ledger(RULES.bond_unit)
    market = MarketRegistered(market_id=1, account=MARKET_KEY.address, fee=FEE)
    for event in (product(), market, *joined("bob", 100), *provider("ada", bond=10), *events):
        ledger.apply(event)
    return ledger


def tokens(ledger: Ledger) -> tuple[float, float, float]:
    """Of buyer, provider and market."""
    cash = ledger.cash
    return tuple(cash.get(who, 0) / TOKEN for who in (BOB, ADA, MARKET_KEY.address))  # type: ignore[return-value]


def committed(locked: int) -> BatchCommitted:
    return BatchCommitted(
        lease=LEASE,
        batch_no=0,
        root=Digest(bytes(32)),
        n=1,
        value=TokenAmount(1),
        locked=TokenAmount(locked),
        at=NOW_S,
        block=1,
    )


def convicted(refund: int, fine: int) -> SegmentConvicted:
    return SegmentConvicted(
        bounty=TokenAmount(0),
        lease=LEASE,
        batch_no=0,
        i=1,
        refund=TokenAmount(refund),
        fine=TokenAmount(fine),
        at=NOW_S,
    )


def finalised(state: BatchState, buyer: int = 0) -> BatchFinalised:
    none = TokenAmount(0)
    return BatchFinalised(
        lease=LEASE,
        batch_no=0,
        state=state,
        provider=none,
        market=none,
        audits=none,
        buyer=TokenAmount(buyer),
        burnt=none,
        at=NOW_S,
    )


def test_an_opened_lease_takes_its_cap_and_its_machine() -> None:
    ledger = ledger_after(OPENED)
    assert tokens(ledger) == (99, 0, 0)
    row = ledger.machines[machine("ada")]
    assert (row.status, row.next_seq) == (MachineStatus.FUNDED, 2)
    assert ledger.leases[LEASE].state is LeaseState.FUNDED


def test_settling_and_closing_pay_the_provider_less_the_fee_and_refund_the_rest() -> None:
    ledger = ledger_after(
        OPENED,
        LeaseStarted(lease=LEASE, started_at=NOW_S, at=NOW_S),
        LeaseSettled(lease=LEASE, paid=TokenAmount(300_000), at=NOW_S),
        LeaseClosed(
            lease=LEASE, reason=LeaseEndReason.STOPPED, paid=TokenAmount(500_000), at=NOW_S
        ),
    )
    assert tokens(ledger) == (99.5, 0.495, 0.005)
    assert ledger.machines[machine("ada")].status is MachineStatus.FREE
    assert LEASE not in ledger.leases


def test_a_stop_returns_what_exceeds_the_ceiling_at_once() -> None:
    ledger = ledger_after(OPENED, LeaseStopped(lease=LEASE, ceiling=TokenAmount(400_000), at=NOW_S))
    assert tokens(ledger)[0] == 99.6
    assert ledger.machines[machine("ada")].status is MachineStatus.STOPPED


def test_a_no_show_of_the_provider_costs_its_bond_in_whole_units() -> None:
    ledger = ledger_after(
        OPENED,
        PenaltyPaid(lease=LEASE, amount=TokenAmount(83_334), at=NOW_S),
        LeaseClosed(
            lease=LEASE, reason=LeaseEndReason.PROVIDER_NO_SHOW, paid=TokenAmount(0), at=NOW_S
        ),
    )
    assert tokens(ledger) == (100.083334, 0.916666, 0)
    assert ledger.machines[machine("ada")].bond == TokenAmount(9 * TOKEN)


def test_a_no_show_of_the_buyer_pays_the_provider_without_a_fee() -> None:
    ledger = ledger_after(
        OPENED,
        LeaseClosed(
            lease=LEASE, reason=LeaseEndReason.BUYER_NO_SHOW, paid=TokenAmount(83_334), at=NOW_S
        ),
    )
    assert tokens(ledger) == (99.916666, 0.083334, 0)


def test_a_bond_goes_in_from_cash_and_comes_out_again() -> None:
    cash = CashChanged(account=ADA, amount=TokenAmount(5 * TOKEN), increase=True)
    ledger = ledger_after(cash, BondAdded(machine=machine("ada"), added=TokenAmount(5 * TOKEN)))
    assert ledger.machines[machine("ada")].bond == TokenAmount(15 * TOKEN)
    assert tokens(ledger)[1] == 0
    ledger.apply(MachineRetiring(machine=machine("ada")))
    ledger.apply(MachineRetired(machine=machine("ada")))
    assert tokens(ledger)[1] == 15


def test_a_machine_that_comes_back_keeps_counting_its_leases() -> None:
    ledger = ledger_after(OPENED, MachineRetired(machine=machine("ada")))
    ledger.apply(MachineAdded(machine=machine("ada"), product=1, bond=TokenAmount(TOKEN)))
    assert ledger.machines[machine("ada")].next_seq == 2


def test_a_committed_batch_locks_a_part_of_the_bond_until_it_is_final() -> None:
    ledger = ledger_after(OPENED, committed(4 * TOKEN))
    assert ledger.machines[machine("ada")].free_bond == TokenAmount(6 * TOKEN)
    ledger.apply(finalised(BatchState.FINAL, buyer=TOKEN))
    assert ledger.machines[machine("ada")].free_bond == TokenAmount(10 * TOKEN)
    assert tokens(ledger)[0] == 100


# Convictions: the numbers are those of contracts/test/unit/verification/convict.t.sol.


@pytest.mark.parametrize(
    ("locked", "refund", "fine", "units", "change"),
    [
        (21, 600_000, 12_000_000, 12, 0),
        (22, 600_002, 12_000_040, 13, 999_960),
        (21, 1_800_000, 21_000_000, 21, 0),
    ],
    ids=["whole units", "no whole unit", "the whole lock"],
)
def test_a_conviction_takes_whole_units_out_of_bond_and_lock(
    locked: int, refund: int, fine: int, units: int, change: int
) -> None:
    """Verification._punish: the price is returned out of what was held, not out of the bond."""
    ledger = ledger_after(MORE_BOND, OPENED, committed(locked * TOKEN))
    before = dict(ledger.cash)
    ledger.apply(convicted(refund, fine))
    row = ledger.machines[machine("ada")]
    assert (row.bond.value, row.locked) == ((50 - units) * TOKEN, (locked - units) * TOKEN)
    assert ledger.cash[ADA] - before[ADA] == change
    assert ledger.cash[BOB] - before[BOB] == refund
    ledger.apply(finalised(BatchState.PARTIAL))
    assert ledger.machines[machine("ada")].free_bond.value == (50 - units) * TOKEN


def test_a_late_conviction_takes_price_and_fine_out_of_the_free_bond() -> None:
    """test_late_whenTheBatchEndedUnverified: 0.6 and 12, the change is the provider's."""
    unverified = finalised(BatchState.FINAL_UNVERIFIED)
    ledger = ledger_after(MORE_BOND, OPENED, committed(21 * TOKEN), unverified)
    before = dict(ledger.cash)
    ledger.apply(convicted(600_000, 12_000_000))
    row = ledger.machines[machine("ada")]
    assert (row.bond.value, row.locked) == ((50 - 13) * TOKEN, 0)
    assert ledger.cash[ADA] - before[ADA] == 400_000
    assert ledger.cash[BOB] - before[BOB] == 600_000


def test_nonces_are_void_below_the_floor_and_one_by_one() -> None:
    ledger = ledger_after(
        BidsCancelled(account=BOB, nonce=3, below=True),
        BidsCancelled(account=BOB, nonce=7, below=False),
    )
    assert [n for n in range(10) if ledger.is_void(BOB, n)] == [0, 1, 2, 7]
    assert not ledger.is_void(ADA, 0)


def test_a_node_key_signs_for_its_provider_alone() -> None:
    ledger = ledger_after()
    assert ledger.may_sign(ADA, key("ada-node").address, KeyRole.NODE, NOW_S)
    assert not ledger.may_sign(BOB, key("ada-node").address, KeyRole.NODE, NOW_S)


def snapshot(ledger: Ledger) -> list[tuple[str, object]]:
    return [(name, rows) for name, rows in ledger.rows() if name != "block"]


def block(number: int) -> ChainAdvanced:
    return ChainAdvanced(block=number, at=NOW_S + number)


STORY: tuple[ChainEvent, ...] = (
    OPENED,
    LeaseStarted(lease=LEASE, started_at=NOW_S, at=NOW_S),
    BidsCancelled(account=BOB, nonce=3, below=True),
    LeaseSettled(lease=LEASE, paid=TokenAmount(300_000), at=NOW_S),
    *joined("dan", 5),
    LeaseStopped(lease=LEASE, ceiling=TokenAmount(400_000), at=NOW_S),
    PenaltyPaid(lease=LEASE, amount=TokenAmount(7), at=NOW_S),
    LeaseClosed(lease=LEASE, reason=LeaseEndReason.STOPPED, paid=TokenAmount(400_000), at=NOW_S),
    MachineRetiring(machine=machine("ada")),
    MachineRetired(machine=machine("ada")),
)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=20), st.integers(0, 20))
def test_rewinding_gives_exactly_what_stood_after_that_block(sizes: list[int], back: int) -> None:
    """Blocks of any sizes, none of which reaches into another."""
    ledger = ledger_after(block(0))
    events, after = iter(STORY), {0: snapshot(ledger)}
    for number, size in enumerate(sizes, 1):
        for _ in range(size):
            event = next(events, None)
            if event is not None:
                ledger.apply(event)
        ledger.apply(block(number))
        after[number] = snapshot(ledger)
    ledger.apply(joined("late", 1)[1])  # of a block that never ends
    target = max(0, len(sizes) - back)
    ledger.apply(ChainReorganised(block=target))
    assert snapshot(ledger) == after[target]
    assert ledger.block == target


def test_a_rewind_deeper_than_what_is_kept_stops_the_market() -> None:
    ledger = ledger_after(block(0))
    for number in range(1, REWIND_BLOCKS_MAX + 3):
        ledger.apply(joined("dan", 1)[1])
        ledger.apply(block(number))
    with pytest.raises(AssertionError, match="cannot rewind to block 0"):
        ledger.apply(ChainReorganised(block=0))


def test_events_about_strangers_change_nothing() -> None:
    ledger = ledger_after()
    before = snapshot(ledger)
    stranger = opened(BID, machine("ada"), price(1)).terms.key
    for event in (
        LeaseSettled(lease=stranger, paid=TokenAmount(5), at=NOW_S),
        MachineRetiring(machine=machine("nobody")),
        BondAdded(machine=machine("ada", 9), added=TokenAmount(0)),
    ):
        ledger.apply(event)
    assert snapshot(ledger) == before


def test_a_lease_of_an_unknown_machine_still_moves_money() -> None:
    lost: LeaseOpened = opened(BID, machine("nobody"), price(1))
    assert tokens(ledger_after(lost))[0] == 99
