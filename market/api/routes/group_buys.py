"""Group buys: campaigns opened and looked at, pledges handed in, notices to their people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import ReportCampaign
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.group_buy import CampaignOffer, Pledge, SignedCampaign
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignPage,
    CampaignReport,
    CampaignState,
    GroupLease,
    PledgeReport,
    PledgeState,
)
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import Address, Digest
from market.api.bodies import check_key, parsed, read_id
from market.api.errors import Refused
from market.api.front import Front, front_of
from market.api.pages import page
from market.api.schemas import answers, json_list, takes
from market.doors.group_door import (
    NOT_KEPT,
    check_campaign,
    check_pledge,
    takes_no_pledges,
    unknown_campaign,
)
from market.ports import OrderKind, SoundOrder

ANSWERED_MAX = 500
_ASKS_MAX = 1_000
_Limit = Annotated[int, Query(ge=1, le=ANSWERED_MAX)]
_After = Annotated[int, Query(ge=0, le=2**53 - 1)]

router = APIRouter(prefix="/v1", tags=["group buys"])


@router.post(
    "/group-buys",
    status_code=201,
    responses=answers(SignedReceipt, status=201),
    openapi_extra=takes(SignedCampaign, keyed=True),
)
async def open_campaign(request: Request) -> Response:
    """Keep a campaign: its organiser's statement on disk, then the receipt, whose `order` is the
    campaign's id. The same again: 200, the same place.
    """
    front = front_of(request)
    body = await request.body()
    offer = parsed(body, SignedCampaign, "body")
    domain = front.rules.group_buy_domain
    if domain is None:
        raise Refused(NOT_KEPT)
    key = offer.body.campaign.id_in(domain)
    check_key(request, key)
    await front.know_product(offer.body.campaign.product)
    refused = check_campaign(offer, rules=front.rules, products=front.known_products, at=front.at)
    sound = SoundOrder(kind=OrderKind.CAMPAIGN, id=key, octets=body)
    return (await front.place(sound, offer.body.campaign.organiser, refused)).response


@router.get("/group-buys", responses=answers(CampaignReport, many=True))
async def campaigns(
    request: Request,
    product: Annotated[int | None, Query(ge=1, lt=2**32)] = None,
    state: CampaignState | None = None,
    after: _After = 0,
    limit: _Limit = 100,
) -> Response:
    """Campaigns that satisfy every filter given, oldest first; `after` is the last one's number."""
    front = front_of(request)
    found = await front.in_thread(
        front.groups.campaigns, product=product, state=state, after=after, count_max=limit + 1
    )
    return _numbered(request, found, limit)


@router.get("/group-buys/{campaign}", responses=answers(CampaignPage))
async def campaign(request: Request, campaign: str) -> Response:
    """A campaign with its pledges, what it still misses, and its price beside the spot price."""
    front = front_of(request)
    told = await _told(front, read_id("campaign", campaign, Digest.parse))
    spot = await front.in_thread(_spot_price, front, told.report.campaign.product)
    page = CampaignPage(
        report=told.report,
        pledges=told.pledges,
        spot_per_hour=spot,
        of_spot_bps=_share_of(told.report.campaign.price_per_hour, spot),
    )
    return Response(to_json(page), media_type="application/json")


@router.get("/group-buys/{campaign}/leases", responses=answers(GroupLease, many=True))
async def leases(request: Request, campaign: str, buyer: str | None = None) -> Response:
    """Leases that a campaign opened, with their nodes' addresses; one buyer's, or all."""
    front = front_of(request)
    told = await _told(front, read_id("campaign", campaign, Digest.parse))
    account = read_id("buyer", buyer, Address.parse) if buyer is not None else None
    found = [each for each in told.leases if account in (None, each.buyer)]
    return Response(json_list([to_json(each) for each in found]), media_type="application/json")


@router.post(
    "/group-buys/{campaign}/pledges",
    status_code=201,
    responses=answers(SignedReceipt, status=201),
    openapi_extra=takes(Signed[Pledge], keyed=True),
)
async def pledge(request: Request, campaign: str) -> Response:
    """Take a pledge: on disk first, then the receipt; the market has it locked on chain. It
    cannot be withdrawn. The same again: 200, the same place.
    """
    front = front_of(request)
    key = read_id("campaign", campaign, Digest.parse)
    body = await request.body()
    signed = parsed(body, Signed[Pledge], "body")
    order = signed.payload.id
    check_key(request, order)
    refused = await _refused_pledge(front, key, signed)
    sound = SoundOrder(kind=OrderKind.PLEDGE, id=order, octets=body)
    return (await front.place(sound, signed.payload.buyer, refused)).response


async def _refused_pledge(front: Front, key: Digest, signed: Signed[Pledge]) -> Rejection | None:
    if signed.payload.campaign_id != key:
        return Rejection(
            reason=RejectReason.MALFORMED,
            field="pledge.campaign_id",
            found=str(signed.payload.campaign_id),
            needed=f"{key}, as in the path",
            next="Sign the campaign's id, or post to that campaign.",
        )
    told = await _told(front, key)
    if (closed := takes_no_pledges(told.report.state)) is not None:
        return closed
    await front.know_product(told.report.campaign.product)
    found = check_pledge(
        signed,
        campaign=told.report.campaign,
        rules=front.rules,
        products=front.known_products,
        at=front.at,
    )
    return found if isinstance(found, Rejection) else None


@router.get("/group-buys/{campaign}/pledges/{pledge}", responses=answers(PledgeReport))
async def pledge_report(request: Request, campaign: str, pledge: str) -> Response:
    """How far a pledge has come that was handed in here, and why it was refused."""
    front = front_of(request)
    of, key = (
        read_id("campaign", campaign, Digest.parse),
        read_id("pledge", pledge, Digest.parse),
    )
    report = await front.in_thread(front.groups.pledge, key)
    if report is None:
        kept = await front.in_thread(front.inbox.kept, OrderKind.PLEDGE, key)
        if kept is not None:
            report = PledgeReport(pledge=key, campaign=of, state=PledgeState.WAITING)
    if report is None or report.campaign != of:
        raise Refused(
            Rejection(
                reason=RejectReason.UNKNOWN_ORDER,
                field="pledge",
                found=str(key),
                needed="a pledge that this market has taken for that campaign",
                next="Use the struct hash of the pledge, as in its receipt.",
            )
        )
    return Response(to_json(report), media_type="application/json")


@router.get("/notices", responses=answers(CampaignNotice, many=True))
async def notices(
    request: Request, account: str, after: _After = 0, limit: _Limit = 100
) -> Response:
    """What an account should know of its campaigns, oldest first; `after` is the last number."""
    front = front_of(request)
    key = read_id("account", account, Address.parse)
    found = await front.in_thread(front.groups.notices, key, after, limit + 1)
    return _numbered(request, found, limit)


def _numbered(
    request: Request, found: Sequence[CampaignReport | CampaignNotice], limit: int
) -> Response:
    shown = found[:limit]
    following = {"after": str(shown[-1].number)} if len(found) > limit else None
    return page(request, [to_json(each) for each in shown], following)


async def _told(front: Front, campaign: Digest) -> ReportCampaign:
    """What is known of a campaign; of one that the matchmaker has not read yet, its terms."""
    found = await front.in_thread(front.groups.campaign, campaign)
    if found is not None:
        return found
    offer = await front.in_thread(front.inbox.campaign, campaign)
    if offer is None:
        raise Refused(unknown_campaign(campaign))
    return ReportCampaign(report=_new(campaign, offer.body, front), pledges=(), leases=())


def _new(campaign: Digest, offer: CampaignOffer, front: Front) -> CampaignReport:
    return CampaignReport(
        id=campaign,
        number=0,
        campaign=offer.campaign,
        providers=offer.providers,
        state=CampaignState.GATHERING,
        listed_at=front.at,
        pledges=0,
        slices=0,
        missing_slices=offer.campaign.goal,
        machines=0,
        missing_machines=offer.campaign.goal,
    )


def _spot_price(front: Front, product: int) -> Price | None:
    """The cheapest ask on offer for a product now; blocks."""
    front.read_products(product)
    known = front.known_products.get(product)
    if known is None:
        return None
    at = front.at
    return _cheapest(front.view.asks(known.gpu_class, _ASKS_MAX, at), product)


def _cheapest(asks: Sequence[SignedAdvert], product: int) -> Price | None:
    prices = (each.body.ask.payload for each in asks)
    return min((ask.min_price_per_hour for ask in prices if ask.product == product), default=None)


def _share_of(price: Price, spot: Price | None) -> int | None:
    return price.value * 10_000 // spot.value if spot else None
