"""A machine that was promised ahead is let only for what is over before its window."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.chain_events import ChainEvent, ChainReorganised, LeaseStarted
from cloud_gpu.protocol.effects import Publish
from cloud_gpu.protocol.events import DrainAsked
from cloud_gpu.protocol.future_events import (
    FutureAssigned,
    FutureDelivered,
    FutureEnd,
    FutureEnded,
    FutureOpened,
    MachinesNominated,
    UnitDelivered,
)
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.orders import Ask
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import ZERO_DIGEST, Address
from tests.unit.node.builders import BUYER, DEPLOYMENT, LEASE, T0, WALLET, Story

HOUR_S = 3_600
START = (T0 // HOUR_S + 4) * HOUR_S
CLEARANCE_S, LIFE_S, MIN_S = 60, 300, 60
"""Of the builders' node."""
OTHER = Address(b"\x77" * 20)


def opened(short: Address = WALLET.address, contract: int = 1) -> FutureOpened:
    return FutureOpened(
        contract=contract,
        long=BUYER.address,
        short=short,
        series=Series(product=1, window_start=START, window_seconds=HOUR_S),
        per_hour=TokenAmount(1_000_000),
        units=1,
        long_margin=TokenAmount(1),
        short_margin=TokenAmount(1),
        buy=ZERO_DIGEST,
        sell=ZERO_DIGEST,
        at=T0,
    )


NAMED = MachinesNominated(contract=1, indexes=(0,), at=T0)
GONE = TokenAmount(0)
ENDED = FutureEnded(contract=1, end=FutureEnd.LONG_DEFAULT, to_long=GONE, to_short=GONE, at=T0)
DELIVERED = FutureDelivered(contract=1, delivered=0, to_long=GONE, to_short=GONE, at=T0)


def asks(story: Story, *, of_futures: bool = False) -> list[Ask]:
    """Those that a market can open, or those that only say where the node is."""
    found = [advert.body.ask.payload for advert in story.provider.adverts]
    return [ask for ask in found if (ask.matcher == DEPLOYMENT.futures) is of_futures]


def test_an_ask_allows_no_lease_that_runs_into_the_window() -> None:
    story = Story().start()
    (before,) = asks(story)
    assert before.max_duration == 86_400
    story.mine(opened(), NAMED)
    said = [each.advert.body.ask.payload for each in story.found(Publish)]
    (ask,) = [each for each in said if each.matcher != DEPLOYMENT.futures]
    assert ask.start_by + CLEARANCE_S + ask.max_duration == START
    story.wait(HOUR_S)
    (later,) = asks(story)
    assert later.start_by + CLEARANCE_S + later.max_duration <= START


def test_close_to_its_window_it_is_not_let_at_all() -> None:
    story = Story().start()
    story.mine(opened(), NAMED)
    story.wait(START - T0 - LIFE_S - CLEARANCE_S - MIN_S - 31)
    assert asks(story)
    story.wait(62)
    assert not asks(story)


def test_a_promised_machines_node_says_where_it_is_until_its_lease_begins() -> None:
    story = Story().start()
    assert not asks(story, of_futures=True)
    story.mine(opened(), NAMED)
    assert [ask.index for ask in asks(story, of_futures=True)] == [0]
    story.tell(DrainAsked())
    story.wait(START - T0)
    assert not asks(story)
    (still,) = asks(story, of_futures=True)
    assert still.start_by > START
    story.open()
    given = UnitDelivered(contract=1, lease=LEASE, long_margin=GONE, short_margin=GONE, at=T0)
    story.mine(given, DELIVERED)
    assert [ask.index for ask in asks(story, of_futures=True)] == [0]
    story.mine(LeaseStarted(lease=LEASE, started_at=story.at, at=story.at))
    assert not story.provider.adverts


@pytest.mark.parametrize(
    "events",
    [
        (opened(),),
        (opened(OTHER), NAMED),
        (opened(), NAMED, ENDED),
        (opened(), NAMED, DELIVERED),
        (
            opened(),
            NAMED,
            FutureAssigned(contract=1, is_buy=False, leaver=WALLET.address, joiner=OTHER, at=T0),
        ),
        (opened(), MachinesNominated(contract=1, indexes=(3,), at=T0)),
        (NAMED,),
    ],
)
def test_what_binds_no_machine_of_ours_changes_nothing(events: tuple[ChainEvent, ...]) -> None:
    story = Story().start()
    story.mine(*events)
    story.wait(200)  # what was signed in between is signed again in its time
    assert [ask.max_duration for ask in asks(story)] == [86_400]


def test_a_contract_that_was_taken_over_binds_and_one_undone_does_not() -> None:
    story = Story().start()
    story.mine(opened(OTHER))
    block = story.block
    taken = FutureAssigned(contract=1, is_buy=False, leaver=OTHER, joiner=WALLET.address, at=T0)
    story.mine(taken, NAMED)
    assert asks(story)[0].max_duration < START - T0
    story.tell(ChainReorganised(block=block))
    story.mine()
    story.wait(200)
    assert asks(story)[0].max_duration == 86_400
