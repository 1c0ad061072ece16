"""Positions by hand: what a short would name, what is due by when, how a contract goes on."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.chain_events import ChainReorganised, MachineRetiring
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.future_events import (
    FutureAssigned,
    FutureDelivered,
    FutureEnd,
    FutureEnded,
    FutureFunded,
    MachinesNominated,
    UnitDelivered,
    UnitFailed,
    UnitSettled,
)
from cloud_gpu.protocol.future_reports import ContractState
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import TokenAmount
from market.books.futures_positions import reminders
from tests.unit.market.builders import NOW_S, key, machine
from tests.unit.market.futures_builders import (
    DAY_S,
    FUTURES_RULES,
    MARGIN,
    SERIES,
    FuturesDesk,
    future,
)

START_S = 900
ADA = key("ada").address


@pytest.fixture
def desk() -> FuturesDesk:
    return FuturesDesk()


def sold(desk: FuturesDesk, number: int, *, days: int = 0, units: int = 1) -> int:
    """A contract of ada's, so many days after the series."""
    start = SERIES.window_start + days * DAY_S
    of = Series(product=1, window_start=start, window_seconds=DAY_S)
    return desk.trade(
        future("bob", buys=True, nonce=number, of=of, units=units),
        future("ada", buys=False, nonce=number, of=of, units=units),
    )


def due(desk: FuturesDesk, at: int) -> list[tuple[str, object, int | None]]:
    contract = desk.contract(1).contract
    found = reminders(contract, FUTURES_RULES.futures, start_window_s=START_S, at=at)
    return [(each.step.value, each.account, each.until) for each in found]


def test_windows_that_touch_get_other_machines_and_others_the_first_again(
    desk: FuturesDesk,
) -> None:
    for number, days in enumerate((0, 1, 3)):
        sold(desk, number, days=days)
    assert [desk.contract(n).suggested for n in (1, 2, 3)] == [(0,), (1,), (0,)]
    desk.mine(MachinesNominated(contract=2, indexes=(0,), at=NOW_S))
    assert [desk.contract(n).suggested for n in (1, 2, 3)] == [(1,), (0,), (0,)]


def test_a_machine_that_leaves_is_suggested_no_more(desk: FuturesDesk) -> None:
    sold(desk, 0, units=2)
    assert desk.contract(1).suggested == (0, 1)
    desk.mine(MachineRetiring(machine=machine("ada", 0)))
    assert desk.contract(1).suggested == (1, 2)
    desk.tell(ChainReorganised(block=desk.block - 1))
    assert desk.contract(1).suggested == (0, 1)


def test_what_is_due_by_whom_and_until_when(desk: FuturesDesk) -> None:
    sold(desk, 0)
    bob, start = key("bob").address, SERIES.window_start
    deadline = start - DAY_S
    default = ("settle-default", None, None)
    fund, nominate = ("fund", bob, deadline), ("nominate", ADA, deadline)
    assert due(desk, NOW_S) == [fund, nominate, default]
    desk.mine(FutureFunded(contract=1, amount=TokenAmount(1), at=NOW_S))
    assert due(desk, NOW_S) == [nominate, default]
    assert due(desk, deadline + 1) == [default]
    desk.mine(MachinesNominated(contract=1, indexes=(3,), at=NOW_S))
    deliver, lapse = ("deliver", None, start + START_S), ("lapse", None, None)
    assert due(desk, start) == [deliver, lapse]
    assert due(desk, start + START_S + 1) == [lapse]


def test_a_side_that_was_handed_on_is_the_joiner_s_to_do(desk: FuturesDesk) -> None:
    sold(desk, 0)
    dan = key("dan").address
    desk.mine(
        FutureAssigned(contract=1, is_buy=True, leaver=key("bob").address, joiner=dan, at=NOW_S),
        FutureAssigned(contract=1, is_buy=False, leaver=ADA, joiner=key("eve").address, at=NOW_S),
    )
    assert [account for _, account, _ in due(desk, NOW_S)] == [dan, key("eve").address, None]
    assert desk.contract(1).suggested == (0,), "of eve's machines"


def test_a_contract_lasts_until_its_last_unit_is_settled(desk: FuturesDesk) -> None:
    sold(desk, 0, units=3)
    leases = [LeaseKey(provider=ADA, index=index, seq=1) for index in range(2)]
    desk.mine(
        *(
            UnitDelivered(contract=1, lease=each, long_margin=MARGIN, short_margin=MARGIN, at=NOW_S)
            for each in leases
        ),
        UnitFailed(
            contract=1,
            machine=machine("ada", 2),
            rejection=Rejection(reason=RejectReason.MACHINE_NOT_FREE),
            at=NOW_S,
        ),
        FutureDelivered(contract=1, delivered=2, to_long=MARGIN, to_short=MARGIN, at=NOW_S),
    )
    assert desk.contract(1).contract.state is ContractState.DELIVERED
    assert not due(desk, NOW_S)
    for each, state in zip(leases, (ContractState.DELIVERED, ContractState.SETTLED), strict=True):
        settled = UnitSettled(contract=1, lease=each, to_long=MARGIN, to_short=MARGIN, at=NOW_S)
        desk.mine(settled)
        assert desk.contract(1).contract.state is state
    assert not desk.market._floor.ledger.futures.contracts
    desk.tell(ChainReorganised(block=desk.block - 1))
    assert desk.contract(1).contract.state is ContractState.DELIVERED


@pytest.mark.parametrize("end", list(FutureEnd))
def test_a_contract_that_ended_is_told_once_more(desk: FuturesDesk, end: FutureEnd) -> None:
    sold(desk, 0)
    none = TokenAmount(0)
    desk.mine(FutureEnded(contract=1, end=end, to_long=none, to_short=none, at=NOW_S))
    assert desk.contract(1).contract.state.value == end.value
    assert desk.contract(1).suggested == ()


def test_facts_of_contracts_never_heard_of_change_nothing(desk: FuturesDesk) -> None:
    before = len(desk.effects)
    desk.mine(FutureFunded(contract=77, amount=TokenAmount(1), at=NOW_S))
    assert len(desk.effects) == before
