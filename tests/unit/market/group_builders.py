"""Campaigns, pledges and chain facts of group buys for the market's tests: signed for real."""

from __future__ import annotations

import msgspec

from cloud_gpu.protocol.calls import ChainCall, CloseCampaign, LockPledge, RefundPledge
from cloud_gpu.protocol.chain_events import CashChanged, ChainEvent, LeaseOpened
from cloud_gpu.protocol.effects import (
    KeepNotice,
    MarketEffect,
    ReportCampaign,
    ReportPledge,
    Transact,
)
from cloud_gpu.protocol.events import CampaignSubmitted, PledgeSubmitted
from cloud_gpu.protocol.group_buy import (
    GROUP_BUY,
    Campaign,
    CampaignOffer,
    Pledge,
    SignedCampaign,
)
from cloud_gpu.protocol.group_events import CampaignClosed, PledgeLocked, PledgeRefunded
from cloud_gpu.protocol.group_reports import CampaignNotice, PledgeReport
from cloud_gpu.protocol.lease import LeaseKey, LeaseTerms
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.signing import Domain, Signed, sign, state
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from tests.unit.market.builders import (
    DOMAIN,
    NOW_S,
    RULES,
    Desk,
    advert,
    joined,
    key,
    price,
    provider,
)

GROUP_DOMAIN = Domain(name=GROUP_BUY, chain_id=31337, verifying_contract=Address(b"\x1f" * 20))
GROUP_RULES = msgspec.structs.replace(RULES, group_buy_domain=GROUP_DOMAIN)
DEADLINE = NOW_S + 8_000
COST = TokenAmount(2_000_000)
"""Of a lease: an hour at 2.00."""


def campaign(
    organiser: str = "olga",
    *,
    goal: int = 3,
    providers: tuple[Address, ...] = (),
    signer: str | None = None,
    **changes: object,
) -> SignedCampaign:
    fields: dict[str, object] = {
        "organiser": key(organiser).address,
        "product": 1,
        "price_per_hour": price("2.00"),
        "duration": 3_600,
        "goal": goal,
        "window_start": NOW_S,
        "deadline": DEADLINE,
        "market_id": 1,
    }
    offer = CampaignOffer(campaign=Campaign(**(fields | changes)), providers=providers)  # type: ignore[arg-type]
    return state(offer, DOMAIN, key(signer or organiser), nonce=1, expiry=NOW_S + 86_400)


def id_of(offer: SignedCampaign) -> Digest:
    return offer.body.campaign.id_in(GROUP_DOMAIN)


def pledge(
    offer: SignedCampaign,
    buyer: str,
    slices: int = 1,
    *,
    nonce: int = 0,
    signer: str | None = None,
    **changes: object,
) -> Signed[Pledge]:
    fields: dict[str, object] = {
        "buyer": key(buyer).address,
        "campaign_id": id_of(offer),
        "max_amount": TokenAmount(COST.value * slices),
        "slices": slices,
        "nonce": nonce,
    }
    return sign(Pledge(**(fields | changes)), GROUP_DOMAIN, key(signer or buyer))  # type: ignore[arg-type]


def group_ask(name: str = "ada", index: int = 0, **changes: object) -> SignedAdvert:
    """An ask with GroupBuy for its matcher, valid beyond the deadline."""
    fields: dict[str, object] = {
        "matcher": GROUP_DOMAIN.verifying_contract,
        "start_by": DEADLINE + 600,
    }
    return advert(name, index, **(fields | changes))  # type: ignore[arg-type]


class GroupDesk(Desk):
    """A market with four machines of ada's, and members with ten tokens each."""

    MEMBERS = ("bob", "cat", "dan", "eve", "olga")

    def __init__(self) -> None:
        super().__init__(GROUP_RULES)
        self.places: dict[Digest, int] = {}
        self.mine(*provider("ada", 4, bond=1000))
        for account in self.MEMBERS:
            self.mine(*joined(account, 10))

    def open(self, offer: SignedCampaign) -> list[MarketEffect]:
        self.inbox += 1
        return self.tell(CampaignSubmitted(offer=offer, inbox=self.inbox))

    def hand_in(self, signed: Signed[Pledge]) -> list[MarketEffect]:
        self.inbox += 1
        return self.tell(PledgeSubmitted(pledge=signed, inbox=self.inbox))

    def lock(self, offer: SignedCampaign, buyer: str, slices: int = 1) -> list[MarketEffect]:
        """A block in which a pledge is locked, handed in here or not."""
        return self.mine(*self.locked(offer, buyer, slices))

    def locked(self, offer: SignedCampaign, buyer: str, slices: int = 1) -> list[ChainEvent]:
        of = id_of(offer)
        place = self.places.get(of, 0)
        self.places[of] = place + 1
        account, amount = key(buyer).address, TokenAmount(COST.value * slices)
        return [
            CashChanged(account=account, amount=amount, increase=False),
            PledgeLocked(
                campaign=of,
                buyer=account,
                place=place,
                slices=slices,
                amount=amount,
                at=self.now // 1000,
            ),
        ]

    def closed(self, call: CloseCampaign, *buyers: str) -> list[ChainEvent]:
        """The logs of a closing whose asks serve these buyers."""
        of, at = call.campaign.id_in(GROUP_DOMAIN), self.now // 1000
        found: list[ChainEvent] = [CampaignClosed(campaign=of, leases=len(call.asks), at=at)]
        for ask, buyer in zip(call.asks, buyers, strict=True):
            found += self._opened(ask.payload.index, ask.payload.seq, buyer, of, at)
        return found

    def _opened(self, index: int, seq: int, buyer: str, of: Digest, at: int) -> list[ChainEvent]:
        account = key(buyer).address
        terms = LeaseTerms(
            key=LeaseKey(provider=key("ada").address, index=index, seq=seq),
            buyer=account,
            cap=COST,
            duration=3_600,
            start_deadline=at + 600,
            market_id=1,
            opened_at=at,
        )
        return [
            CashChanged(account=account, amount=COST, increase=True),
            LeaseOpened(terms=terms, bid=of, at=at, transaction=Digest(bytes(32))),
        ]

    def refunded(self, offer: SignedCampaign, place: int, buyer: str) -> list[ChainEvent]:
        account = key(buyer).address
        return [
            CashChanged(account=account, amount=COST, increase=True),
            PledgeRefunded(
                campaign=id_of(offer),
                buyer=account,
                place=place,
                amount=COST,
                at=self.now // 1000,
            ),
        ]

    def campaign(self, offer: SignedCampaign) -> ReportCampaign:
        """What the API would answer now."""
        found = [e for e in self.effects if isinstance(e, ReportCampaign)]
        return next(each for each in reversed(found) if each.report.id == id_of(offer))

    def pledge(self, signed: Signed[Pledge]) -> PledgeReport:
        """What the API would answer now."""
        found = [e.report for e in self.effects if isinstance(e, ReportPledge)]
        return next(each for each in reversed(found) if each.pledge == signed.payload.id)

    def notices(self, account: str) -> list[CampaignNotice]:
        found = [e.notice for e in self.effects if isinstance(e, KeepNotice)]
        return [each for each in found if each.account == key(account).address]

    def kinds(self, account: str) -> list[str]:
        return [each.kind.value for each in self.notices(account)]


def calls(effects: list[MarketEffect]) -> list[ChainCall]:
    """Of group buys among some effects."""
    kinds = LockPledge | CloseCampaign | RefundPledge
    return [e.call for e in effects if isinstance(e, Transact) and isinstance(e.call, kinds)]
