"""The price index in the market: which leases count, when it is told, what is taken back."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.chain_events import (
    ChainReorganised,
    LeaseClosed,
    LeaseStarted,
    LeaseStopped,
)
from cloud_gpu.protocol.effects import MarketEffect, ReportIndex
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.units import TokenAmount
from market.index.price_index import HOUR_S
from market.matchmaker import Matchmaker
from tests.unit.market.builders import (
    A100,
    RULES,
    TOKEN,
    Desk,
    joined,
    machine,
    opened,
    order,
    price,
    provider,
)

BUYERS = ("bob", "dan", "fay", "gus", "hal")


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.mine(*provider("ada", len(BUYERS)), *(e for each in BUYERS for e in joined(each, 100)))
    return desk


def rent(
    desk: Desk, buyer: str, index: int, *, hours: float = 1.0, paid: float = 1.0, stopped: float = 0
) -> None:
    """A lease of two hours at a token an hour, closed or stopped after some of them."""
    lease = opened(
        order(buyer, duration=2 * HOUR_S).bid.payload, machine("ada", index), price("1.00")
    )
    key = lease.terms.key
    start = desk.now // 1000
    desk.mine(lease, LeaseStarted(lease=key, started_at=start, at=start))
    if stopped:
        pass_hours(desk, stopped)
        ceiling = TokenAmount(round(stopped * TOKEN))
        desk.mine(LeaseStopped(lease=key, ceiling=ceiling, at=desk.now // 1000))
    pass_hours(desk, hours - stopped)
    desk.mine(
        LeaseClosed(
            lease=key,
            reason=LeaseEndReason.END_OF_TIME,
            paid=TokenAmount(round(paid * TOKEN)),
            at=desk.now // 1000,
        )
    )


def pass_hours(desk: Desk, hours: float) -> None:
    desk.now += round(hours * HOUR_S) * 1000


def points(effects: list[MarketEffect]) -> list[IndexPoint]:
    return [effect.report for effect in effects if isinstance(effect, ReportIndex)]


def test_five_pairs_make_a_point_at_the_next_full_hour(desk: Desk) -> None:
    for index, buyer in enumerate(BUYERS):
        rent(desk, buyer, index, hours=1.0, paid=1.0 + index / 10)
    pass_hours(desk, 1)
    (point,) = points(desk.mine())
    assert (point.gpu_class, point.pairs, point.is_stale) == (A100, 5, False)
    assert point.per_hour == TokenAmount(1_200_000)
    assert point.at % HOUR_S == 0
    assert not points(desk.mine()), "once an hour"


def test_what_ran_short_or_was_not_paid_does_not_count(desk: Desk) -> None:
    for index, buyer in enumerate(BUYERS[:4]):
        rent(desk, buyer, index)
    rent(desk, BUYERS[4], 4, hours=0.9)
    rent(desk, "hal", 4, hours=1.0, paid=0)
    pass_hours(desk, 1)
    assert not points(desk.mine())


def test_a_stopped_lease_costs_what_ran_until_the_stop(desk: Desk) -> None:
    for index, buyer in enumerate(BUYERS):
        rent(desk, buyer, index, hours=1.9, stopped=1.25, paid=1.25)
    pass_hours(desk, 1)
    assert [each.per_hour for each in points(desk.mine())] == [TokenAmount(1_000_000)]


def test_a_day_later_the_index_is_held_and_says_so(desk: Desk) -> None:
    for index, buyer in enumerate(BUYERS):
        rent(desk, buyer, index)
    pass_hours(desk, 1)
    first = points(desk.mine())[-1]
    pass_hours(desk, 48)
    (held,) = points(desk.mine())
    assert (held.per_hour, held.is_stale, held.pairs) == (first.per_hour, True, 0)
    assert not desk.market._floor.ledger.paid.of(RULES.market_id)


def test_a_reorganisation_takes_a_lease_out_and_the_log_gives_the_same_state(desk: Desk) -> None:
    for index, buyer in enumerate(BUYERS):
        rent(desk, buyer, index)
    desk.tell(ChainReorganised(block=desk.block - 1))
    assert len(desk.market._floor.ledger.paid.of(RULES.market_id)) == 4
    pass_hours(desk, 1)
    assert not points(desk.mine())
    again = Matchmaker(RULES)
    effects = [effect for event, now in desk.log for effect in again.handle(event, now)]
    assert effects == desk.effects
    assert again.state_hash() == desk.market.state_hash()
