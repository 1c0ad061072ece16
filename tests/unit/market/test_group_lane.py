"""Group buys by hand: at the door, gathering, on their way to the chain, open, failed, undone."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.calls import CloseCampaign, LockPledge, RefundPledge
from cloud_gpu.protocol.chain_events import ChainReorganised, TransactionFailed
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.group_reports import CampaignState, PledgeState
from market.matchmaker import Matchmaker
from tests.unit.market.builders import NOW_S, key, order
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
