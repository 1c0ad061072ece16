"""Group buys with a pretended wallet and market: words, what is signed, what is refused before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cloud_gpu.bidding import WordUnclear
from cloud_gpu.campaigns import campaign_wish
from cloud_gpu.group_buyer import GroupBuyer
from cloud_gpu.protocol.errors import (
    FundsTooSmall,
    MarketUnavailable,
    Rejected,
    RejectReason,
    SettingsInvalid,
)
from cloud_gpu.protocol.group_buy import (
    ANY_PROVIDER,
    Campaign,
    HeldCampaign,
    Pledge,
    SignedCampaign,
    providers_hash,
)
from cloud_gpu.protocol.group_reports import (
    CampaignPage,
    CampaignReport,
    CampaignState,
    LockedPledge,
)
from cloud_gpu.protocol.identity import LocalKey, NoDelegates
from cloud_gpu.protocol.ports import AccountView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import Receipt, SignedReceipt, sign_receipts
from cloud_gpu.protocol.signing import Signed, Verified, verify, verify_statement
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.utc import parse_utc
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.testing.world import DEPLOYMENT, MATCHER
from tests.unit.buyer.builders import MARKET
from tests.unit.buyer.test_ordering import PRODUCTS

NOW = parse_utc("2026-12-01")
HOUR_S, DAY_S = 3_600, 86_400
KEY, OTHER = LocalKey(b"\x01" * 32), LocalKey(b"\x02" * 32)
STRANGER = LocalKey(b"\x21" * 32)
ISSUED = msgspec.structs.replace(DEPLOYMENT, group_buy=Address(b"\x0e" * 20))
WORDS: dict[str, Any] = {
    "organiser": KEY.address,
    "product": PRODUCTS[1],
    "market_id": 1,
    "price": "1.20",
    "duration": "2h",
    "goal": 3,
    "deadline": "3d",
    "at": NOW,
}
CAMPAIGN = campaign_wish(**WORDS).campaign
COST = TokenAmount(4_800_000)
"""Two GPUs for two hours at 1.20."""


def test_words_become_a_campaign() -> None:
    assert (CAMPAIGN.window_start, CAMPAIGN.deadline) == (NOW, NOW + 3 * DAY_S)
    assert (CAMPAIGN.price_per_hour, CAMPAIGN.duration) == (Price(1_200_000), 2 * HOUR_S)
    assert CAMPAIGN.providers_hash == ANY_PROVIDER
    named = campaign_wish(
        **{**WORDS, "start": "2026-12-02T08:00", "deadline": "2026-12-03"},
        providers=[str(OTHER.address), str(OTHER.address)],
    )
    assert named.providers == (OTHER.address,)
    assert named.campaign.providers_hash == providers_hash([OTHER.address])
    assert named.campaign.window_start == parse_utc("2026-12-02T08:00")


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"goal": 0}, "goal", "1 to 100"),
        ({"goal": 101}, "goal", "1 to 100"),
        ({"price": "1.2345"}, "price", "at most 3 digits"),
        ({"price": "0"}, "price", "found a lease of 0.00 tokens"),
        ({"duration": "200d"}, "duration", "a duration is"),
        ({"deadline": "soon"}, "deadline", 'like "3d"'),
        ({"deadline": "15d"}, "deadline", "locked for longer than 14d"),
        ({"deadline": "2026-11-30"}, "deadline", "after 2026-12-01T00:00Z"),
        ({"start": "4d"}, "start", "needed the deadline, 2026-12-04T00:00Z"),
        ({"providers": ["0x12"]}, "provider", "40 hex digits"),
        ({"providers": ["0x12"] * 101}, "provider", "100 at most"),
    ],
)
def test_a_wrong_word_is_named_with_what_it_may_be(
    changes: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(WordUnclear) as caught:
        campaign_wish(**{**WORDS, **changes})
    assert caught.value.field == field
    assert said in caught.value.problem


class Ledger:
    """What GroupBuy holds, and the calls that were made."""

    def __init__(self) -> None:
        self.now, self.cash = NOW, 100_000_000
        self.state = HeldCampaign(slices=0, pledges=0, is_closed=False)
        self.rows: list[LockedPledge] = []
        self.calls: list[tuple[Any, ...]] = []

    def held(self, campaign: Digest) -> HeldCampaign:
        return self.state

    def pledges(self, campaign: Digest) -> list[LockedPledge]:
        return self.rows

    def lock(self, campaign: Campaign, pledge: Signed[Pledge]) -> None:
        self.calls.append(("lock", pledge))

    def refund(self, campaign: Campaign, place: int) -> None:
        self.calls.append(("refund", place))


class PretendAccount:
    def __init__(self, ledger: Ledger) -> None:
        self.address, self.group_buys = KEY.address, ledger

    def account(self) -> AccountView:
        cash = TokenAmount(self.group_buys.cash)
        return AccountView(id=7, cash=cash, nonce_base=0, nonce_bits=0)

    def products(self) -> tuple[Product, ...]:
        return PRODUCTS

    def chain_time(self) -> int:
        return self.group_buys.now


class PretendMarket:
    def __init__(self, shown: Campaign = CAMPAIGN) -> None:
        self.shown, self.opened = shown, list[SignedCampaign]()
        self.key = MATCHER
        """Who signs its receipts."""
        self.received_at, self.described = NOW * 1000, 0
        self.view = MARKET

    def describe(self) -> Any:
        self.described += 1
        return self.view

    def open(self, offer: SignedCampaign) -> SignedReceipt:
        self.opened.append(offer)
        return self._receipt(offer.body.campaign.id_in(ISSUED.group_buy_domain))

    def pledge(self, pledge: Signed[Pledge]) -> SignedReceipt:
        return self._receipt(pledge.payload.id)

    def _receipt(self, order: Digest) -> SignedReceipt:
        body = Receipt(order=order, inbox=1, received_at=self.received_at)
        return sign_receipts([body], self.key, ISSUED.domain, life_s=60)[0]

    def campaign(self, campaign: Digest) -> CampaignPage:
        report = CampaignReport(
            id=campaign,
            number=1,
            campaign=self.shown,
            state=CampaignState.GATHERING,
            listed_at=NOW,
            pledges=0,
            slices=0,
            missing_slices=3,
            machines=0,
            missing_machines=3,
        )
        return CampaignPage(report=report, pledges=())


class Clock:
    def now(self) -> int:
        return NOW * 1000


def buyer_of(ledger: Ledger, market: Any = None) -> GroupBuyer:
    asked: Any = PretendMarket() if market is None else market
    return GroupBuyer(
        account=PretendAccount(ledger),
        signer=KEY,
        market=asked,
        deployment=ISSUED,
        clock=Clock(),
        draw=lambda: 0,
    )


def test_a_campaign_is_opened_under_its_organisers_signature() -> None:
    market = PretendMarket()
    buyer = buyer_of(Ledger(), market)
    offer = buyer.offer("A100:2", price="1.20", duration="2h", goal=3, deadline="3d")
    assert offer.campaign == CAMPAIGN
    assert buyer.open(offer) == CAMPAIGN.id_in(ISSUED.group_buy_domain)
    (said,) = market.opened
    refused = verify_statement(
        said, ISSUED.domain, account=KEY.address, keys=NoDelegates(), role=None, at=NOW
    )
    assert refused is None


def test_a_receipt_that_is_not_the_markets_is_none() -> None:
    buyer = buyer_of(Ledger(), market := PretendMarket())
    pledge = buyer.pledge(CAMPAIGN, 1)
    assert buyer.hand_in(pledge).body.order == pledge.payload.id
    market.key = STRANGER
    with pytest.raises(MarketUnavailable, match="receipt is not one for"):
        buyer.hand_in(pledge)
    market.key, market.received_at = MATCHER, (NOW + 86_400) * 1000
    with pytest.raises(MarketUnavailable, match="86400 s ahead of this machine's clock"):
        buyer.hand_in(pledge)
    assert market.described == 1


def test_receipts_are_held_to_this_machines_clock_not_to_the_newest_block() -> None:
    buyer = buyer_of(ledger := Ledger())
    ledger.now -= 86_400
    assert buyer.hand_in(buyer.pledge(CAMPAIGN, 1)).body.received_at == NOW * 1000


def test_what_a_market_of_another_deployment_is_not_handed() -> None:
    market = PretendMarket()
    market.view = msgspec.structs.replace(MARKET, chain_id=MARKET.chain_id + 1)
    buyer = buyer_of(Ledger(), market)
    offer = campaign_wish(**WORDS)
    with pytest.raises(SettingsInvalid, match="on chain"):
        buyer.open(offer)
    assert not market.opened


def test_other_terms_than_the_ids_are_not_shown() -> None:
    ledger, dearer = Ledger(), msgspec.structs.replace(CAMPAIGN, price_per_hour=Price(9_000_000))
    name = CAMPAIGN.id_in(ISSUED.group_buy_domain)
    assert buyer_of(ledger).campaign(name).report.campaign == CAMPAIGN
    with pytest.raises(MarketUnavailable, match="other terms"):
        buyer_of(ledger, PretendMarket(dearer)).campaign(name)


def test_a_pledge_locks_exactly_its_slices() -> None:
    ledger = Ledger()
    signed = buyer_of(ledger).pledge(CAMPAIGN, 2, taken={0})
    said = signed.payload
    assert (said.max_amount, said.slices, said.nonce) == (TokenAmount(2 * COST.value), 2, 1)
    checked = verify(
        signed, ISSUED.group_buy_domain, account=KEY.address, keys=NoDelegates(), at=NOW
    )
    assert isinstance(checked, Verified)
    buyer_of(ledger).lock(CAMPAIGN, signed)
    assert ledger.calls == [("lock", signed)]


@pytest.mark.parametrize(
    ("held", "slices", "reason", "needed"),
    [
        ((0, 0, False), 0, RejectReason.WRONG_COUNT, "1 to 100"),
        ((98, 5, False), 3, RejectReason.WRONG_COUNT, "1 to 2"),
        ((100, 5, False), 1, RejectReason.WRONG_COUNT, "the campaign is full"),
        ((99, 100, False), 1, RejectReason.WRONG_COUNT, "the campaign is full"),
        ((0, 5, True), 1, RejectReason.WRONG_STATE, "one that gathers pledges"),
    ],
)
def test_what_the_contract_would_refuse_is_not_signed(
    held: tuple[int, int, bool], slices: int, reason: RejectReason, needed: str
) -> None:
    ledger = Ledger()
    ledger.state = HeldCampaign(slices=held[0], pledges=held[1], is_closed=held[2])
    with pytest.raises(Rejected) as caught:
        buyer_of(ledger).pledge(CAMPAIGN, slices)
    assert caught.value.rejection.reason is reason
    assert needed in caught.value.rejection.needed


def test_a_pledge_needs_cash_and_time() -> None:
    ledger = Ledger()
    ledger.cash = COST.value - 1
    with pytest.raises(FundsTooSmall, match="this pledge"):
        buyer_of(ledger).pledge(CAMPAIGN, 1)
    ledger.now = CAMPAIGN.deadline
    with pytest.raises(Rejected, match="2026-12-04T00:00Z"):
        buyer_of(ledger).pledge(CAMPAIGN, 1)


def test_ones_own_pledges_come_back_after_the_deadline_alone() -> None:
    ledger = Ledger()
    ledger.rows = [
        LockedPledge(place=place, buyer=key.address, slices=1, amount=COST)
        for place, key in enumerate((KEY, OTHER, KEY))
    ]
    ledger.now = CAMPAIGN.deadline
    with pytest.raises(Rejected, match="cannot be withdrawn"):
        buyer_of(ledger).refund(CAMPAIGN)
    ledger.now += 1
    assert buyer_of(ledger).refund(CAMPAIGN) == TokenAmount(2 * COST.value)
    assert ledger.calls == [("refund", 0), ("refund", 2)]
    ledger.rows = []
    with pytest.raises(Rejected, match="nothing locked"):
        buyer_of(ledger).refund(CAMPAIGN)
