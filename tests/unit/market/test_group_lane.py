"""Group buys by hand: at the door, gathering, on their way to the chain, open, failed, undone."""

from __future__ import annotations

import msgspec
import pytest

from cloud_gpu.protocol.calls import CloseCampaign, LockPledge, RefundPledge
from cloud_gpu.protocol.chain_events import ChainReorganised, TransactionFailed
from cloud_gpu.protocol.effects import KeepNotice, ReportFuture
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import FutureSubmitted
from cloud_gpu.protocol.group_buy import providers_hash
from cloud_gpu.protocol.group_reports import CampaignState, PledgeState
from cloud_gpu.protocol.match import BidState
from market.lanes.group_lane import CAMPAIGNS_PER_ACCOUNT_MAX
from market.matchmaker import Matchmaker
from market.rules import RulesSet
from tests.unit.market.builders import NOW_S, advert, key, order, provider
from tests.unit.market.futures_builders import FUTURES_DOMAIN, future
from tests.unit.market.group_builders import (
    COST,
    DEADLINE,
    GROUP_RULES,
    GroupDesk,
    calls,
    campaign,
    group_ask,
    pledge,
)


@pytest.fixture
def desk() -> GroupDesk:
    return GroupDesk()


def reached(desk: GroupDesk, *, machines: int = 3) -> CloseCampaign:
    """Three members pledge to a campaign of three, and so many machines are there."""
    offer = campaign()
    desk.open(offer)
    desk.hear(*(group_ask(index=index) for index in range(machines)))
    for buyer in ("bob", "cat"):
        assert not calls(desk.lock(offer, buyer))
    (call,) = calls(desk.lock(offer, "dan"))
    assert isinstance(call, CloseCampaign)
    return call


def test_at_the_goal_the_leases_open_in_one_call(desk: GroupDesk) -> None:
    call = reached(desk)
    assert sorted(ask.payload.index for ask in call.asks) == [0, 1, 2]
    offer = campaign()
    assert desk.campaign(offer).report.state is CampaignState.REACHED
    desk.mine(*desk.closed(call, "bob", "cat", "dan"))
    told = desk.campaign(offer)
    assert (told.report.state, told.report.leases) == (CampaignState.OPENED, 3)
    assert [each.state for each in told.pledges] == [PledgeState.SERVED] * 3
    assert [each.buyer for each in told.leases] == [
        key(name).address for name in ("bob", "cat", "dan")
    ]
    assert all(each.advert is not None for each in told.leases)
    assert desk.kinds("bob") == ["pledged", "half", "reached", "leases-opened"]
    assert desk.kinds("olga") == ["listed", "half", "reached"]
    assert desk.notices("dan")[-1].leases == (told.leases[2].lease,)


def test_a_missed_goal_gives_every_pledge_back(desk: GroupDesk) -> None:
    offer = campaign()
    desk.open(offer)
    desk.lock(offer, "bob")
    desk.lock(offer, "cat")
    desk.now = (DEADLINE + 1) * 1000
    found = calls(desk.mine())
    assert found == [RefundPledge(campaign=offer.body.campaign, place=n) for n in (0, 1)]
    assert not calls(desk.mine()), "each is posted once"
    assert desk.campaign(offer).report.state is CampaignState.FAILED
    assert desk.notices("bob")[-1].amount == COST
    desk.mine(*desk.refunded(offer, 0, "bob"), *desk.refunded(offer, 1, "cat"))
    told = desk.campaign(offer)
    assert told.report.state is CampaignState.REFUNDED
    assert [each.state for each in told.pledges] == [PledgeState.REFUNDED] * 2
    assert desk.kinds("cat") == ["pledged", "half", "failed", "refunded"]


def test_a_pledge_handed_in_is_posted_and_its_cash_is_spoken_for(desk: GroupDesk) -> None:
    offer = campaign()
    desk.open(offer)
    signed = pledge(offer, "bob", 3)
    (call,) = calls(desk.hand_in(signed))
    assert call == LockPledge(campaign=offer.body.campaign, pledge=signed)
    assert desk.pledge(signed).state is PledgeState.WAITING
    more = pledge(offer, "bob", 3, nonce=1)
    desk.hand_in(more)
    refused = desk.pledge(more)
    assert refused.rejection is not None
    assert refused.rejection.reason is RejectReason.CASH_TOO_LOW
    desk.lock(offer, "bob", 3)
    assert (desk.pledge(signed).state, desk.pledge(signed).place) == (PledgeState.LOCKED, 0)
    late = order("bob", nonce=0)
    desk.submit(late)
    assert desk.report(late).rejection is not None, "the pledge used the nonce"


def test_no_future_takes_the_nonce_of_a_pledge_on_its_way(desk: GroupDesk) -> None:
    both = msgspec.structs.replace(GROUP_RULES, futures_domain=FUTURES_DOMAIN)
    desk.tell(RulesSet(rules=both))
    offer = campaign()
    desk.open(offer)
    desk.hand_in(pledge(offer, "bob", nonce=3))
    desk.inbox += 1
    order_ = future("bob", buys=True, nonce=3)
    effects = desk.tell(FutureSubmitted(order=order_, inbox=desk.inbox))
    (told,) = (each.report for each in effects if isinstance(each, ReportFuture))
    assert told.rejection is not None
    assert told.rejection.reason is RejectReason.NONCE_USED


def test_a_refused_ask_is_left_out_the_next_time(desk: GroupDesk) -> None:
    call = reached(desk, machines=4)
    first = [ask.payload.index for ask in call.asks]
    error = "GroupBuy_AskRefused(index=1, code=BAD_ASK_SIGNATURE)"
    desk.tell(TransactionFailed(call=call, error=error))
    again = [c for c in calls(desk.pass_time(20_000) + desk.mine()) if c != call]
    (second,) = again
    assert isinstance(second, CloseCampaign)
    left = [ask.payload.index for ask in second.asks]
    assert first[1] not in left
    assert len(left) == 3


def test_a_block_that_vanishes_takes_its_notices_back(desk: GroupDesk) -> None:
    call = reached(desk)
    before = desk.block
    desk.mine(*desk.closed(call, "bob", "cat", "dan"))
    desk.tell(ChainReorganised(block=before))
    desk.mine()
    assert desk.campaign(campaign()).report.state is CampaignState.REACHED
    last = desk.notices("bob")[-1]
    assert last.undone is not None
    assert last.undone.value == "leases-opened"
    desk.mine(*desk.closed(call, "bob", "cat", "dan"))
    assert desk.kinds("bob")[-1] == "leases-opened"


def test_the_journal_gives_the_same_market(desk: GroupDesk) -> None:
    call = reached(desk)
    desk.mine(*desk.closed(call, "bob", "cat", "dan"))
    again = Matchmaker(GROUP_RULES)
    effects = [effect for event, now in desk.log for effect in again.handle(event, now)]
    assert effects == desk.effects
    assert again.state_hash() == desk.market.state_hash()


def test_a_near_deadline_is_told_and_the_goal_still_opens(desk: GroupDesk) -> None:
    offer = campaign()
    desk.open(offer)
    desk.lock(offer, "bob")
    near_s = (DEADLINE - NOW_S) // 4
    desk.now = (DEADLINE - near_s - 1) * 1000
    desk.mine()
    assert "deadline-near" not in desk.kinds("bob")
    desk.pass_time(1_000)
    assert desk.kinds("bob")[-1] == "deadline-near"
    assert desk.kinds("olga")[-1] == "deadline-near"


def test_a_campaign_waits_for_machines_that_fit_it(desk: GroupDesk) -> None:
    """Dearer ones, other providers', and a buyer's own serve nothing."""
    ada = key("ada").address
    offer = campaign(goal=2, providers=(ada,), providers_hash=providers_hash((ada,)))
    desk.mine(*provider("bob", 2, bond=100))
    desk.open(offer)
    desk.hear(group_ask("bob", 0), group_ask("bob", 1), group_ask("ada", 0, at="2.01"))
    assert not calls(desk.lock(offer, "cat", 2))
    report = desk.campaign(offer).report
    assert (report.state, report.missing_machines) == (CampaignState.REACHED, 2)
    desk.hear(group_ask("ada", 1))
    desk.mine()
    assert desk.campaign(offer).report.missing_machines == 1
    desk.hear(group_ask("ada", 2))
    (call,) = calls(desk.mine())
    assert isinstance(call, CloseCampaign)
    assert call.providers == (ada,)
    assert {ask.payload.index for ask in call.asks} == {1, 2}


def test_machines_on_their_way_to_a_campaign_are_not_sold_again(desk: GroupDesk) -> None:
    desk.hear(*(advert("ada", index) for index in range(3)))
    call = reached(desk)
    bid = order("eve")
    desk.submit(bid)
    desk.end_round()
    assert desk.report(bid).state is BidState.PENDING
    desk.tell(TransactionFailed(call=call, error="Reverted"))
    desk.pass_time(GROUP_RULES.round_ms)
    assert desk.report(bid).state is BidState.MATCHED


def test_an_organiser_keeps_a_bounded_number_of_campaigns(desk: GroupDesk) -> None:
    for number in range(CAMPAIGNS_PER_ACCOUNT_MAX):
        desk.open(campaign(deadline=DEADLINE + number))
    last = campaign(deadline=DEADLINE - 1)
    desk.open(last)
    report = desk.campaign(last).report
    assert report.rejection is not None
    assert report.rejection.reason is RejectReason.RATE_LIMITED


def test_a_pledge_that_the_chain_refuses_says_why_and_frees_its_cash(desk: GroupDesk) -> None:
    offer = campaign()
    desk.open(offer)
    signed = pledge(offer, "bob", 5)
    (call,) = calls(desk.hand_in(signed))
    desk.tell(TransactionFailed(call=call, error="GroupBuy_OpeningsPaused(until=9)"))
    report = desk.pledge(signed)
    assert report.state is PledgeState.REFUSED
    assert report.rejection is not None
    assert "OpeningsPaused" in report.rejection.found
    assert calls(desk.hand_in(pledge(offer, "bob", 5, nonce=1)))


def test_what_was_not_answered_is_stated_again_after_a_restart(desk: GroupDesk) -> None:
    offer = campaign()
    desk.open(offer)
    (lock,) = calls(desk.hand_in(pledge(offer, "eve")))
    call = reached(desk)
    again = desk.market.restated()
    assert calls(again) == [lock, call]
    assert [e for e in again if isinstance(e, KeepNotice)] == [
        e for e in desk.effects if isinstance(e, KeepNotice)
    ]


def test_campaigns_that_the_market_does_not_keep(desk: GroupDesk) -> None:
    refusals = {
        RejectReason.WRONG_MATCHER: campaign(market_id=2),
        RejectReason.UNKNOWN_PRODUCT: campaign(product=9),
        RejectReason.EXPIRED: campaign(window_start=0, deadline=NOW_S - 1),
        RejectReason.DURATION_OUTSIDE_LIMITS: campaign(deadline=NOW_S + 15 * 86_400),
        RejectReason.KEY_NOT_AUTHORISED: campaign(signer="eve"),
    }
    for reason, offer in refusals.items():
        desk.open(offer)
        report = desk.campaign(offer).report
        assert report.state is CampaignState.REFUSED
        assert report.rejection is not None
        assert (report.rejection.reason, bool(report.rejection.needed)) == (reason, True)
