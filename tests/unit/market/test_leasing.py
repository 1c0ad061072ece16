"""The lives of bids and openings: the table, blame, batches, back-off, timers."""

from __future__ import annotations

from itertools import product

import pytest

from cloud_gpu.protocol.calls import pairs_of
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.units import TokenAmount
from market.clearing.on_demand import Fill
from market.lanes.leasing import (
    BID_TABLE,
    BidStep,
    Blame,
    blame_for,
    calls_of,
    next_bid_state,
    openings_for,
    retry_after,
)
from market.rules import BATCH_MATCHES_MAX
from market.timers import Timers
from tests.unit.market.builders import NOW, RULES, advert, order, price, resting_ask, resting_bid

LEADS_TO = {
    BidState.PENDING: {
        BidStep.MATCH: BidState.MATCHED,
        BidStep.REJECT: BidState.REJECTED,
        BidStep.EXPIRE: BidState.EXPIRED,
        BidStep.CANCEL: BidState.CANCELLED,
    },
    BidState.MATCHED: {
        BidStep.RELEASE: BidState.PENDING,
        BidStep.REJECT: BidState.REJECTED,
        BidStep.EXPIRE: BidState.EXPIRED,
        BidStep.CANCEL: BidState.CANCELLED,
    },
    BidState.OPENED: {BidStep.UNDO: BidState.PENDING},
}


@pytest.mark.parametrize(("state", "step"), list(product(BidState, BidStep)))
def test_a_step_leads_where_it_must_or_changes_nothing(state: BidState, step: BidStep) -> None:
    """The chain's word that a lease opened counts in every state."""
    is_opened = step is BidStep.OPEN
    needed = BidState.OPENED if is_opened else LEADS_TO.get(state, {}).get(step)
    assert next_bid_state(state, step) is needed


def test_every_state_is_reached_and_only_the_chain_leads_out_of_an_end() -> None:
    assert set(BID_TABLE.values()) == set(BidState)
    ends = {BidState.REJECTED, BidState.EXPIRED, BidState.CANCELLED}
    for state, step in BID_TABLE:
        if state in ends:
            assert step is BidStep.OPEN
    for state in ends | {BidState.OPENED}:
        for step in (BidStep.MATCH, BidStep.RELEASE, BidStep.CANCEL, BidStep.EXPIRE):
            assert next_bid_state(state, step) is None


@pytest.mark.parametrize(
    ("reason", "field", "blame"),
    [
        (RejectReason.MACHINE_NOT_FREE, "ask.index", Blame.ASK),
        (RejectReason.BAD_SIGNATURE, "ask.signature", Blame.ASK),
        (RejectReason.CASH_TOO_LOW, "bid.buyer", Blame.BID),
        (RejectReason.PRICE_OUTSIDE_LIMITS, "price", Blame.BID),
        (RejectReason.EXPIRED, "start_by", Blame.NOBODY),
    ],
)
def test_a_refusal_is_blamed_on_the_order_it_concerns(
    reason: RejectReason, field: str, blame: Blame
) -> None:
    assert blame_for(Rejection(reason=reason, field=field)) is blame


def fill(nonce: int, at: str) -> Fill:
    ask, bid = resting_ask(advert(index=nonce, at=at)), resting_bid(order(nonce=nonce))
    return Fill(bid, (ask,), ask.ask.payload.min_price_per_hour, TokenAmount(1))


def test_a_transaction_carries_one_price_and_no_more_matches_than_fit() -> None:
    fills = [fill(n, "1.00") for n in range(BATCH_MATCHES_MAX + 1)] + [fill(99, "0.90")]
    openings = openings_for(fills, RULES, NOW)
    calls = calls_of(openings)
    assert [(call.price, len(pairs_of(call))) for call in calls] == [
        (price("0.90"), 1),
        (price("1.00"), BATCH_MATCHES_MAX),
        (price("1.00"), 1),
    ]
    assert [opening.call for opening in openings].count(calls[1]) == BATCH_MATCHES_MAX


def test_each_failure_doubles_the_wait() -> None:
    waits = [retry_after(n, RULES, NOW) - NOW for n in (1, 2, 3)]
    assert waits == [2 * RULES.round_ms, 4 * RULES.round_ms, 8 * RULES.round_ms]


def test_timers_forget_what_is_no_longer_due_and_wake_each_key_once() -> None:
    due: dict[str, int] = {"a": 5, "b": 3, "c": 9}
    timers: Timers[str] = Timers(due.get)
    for name in due:
        timers.set(name)
        timers.set(name)
    assert timers.first == 3
    due["b"] = 7
    timers.set("b")
    del due["c"]
    assert timers.due(8) == ["a", "b"]
    assert timers.first is None
