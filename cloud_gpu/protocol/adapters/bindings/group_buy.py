"""GroupBuy's calls and views. Generated from its ABI by `make contracts`; do not edit."""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.adapters.evm_bound import Call, Row
from cloud_gpu.protocol.values import Address

_CONTRACT: Final = "GroupBuy"


class Ask(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    product: int
    min_price_per_hour: int
    min_duration: int
    max_duration: int
    start_by: int
    matcher: Address
    max_fee_bps: int
    flags: int


class Campaign(Row, frozen=True):
    organiser: Address
    product: int
    price_per_hour: int
    duration: int
    goal: int
    window_start: int
    deadline: int
    market_id: int
    providers_hash: bytes


class CampaignState(Row, frozen=True):
    slices: int
    pledges: int
    closed: bool


class Eip712DomainAnswer(Row, frozen=True):
    fields: bytes
    name: str
    version: str
    chain_id: int
    verifying_contract: Address
    salt: bytes
    extensions: tuple[int, ...]


class LockedPledge(Row, frozen=True):
    buyer: Address
    slices: int
    amount: int


class Pledge(Row, frozen=True):
    buyer: Address
    campaign_id: bytes
    max_amount: int
    slices: int
    nonce: int


class PledgedAsk(Row, frozen=True):
    ask: Ask
    signature: bytes
    place: int


def domain_separator() -> Call[bytes]:
    return Call(_CONTRACT, "DOMAIN_SEPARATOR", (), Call.alone)


def close_campaign(
    campaign: Campaign, providers: tuple[Address, ...], asks: tuple[PledgedAsk, ...]
) -> Call[None]:
    return Call(
        _CONTRACT,
        "closeCampaign",
        (
            campaign,
            providers,
            asks,
        ),
        Call.nothing,
    )


def eip712_domain() -> Call[Eip712DomainAnswer]:
    return Call(_CONTRACT, "eip712Domain", (), Eip712DomainAnswer)


def id_of(campaign: Campaign) -> Call[bytes]:
    return Call(_CONTRACT, "idOf", (campaign,), Call.alone)


def lease_book() -> Call[Address]:
    return Call(_CONTRACT, "leaseBook", (), Call.alone)


def lock_pledge(campaign: Campaign, pledge: Pledge, signature: bytes) -> Call[int]:
    return Call(
        _CONTRACT,
        "lockPledge",
        (
            campaign,
            pledge,
            signature,
        ),
        Call.alone,
    )


def pledge_of(campaign_id: bytes, place: int) -> Call[LockedPledge]:
    return Call(
        _CONTRACT,
        "pledgeOf",
        (
            campaign_id,
            place,
        ),
        LockedPledge.of,
    )


def refund_pledge(campaign: Campaign, place: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "refundPledge",
        (
            campaign,
            place,
        ),
        Call.nothing,
    )


def state_of(campaign_id: bytes) -> Call[CampaignState]:
    return Call(_CONTRACT, "stateOf", (campaign_id,), CampaignState.of)
