"""Group buys at the market's door: campaigns, pledges and asks in, or a reason out.

`check_campaign` and `check_pledge` are asked by the API and again by the matchmaker, and depend on
their arguments alone. What stands beside other orders is `group_lane`'s to decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.group_buy import CAMPAIGN_S_MAX, Campaign, Pledge, SignedCampaign
from cloud_gpu.protocol.group_reports import CampaignState
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.orders import Ask, AskFlags, SignedAdvert
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.signing import Signed, Verified, verify, verify_statement
from cloud_gpu.protocol.units import TokenAmount, format_duration, format_tokens
from cloud_gpu.protocol.values import Digest
from market.books.ledger import Ledger
from market.doors.intake import check_advert
from market.rules import MarketRules

TAKES_PLEDGES: Final = (CampaignState.GATHERING, CampaignState.REACHED)
NOT_KEPT: Final = Rejection(
    reason=RejectReason.WRONG_STATE,
    field="campaign",
    found="a market without group buys",
    needed="a deployment that has GroupBuy",
    next="Use another market.",
)


def check_campaign(
    offer: SignedCampaign, *, rules: MarketRules, products: Mapping[int, Product], at: int
) -> Rejection | None:
    """Why this market does not keep the campaign; None: it does. `at` in Unix seconds.

    Rejects: WRONG_STATE (no group buys here), WRONG_MATCHER (another market's), UNKNOWN_PRODUCT,
    CAP_OUT_OF_RANGE, EXPIRED, DURATION_OUTSIDE_LIMITS, BAD_SIGNATURE, KEY_NOT_AUTHORISED.
    """
    campaign = offer.body.campaign
    if rules.group_buy_domain is None:
        return NOT_KEPT
    refused = (
        _wrong_market(campaign, rules)
        or _wrong_price(campaign, products.get(campaign.product))
        or _wrong_time(campaign, at)
    )
    if refused is not None:
        return refused
    return verify_statement(
        offer, rules.domain, account=campaign.organiser, keys=NoDelegates(), role=None, at=at
    )


def _refused(
    reason: RejectReason, field: str, found: object, needed: str, next_: str = ""
) -> Rejection:
    return Rejection(reason=reason, field=field, found=str(found), needed=needed, next=next_)


def _wrong_market(campaign: Campaign, rules: MarketRules) -> Rejection | None:
    if campaign.market_id == rules.market_id:
        return None
    return _refused(
        RejectReason.WRONG_MATCHER,
        "campaign.market_id",
        campaign.market_id,
        f"{rules.market_id}, this market, which keeps the campaign for its fee",
        "GET /v1/market says its number.",
    )


def _wrong_price(campaign: Campaign, product: Product | None) -> Rejection | None:
    if product is None:
        return _refused(
            RejectReason.UNKNOWN_PRODUCT,
            "campaign.product",
            campaign.product,
            "a product that is registered in LeaseBook",
            "GET /v1/products lists them.",
        )
    cost = campaign.cost(product.slice_gpus).value
    if 1 <= cost <= limits.LEASE_CAP_MAX:
        return None
    return _refused(
        RejectReason.CAP_OUT_OF_RANGE,
        "campaign.price_per_hour",
        f"{cost} base units a lease",
        f"1 to {limits.LEASE_CAP_MAX}",
        "Choose another price or duration.",
    )


def _wrong_time(campaign: Campaign, at: int) -> Rejection | None:
    if campaign.deadline <= at:
        needed, next_ = f"later than {at}", "Choose a later deadline."
        return _refused(RejectReason.EXPIRED, "campaign.deadline", campaign.deadline, needed, next_)
    if campaign.deadline <= at + CAMPAIGN_S_MAX:
        return None
    return _refused(
        RejectReason.DURATION_OUTSIDE_LIMITS,
        "campaign.deadline",
        format_duration(campaign.deadline - at) + " from now",
        f"at most {format_duration(CAMPAIGN_S_MAX)} from now: no pledge is locked for longer",
        "Choose an earlier deadline, or open the campaign later.",
    )


def check_pledge(
    pledge: Signed[Pledge],
    *,
    campaign: Campaign,
    rules: MarketRules,
    products: Mapping[int, Product],
    at: int,
) -> Verified[Pledge] | Rejection:
    """Whether the pledge can be locked for its campaign; `at` in Unix seconds.

    Rejects: WRONG_STATE, EXPIRED, UNKNOWN_PRODUCT, CAP_OUT_OF_RANGE, BAD_SIGNATURE,
    KEY_NOT_AUTHORISED.
    """
    if rules.group_buy_domain is None:
        return NOT_KEPT
    product = products.get(campaign.product)
    refused = _wrong_price(campaign, product)
    if refused is not None:
        return refused
    assert product is not None, "a price is right for a product"
    said = pledge.payload
    if campaign.deadline <= at:
        needed = f"a campaign whose deadline, {campaign.deadline}, is later than {at}"
        next_ = "GET /v1/group-buys lists others."
        return _refused(RejectReason.EXPIRED, "pledge.campaign_id", said.campaign_id, needed, next_)
    needs = pledged_amount(said, campaign, product)
    if needs > said.max_amount.value:
        return _refused(
            RejectReason.CAP_OUT_OF_RANGE,
            "pledge.max_amount",
            f"{said.max_amount.value} base units",
            f"at least {needs}, {said.slices} times the campaign's price of a lease",
            "Allow that much, or pledge fewer slices.",
        )
    # Only the buyer's own key: a pledge is money.
    return verify(pledge, rules.group_buy_domain, account=said.buyer, keys=NoDelegates(), at=at)


def takes_no_pledges(state: CampaignState) -> Rejection | None:
    """WRONG_STATE for a campaign that is open or over."""
    if state in TAKES_PLEDGES:
        return None
    return _refused(
        RejectReason.WRONG_STATE,
        "pledge.campaign_id",
        f"a campaign that is {state}",
        "one that takes pledges",
        "GET /v1/group-buys lists others.",
    )


def pledged_amount(pledge: Pledge, campaign: Campaign, product: Product) -> int:
    """What it locks, base units."""
    return campaign.cost(product.slice_gpus).value * pledge.slices


def unknown_campaign(campaign: Digest) -> Rejection:
    """A pledge to, or a question about, a campaign that nobody opened here."""
    return _refused(
        RejectReason.UNKNOWN_ORDER,
        "campaign",
        campaign,
        "a campaign that this market keeps",
        "GET /v1/group-buys lists them.",
    )


def cash_too_low(found: int, needed: TokenAmount) -> Rejection:
    """The buyer's cash does not cover its pledge."""
    return _refused(
        RejectReason.CASH_TOO_LOW,
        "pledge.buyer",
        f"{format_tokens(found)} tokens free in the vault",
        f"{format_tokens(needed)} tokens, what the pledge locks",
        "Deposit more, or pledge fewer slices.",
    )


def check_group_ask(
    advert: SignedAdvert, *, rules: MarketRules, ledger: Ledger, at: int
) -> Verified[Ask] | Rejection:
    """Whether the ask may serve group buys: as `check_advert`, with GroupBuy for its matcher."""
    assert rules.group_buy_domain is not None, "group buys are kept here"
    of_module = msgspec.structs.replace(rules, matcher=rules.group_buy_domain.verifying_contract)
    ask = check_advert(advert, rules=of_module, ledger=ledger, at=at)
    if isinstance(ask, Rejection) or not ask.payload.flags & ~int(AskFlags.VERIFIED):
        return ask
    return _refused(
        RejectReason.FLAGS_DIFFER,
        "ask.flags",
        ask.payload.flags,
        "no interruptible lease: nobody pledges for one",
        "Sign the ask without the flag.",
    )
