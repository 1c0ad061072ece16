"""The matchmaker: facts in, effects out. Nothing here waits, sleeps or opens a file."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.chain_events import (
    AsksCancelled,
    BidsCancelled,
    LeaseClosed,
    MachinePaused,
)
from cloud_gpu.protocol.effects import ListAsk, MarketEffect, ReportLease, Transact, UnlistAsk
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import DeadlinePassed
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseState
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import Terms
from cloud_gpu.protocol.units import TokenAmount
from market.lanes.rounds import EXPLAINED_BIDS_MAX
from market.matchmaker import Matchmaker
from market.rules import RulesSet
from tests.unit.market.builders import (
    NOW_S,
    RULES,
    SEALED,
    Desk,
    advert,
    batches,
    joined,
    key,
    machine,
    match_one,
    opened,
    order,
    pairs,
    price,
    provider,
    skip,
)


def test_a_market_without_waiting_bids_sets_no_timer(desk: Desk) -> None:
    desk.hear(advert("ada"))
    assert desk.market.deadline is None


def test_a_bid_is_matched_with_the_cheapest_ask_when_its_round_ends(desk: Desk) -> None:
    dear, cheap, wanted = advert("ada", at="1.20"), advert("eve", at="1.10"), order("bob")
    desk.hear(dear, cheap)
    assert batches(desk.submit(wanted)) == []
    effects = desk.end_round()
    (batch,) = batches(effects)
    assert pairs(effects) == [(wanted.bid.payload.id, cheap.body.ask.payload.id)]
    assert (batch.product, batch.price, batch.market_id) == (1, price("1.10"), 1)
    report = desk.report(wanted)
    assert (report.state, report.price, report.adverts) == (
        BidState.MATCHED,
        price("1.10"),
        (cheap,),
    )


def test_an_opened_lease_is_reported_with_its_key_and_the_nodes_advert(desk: Desk) -> None:
    offered, wanted = match_one(desk)
    lease = opened(wanted.bid.payload, machine("ada"), price(1))
    effects = desk.mine(lease)
    report = desk.report(wanted)
    assert (report.state, report.leases) == (BidState.OPENED, (lease.terms.key,))
    assert (report.price, report.adverts) == (price(1), (offered,))
    (told,) = [effect.report for effect in effects if isinstance(effect, ReportLease)]
    assert (told.state, told.bid) == (LeaseState.FUNDED, wanted.bid.payload.id)
    assert desk.market.status().openings == 0


def test_a_machine_is_held_while_its_opening_is_on_its_way(desk: Desk) -> None:
    desk.hear(advert("ada"))
    desk.submit(order("bob"))
    effects = desk.end_round()
    assert [type(effect) for effect in effects].count(UnlistAsk) == 1
    desk.submit(order("dan"))
    assert batches(desk.pass_time(5_000)) == []


def test_alternatives_of_one_nonce_are_matched_once(desk: Desk) -> None:
    desk.hear(advert("ada"), advert("eve"))
    one, other = order("bob", limit="1.50"), order("bob", limit="1.40")
    desk.submit(one, other)
    assert len(pairs(desk.end_round())) == 1
    assert desk.report(other).state is BidState.PENDING
    desk.mine(opened(one.bid.payload, machine("ada"), price(1)))
    report = desk.report(other)
    assert report.state is BidState.CANCELLED
    assert report.rejection is not None
    assert report.rejection.reason is RejectReason.NONCE_USED


def test_an_alternative_is_not_matched_while_another_is_on_its_way(desk: Desk) -> None:
    desk.hear(advert("ada"))
    desk.submit(order("bob", limit="1.50"), order("bob", limit="1.40"))
    assert len(pairs(desk.end_round())) == 1
    desk.hear(advert("eve"))
    assert pairs(desk.pass_time(5_000)) == []


def test_a_bid_that_comes_after_its_alternative_opened_is_rejected(desk: Desk) -> None:
    _, wanted = match_one(desk)
    desk.mine(opened(wanted.bid.payload, machine("ada"), price(1)))
    late = order("bob", limit="1.40")
    desk.submit(late)
    report = desk.report(late)
    assert report.state is BidState.REJECTED
    assert report.rejection is not None
    assert report.rejection.reason is RejectReason.NONCE_USED


def test_a_bid_that_nothing_satisfies_rests_and_says_what_the_nearest_change_is(
    desk: Desk,
) -> None:
    wanted = order("bob", limit="0.90")
    desk.hear(advert("ada", at="1.10"), advert("eve", at="1.20"))
    desk.submit(wanted)
    desk.end_round()
    report = desk.report(wanted)
    assert report.state is BidState.PENDING
    assert report.rejection is not None
    assert report.rejection.reason is RejectReason.NO_MATCH
    assert report.rejection.field == "bid.max_price_per_hour"
    assert (report.rejection.found, report.rejection.needed) == ("0.90", "1.10")
    assert report.rejection.next.startswith("Raise the price limit to 1.10: then ")


def test_a_bid_for_one_round_ends_with_it_and_says_what_it_lacked(desk: Desk) -> None:
    waits = order("bob", limit="0.90")
    ends = order("bob", limit="0.90", nonce=1, wanting=Terms(one_round=True))
    desk.hear(advert("ada", at="1.10"))
    desk.submit(waits, ends)
    desk.end_round()
    assert desk.report(waits).state is BidState.PENDING
    assert desk.report(ends).state is BidState.EXPIRED
    assert desk.report(ends).rejection == desk.report(waits).rejection
    assert desk.report(ends).explanation is not None


def test_a_bid_for_one_round_that_matches_opens_like_any_other(desk: Desk) -> None:
    wanted = order("bob", wanting=Terms(one_round=True))
    desk.hear(advert("ada"))
    desk.submit(wanted)
    assert batches(desk.end_round())
    assert desk.report(wanted).state is BidState.MATCHED
    desk.pass_time(RULES.settle_ms + 1)
    assert desk.report(wanted).state is BidState.EXPIRED, "it does not wait for another round"


@pytest.mark.parametrize("first", [Terms(one_round=True), Terms()])
@pytest.mark.parametrize("reason", [RejectReason.MACHINE_NOT_FREE, RejectReason.BAD_SIGNATURE])
def test_an_alternative_for_one_round_ends_with_it_whatever_becomes_of_the_one_that_matched(
    desk: Desk, first: Terms, reason: RejectReason
) -> None:
    taken = order("bob", limit="1.50", wanting=first)
    passed_over = order("bob", limit="1.40", wanting=Terms(one_round=True))
    desk.hear(advert("ada"), advert("eve"))
    desk.submit(taken, passed_over)
    desk.end_round()
    states = [desk.report(each).state for each in (taken, passed_over)]
    assert states == [BidState.MATCHED, BidState.EXPIRED]
    skip(desk, reason, "bid.signature" if reason is RejectReason.BAD_SIGNATURE else "ask.index")
    desk.pass_time(2 * RULES.round_ms)
    assert desk.report(passed_over).state is BidState.EXPIRED


def test_an_alternative_for_one_round_that_was_not_due_yet_has_its_round_still(desk: Desk) -> None:
    now, later = Terms(one_round=True), Terms(one_round=True, start_from=NOW_S + 30)
    first, second = (order("bob", wanting=terms) for terms in (now, later))
    sealed = order("bob", wanting=replace(SEALED, one_round=True))
    desk.hear(advert("ada"), advert("eve"))
    desk.submit(first, second, sealed)
    desk.end_round()
    skip(desk, RejectReason.MACHINE_NOT_FREE, "ask.index")
    states = [desk.report(each).state for each in (first, second, sealed)]
    assert states == [BidState.EXPIRED, BidState.PENDING, BidState.PENDING]


def test_many_bids_that_nothing_satisfies_are_all_told_why_within_a_few_rounds(
    desk: Desk,
) -> None:
    orders = [order(f"buyer-{n}", limit="0.10") for n in range(2 * EXPLAINED_BIDS_MAX + 1)]
    desk.hear(advert("ada"))
    desk.submit(*orders)
    desk.end_round()
    told = [desk.report(each).rejection is not None for each in orders]
    assert told.count(True) == EXPLAINED_BIDS_MAX
    desk.pass_time(3 * RULES.round_ms)
    assert all(desk.report(each).rejection is not None for each in orders)


def test_an_unmatched_bid_is_matched_when_a_cheaper_ask_comes(desk: Desk) -> None:
    desk.hear(advert("ada", at="2.00"))
    desk.submit(order("bob", limit="1.00"))
    desk.end_round()
    cheap = advert("eve", at="0.80")
    desk.hear(cheap)
    assert [ask for _, ask in pairs(desk.end_round())] == [cheap.body.ask.payload.id]


def test_a_bid_expires_after_its_start_by_and_keeps_what_stood_in_its_way(desk: Desk) -> None:
    wanted = order("bob", start_by=NOW_S + 20)
    desk.submit(wanted)
    desk.pass_time(20_000)
    assert desk.report(wanted).state is BidState.PENDING
    desk.pass_time(2_000)
    report = desk.report(wanted)
    assert report.state is BidState.EXPIRED
    assert report.rejection is not None
    assert report.rejection.field == "bid.product"
    assert desk.market.deadline is None


def test_an_empty_vault_is_named_as_the_reason(desk: Desk) -> None:
    desk.mine(*joined("poor"))
    poor, stranger = order("poor"), order("stranger")
    desk.hear(advert("ada"), advert("eve"))
    desk.submit(poor, stranger)
    assert pairs(desk.end_round()) == []
    reasons = [desk.report(each).rejection for each in (poor, stranger)]
    assert [why.reason for why in reasons if why is not None] == [
        RejectReason.CASH_TOO_LOW,
        RejectReason.UNKNOWN_ACCOUNT,
    ]


def test_money_of_openings_on_their_way_is_not_spent_twice(desk: Desk) -> None:
    desk.mine(*joined("thin", 1))
    first, second = order("thin", nonce=1), order("thin", nonce=2)
    desk.hear(advert("ada"), advert("eve"))
    desk.submit(first)
    assert len(pairs(desk.end_round())) == 1
    desk.submit(second)
    assert pairs(desk.end_round()) == []
    why = desk.report(second).rejection
    assert why is not None
    assert why.reason is RejectReason.CASH_TOO_LOW


def test_a_wrong_signature_is_rejected_with_its_reason(desk: Desk) -> None:
    forged = order("bob", signer="mallory")
    desk.submit(forged)
    report = desk.report(forged)
    assert report.state is BidState.REJECTED
    assert report.rejection is not None
    assert report.rejection.reason is RejectReason.KEY_NOT_AUTHORISED


def test_a_nonce_voided_on_chain_cancels_the_bids_that_carry_it(desk: Desk) -> None:
    low, high = order("bob", nonce=1, limit="0.10"), order("bob", nonce=5, limit="0.10")
    desk.submit(low, high)
    desk.mine(BidsCancelled(account=key("bob").address, nonce=3, below=True))
    assert desk.report(low).state is BidState.CANCELLED
    assert desk.report(high).state is BidState.PENDING
    late = order("bob", nonce=2)
    desk.submit(late)
    assert desk.report(late).state is BidState.REJECTED


@pytest.mark.parametrize(
    "event",
    [
        MachinePaused(machine=machine("ada"), paused=True),
        AsksCancelled(machine=machine("ada"), seq=2),
    ],
    ids=["paused", "cancelled"],
)
def test_an_ask_leaves_the_list_when_its_machine_is_not_for_rent(
    desk: Desk, event: MachinePaused | AsksCancelled
) -> None:
    offered = advert("ada")
    desk.hear(offered)
    assert desk.mine(event)[0] == UnlistAsk(ask=offered.body.ask.payload.id)
    desk.submit(order("bob"))
    assert pairs(desk.end_round()) == []


def test_an_ask_for_the_lease_after_the_running_one_is_listed_when_that_one_ends(
    desk: Desk,
) -> None:
    _, wanted = match_one(desk)
    lease = opened(wanted.bid.payload, machine("ada"), price(1))
    desk.mine(lease)
    following = advert("ada", seq=2, announced=2)
    assert desk.hear(following) == []
    closed = LeaseClosed(
        lease=lease.terms.key,
        reason=LeaseEndReason.STOPPED,
        paid=TokenAmount(400_000),
        at=NOW_S,
    )
    effects = desk.mine(closed)
    assert ListAsk(ask=following.body.ask.payload.id, advert=following) in effects
    (told,) = [effect.report for effect in effects if isinstance(effect, ReportLease)]
    assert (told.state, told.reason) == (LeaseState.CLOSED, LeaseEndReason.STOPPED)
    assert told.paid == TokenAmount(400_000)


def test_an_older_ask_gossiped_late_does_not_replace_a_newer_one(desk: Desk) -> None:
    new, old = advert("ada", at="1.50", start_by=NOW_S + 700), advert("ada", at="1.00")
    desk.hear(new)
    assert desk.hear(old) == []
    desk.submit(order("bob"))
    assert pairs(desk.end_round())[0][1] == new.body.ask.payload.id


def test_nothing_is_matched_while_the_chain_is_silent(desk: Desk) -> None:
    desk.hear(advert("ada"))
    desk.now += RULES.silence_ms + 1_000
    desk.submit(order("bob"))
    assert pairs(desk.pass_time(10_000)) == []
    desk.mine()
    assert len(pairs(desk.end_round())) == 1


def test_a_market_that_leasebook_does_not_know_matches_nothing() -> None:
    desk = Desk(msgspec.structs.replace(RULES, market_id=9))
    desk.mine(*provider("ada"), *joined("bob", 10))
    desk.hear(advert("ada"))
    desk.submit(order("bob"))
    assert pairs(desk.pass_time(5_000)) == []
    assert not desk.market.status().is_registered


def test_a_bid_sent_twice_is_one_bid(desk: Desk) -> None:
    wanted = order("bob")
    desk.hear(advert("ada"), advert("eve"))
    desk.submit(wanted, wanted)
    assert len(pairs(desk.end_round())) == 1


def test_matches_of_one_price_share_a_transaction_and_others_do_not(desk: Desk) -> None:
    desk.hear(advert("ada", 0), advert("ada", 1), advert("eve", 0, at="1.20"))
    desk.submit(*(order(buyer, nonce=n) for buyer in ("bob", "dan") for n in (1, 2)))
    found = [(batch.price, len(batch.matches)) for batch in batches(desk.end_round())]
    assert found == [(price("1.00"), 2), (price("1.20"), 1)]


def test_replaying_the_same_events_gives_the_same_effects_and_state(desk: Desk) -> None:
    match_one(desk)
    twin = Matchmaker(RULES)
    effects: list[MarketEffect] = []
    for event, now in desk.log:
        effects += twin.handle(event, now)
    assert effects == desk.effects
    assert twin.state_hash() == desk.market.state_hash()


def test_what_a_restart_restates_covers_every_opening_on_its_way(desk: Desk) -> None:
    match_one(desk)
    restated = desk.market.restated()
    (call,) = [effect.call for effect in restated if isinstance(effect, Transact)]
    assert call == batches(desk.effects)[-1]


def test_rules_change_by_an_event_and_the_next_round_has_the_new_length(desk: Desk) -> None:
    desk.tell(RulesSet(rules=msgspec.structs.replace(RULES, round_ms=300)))
    desk.submit(order("bob"))
    assert desk.market.deadline == desk.now + 300
    assert desk.tell(DeadlinePassed()) == []
