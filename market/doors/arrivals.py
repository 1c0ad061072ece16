"""What came out of the inbox, as it is published: where the holder of a receipt finds its order."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import (
    MarketEffect,
    ReportBid,
    ReportCampaign,
    ReportFuture,
    ReportPledge,
)
from cloud_gpu.protocol.events import (
    BidSubmitted,
    BidWithdrawn,
    CampaignSubmitted,
    FutureSubmitted,
    PledgeSubmitted,
)
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.merkle import Tree, leaf_of
from cloud_gpu.protocol.rounds import Arrival, ArrivalKind, PublishedRound, Sequenced
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from market.rules import MarketRules, MatchmakerEvent


def arrival_of(
    event: MatchmakerEvent, out: Sequence[MarketEffect], rules: MarketRules, journal: int
) -> Arrival | None:
    """None: the event did not come out of the inbox. `out` is what the market answered to it."""
    order: Digest
    match event:
        case BidSubmitted():
            kind = ArrivalKind.BLOCK if event.order.terms.block else ArrivalKind.BID
            order = event.order.bid.payload.id
        case FutureSubmitted():
            kind, order = ArrivalKind.FUTURE, event.order.payload.id
        case BidWithdrawn():
            kind, order = ArrivalKind.CANCELLATION, event.bid
        case CampaignSubmitted():
            domain = rules.group_buy_domain
            campaign = event.offer.body.campaign
            # Rules that know no group buys name no campaign: nobody was told of it.
            order = campaign.id_in(domain) if domain is not None else ZERO_DIGEST
            kind = ArrivalKind.CAMPAIGN
        case PledgeSubmitted():
            kind, order = ArrivalKind.PLEDGE, event.pledge.payload.id
        case _:
            return None
    refused = "" if kind is ArrivalKind.CANCELLATION else _refusal(order, out)
    return Arrival(inbox=event.inbox, order=order, kind=kind, journal=journal, refused=refused)


def sequenced(published: PublishedRound, inbox: int) -> Sequenced | None:
    """The arrival at a position of the inbox; None: the round has none there."""
    arrivals = published.body.arrivals
    tree = Tree([leaf_of(to_json(each)) for each in arrivals])
    for place, each in enumerate(arrivals):
        if each.inbox == inbox:
            return Sequenced(header=published.header, arrival=each, path=tree.path(place))
    return None


def _refusal(order: Digest, out: Sequence[MarketEffect]) -> str:
    for effect in reversed(out):
        match effect:
            case ReportBid(report=bid) if bid.bid == order:
                is_refused, why = bid.state is BidState.REJECTED, bid.rejection
            case ReportFuture(report=future) if future.order == order:
                is_refused, why = future.state is BidState.REJECTED, future.rejection
            case ReportCampaign(report=campaign) if campaign.id == order:
                is_refused, why = True, campaign.rejection
            case ReportPledge(report=pledge) if pledge.pledge == order:
                is_refused, why = True, pledge.rejection
            case _:
                continue
        return why.reason.value if is_refused and why is not None else ""
    return ""
