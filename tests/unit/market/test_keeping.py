"""What the market does because anybody may, and when: futures' ends, and calls that fail."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.calls import (
    ChainCall,
    DeliverFuture,
    LapseFuture,
    OpenFutures,
    SettleDefault,
    SettleUnit,
)
from cloud_gpu.protocol.chain_events import ChainReorganised, MachinePaused, TransactionFailed
from cloud_gpu.protocol.effects import MarketEffect, Transact
from cloud_gpu.protocol.future_events import (
    FutureDelivered,
    FutureFunded,
    MachinesNominated,
    UnitDelivered,
    UnitEnd,
    UnitEnded,
    UnitSettled,
)
from cloud_gpu.protocol.lease import LeaseKey, MachineStatus
from cloud_gpu.protocol.units import TokenAmount
from tests.unit.market.builders import key, machine
from tests.unit.market.futures_builders import FUTURES_RULES, MARGIN, SERIES, FuturesDesk, future

DEADLINE = SERIES.deadline(FUTURES_RULES.futures)
LEASE = LeaseKey(provider=key("ada").address, index=0, seq=1)


@pytest.fixture
def desk() -> FuturesDesk:
    found = FuturesDesk()
    found.trade(future("bob", buys=True), future("ada", buys=False))
    return found


def kept(effects: list[MarketEffect]) -> list[ChainCall]:
    calls = (each.call for each in effects if isinstance(each, Transact))
    return [call for call in calls if not isinstance(call, OpenFutures)]


def ready(desk: FuturesDesk) -> None:
    desk.mine(
        FutureFunded(contract=1, amount=TokenAmount(1), at=0),
        MachinesNominated(contract=1, indexes=(0,), at=0),
    )


def at(desk: FuturesDesk, second: int) -> list[ChainCall]:
    desk.now = second * 1000
    return kept(desk.mine())


def test_a_default_is_settled_when_the_deadline_has_passed(desk: FuturesDesk) -> None:
    assert at(desk, DEADLINE) == []
    assert kept(desk.pass_time(1_000)) == [SettleDefault(contract=1)], "by our own clock, too"
    assert at(desk, DEADLINE + 2) == [], "it is on its way"


def test_a_contract_is_delivered_at_its_start_and_lapses_after_its_window(
    desk: FuturesDesk,
) -> None:
    ready(desk)
    assert at(desk, SERIES.window_start - 1) == []
    deliver = DeliverFuture(contract=1, machines=(0,))
    assert at(desk, SERIES.window_start) == [deliver]
    over = SERIES.window_start + FUTURES_RULES.start_window_s + 1
    assert at(desk, over) == [LapseFuture(contract=1)]


def test_delivery_waits_for_machines_that_are_not_free(desk: FuturesDesk) -> None:
    ready(desk)
    ledger = desk.market._floor.ledger
    ledger._change(machine("ada", 0), status=MachineStatus.ACTIVE)
    assert at(desk, SERIES.window_start) == []
    late = SERIES.window_start + FUTURES_RULES.start_window_s * 3 // 4
    assert at(desk, late - 1) == []
    assert kept(desk.pass_time(1_000)) == [DeliverFuture(contract=1, machines=(0,))]


def test_a_paused_machine_is_delivered_at_once(desk: FuturesDesk) -> None:
    ready(desk)
    desk.mine(MachinePaused(machine=machine("ada", 0), paused=True))
    assert at(desk, SERIES.window_start) == [DeliverFuture(contract=1, machines=(0,))]


def test_margins_are_paid_out_when_a_lease_has_ended(desk: FuturesDesk) -> None:
    ready(desk)
    at(desk, SERIES.window_start)
    none = TokenAmount(0)
    desk.mine(
        UnitDelivered(contract=1, lease=LEASE, long_margin=MARGIN, short_margin=MARGIN, at=0),
        FutureDelivered(contract=1, delivered=1, to_long=none, to_short=none, at=0),
    )
    assert kept(desk.mine()) == []
    ended = UnitEnded(contract=1, lease=LEASE, end=UnitEnd.HELD, left_s=0, at=0)
    assert kept(desk.mine(ended)) == [SettleUnit(lease=LEASE)]
    desk.mine(UnitSettled(contract=1, lease=LEASE, to_long=MARGIN, to_short=MARGIN, at=0))
    assert desk.market._keeper.calls() == []


def test_a_call_that_fails_is_made_again_ever_more_seldom(desk: FuturesDesk) -> None:
    (call,) = at(desk, DEADLINE + 1)
    waits = []
    for _ in range(3):
        desk.tell(TransactionFailed(call=call, error="Futures_TooEarly(opensAt=1)"))
        failed_at = desk.now
        while not kept(desk.pass_time(1_000) + desk.mine()):
            assert desk.now < failed_at + 60_000
        waits.append(desk.now - failed_at)
    assert waits == [2_000, 4_000, 8_000]


def test_what_a_vanished_block_did_is_done_again(desk: FuturesDesk) -> None:
    ready(desk)
    (call,) = at(desk, SERIES.window_start)
    before, none = desk.block, TokenAmount(0)
    desk.mine(FutureDelivered(contract=1, delivered=0, to_long=none, to_short=none, at=0))
    assert desk.market._keeper.calls() == []
    desk.tell(ChainReorganised(block=before))
    assert kept(desk.mine()) == [call]


def test_nothing_is_posted_while_the_chain_is_not_heard(desk: FuturesDesk) -> None:
    desk.now = (DEADLINE + 1) * 1000
    silent_ms = FUTURES_RULES.silence_ms
    assert desk.market._floor.ledger.at * 1000 < desk.now - silent_ms
    assert kept(desk.pass_time(silent_ms)) == []
    assert kept(desk.mine()) == [SettleDefault(contract=1)]
