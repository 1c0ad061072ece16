"""GroupBuy in Python: calls as calldata, logs as chain events."""

from __future__ import annotations

from typing import Any, assert_never

from cloud_gpu.protocol import group_events as events
from cloud_gpu.protocol.adapters.bindings import group_buy as bound
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.calls import CloseCampaign, GroupCall, LockPledge, RefundPledge
from cloud_gpu.protocol.group_buy import Campaign
from cloud_gpu.protocol.orders import Ask
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest


def group_call(call: GroupCall) -> Call[int] | Call[None]:
    """The function of GroupBuy that does it."""
    campaign = campaign_row(call.campaign)
    match call:
        case LockPledge(pledge=signed):
            said = signed.payload
            pledge = bound.Pledge(
                buyer=said.buyer,
                campaign_id=said.campaign_id.raw,
                max_amount=said.max_amount.value,
                slices=said.slices,
                nonce=said.nonce,
            )
            return bound.lock_pledge(campaign, pledge, signed.signature.raw)
        case CloseCampaign(providers=providers):
            asks = tuple(_pledged(each, providers) for each in call.asks)
            return bound.close_campaign(campaign, providers, asks)
        case RefundPledge(place=place):
            return bound.refund_pledge(campaign, place)
        case _:
            assert_never(call)


def campaign_row(campaign: Campaign) -> bound.Campaign:
    """A campaign as calls carry it."""
    return bound.Campaign(
        organiser=campaign.organiser,
        product=campaign.product,
        price_per_hour=campaign.price_per_hour.value,
        duration=campaign.duration,
        goal=campaign.goal,
        window_start=campaign.window_start,
        deadline=campaign.deadline,
        market_id=campaign.market_id,
        providers_hash=campaign.providers_hash.raw,
    )


def _pledged(signed: Signed[Ask], providers: tuple[Address, ...]) -> bound.PledgedAsk:
    ask = signed.payload
    row = bound.Ask(
        provider=ask.provider,
        index=ask.index,
        seq=ask.seq,
        product=ask.product,
        min_price_per_hour=ask.min_price_per_hour.value,
        min_duration=ask.min_duration,
        max_duration=ask.max_duration,
        start_by=ask.start_by,
        matcher=ask.matcher,
        max_fee_bps=ask.max_fee_bps.value,
        flags=ask.flags,
    )
    place = providers.index(ask.provider) if ask.provider in providers else 0
    return bound.PledgedAsk(ask=row, signature=signed.signature.raw, place=place)


def group_event(name: str, a: dict[str, Any], at: int) -> events.GroupEvent | None:
    """The event of a decoded log in a block of time `at`; None for logs that tell no party."""
    match name:
        case "PledgeLocked":
            return events.PledgeLocked(
                campaign=Digest(a["campaignId"]),
                buyer=a["buyer"],
                place=a["place"],
                slices=a["slices"],
                amount=TokenAmount(a["amount"]),
                at=at,
            )
        case "CampaignClosed":
            campaign = Digest(a["campaignId"])
            return events.CampaignClosed(campaign=campaign, leases=a["leases"], at=at)
        case "PledgeRefunded":
            return events.PledgeRefunded(
                campaign=Digest(a["campaignId"]),
                buyer=a["buyer"],
                place=a["place"],
                amount=TokenAmount(a["amount"]),
                at=at,
            )
        case _:
            return None
