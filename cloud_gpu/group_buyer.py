"""One account's group buys at one market: campaigns, pledges, and taking a failed pledge back.

Blocking, ports only. A campaign is its hash: what the market tells of one is held against its id,
and what is locked is read from the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Final, Protocol

from cloud_gpu.campaigns import campaign_wish
from cloud_gpu.ordering import product_meant
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import MarketUnavailable, RejectReason, SettingsInvalid
from cloud_gpu.protocol.group_buy import (
    PLEDGES_MAX,
    SLICES_MAX,
    Campaign,
    CampaignOffer,
    HeldCampaign,
    Pledge,
    SignedCampaign,
)
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignPage,
    CampaignReport,
    CampaignState,
    GroupLease,
    LockedPledge,
    PledgeReport,
)
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.ports import Clock, MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.signing import Signed, sign, state
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.utc import format_utc
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.spending import free_nonce
from cloud_gpu.vault import (
    VaultAccount,
    product_of,
    refused,
    require_cash,
    require_market,
    require_receipt,
)

_LIST: Final = "cloud-gpu group ls"


class GroupMarket(Protocol):
    """A market, as people of group buys see it. Raises `Rejected`, `MarketUnavailable`."""

    def describe(self) -> MarketView: ...

    def open(self, offer: SignedCampaign) -> SignedReceipt: ...

    def campaigns(
        self, product: int | None, state: CampaignState | None
    ) -> Sequence[CampaignReport]:
        """Oldest first."""

    def campaign(self, campaign: Digest) -> CampaignPage: ...

    def leases(self, campaign: Digest, buyer: Address) -> Sequence[GroupLease]: ...

    def pledge(self, pledge: Signed[Pledge]) -> SignedReceipt:
        """Have it locked; twice is once."""

    def report(self, campaign: Digest, pledge: Digest) -> PledgeReport: ...

    def notices(self, account: Address, after: int) -> Sequence[CampaignNotice]: ...


class GroupCalls(Protocol):
    """The contract GroupBuy, called by the account; each call is waited for."""

    def held(self, campaign: Digest) -> HeldCampaign: ...

    def pledges(self, campaign: Digest) -> Sequence[LockedPledge]: ...

    def lock(self, campaign: Campaign, pledge: Signed[Pledge]) -> None: ...

    def refund(self, campaign: Campaign, place: int) -> None: ...


class GroupAccount(VaultAccount, Protocol):
    """An account that pledges."""

    @property
    def group_buys(self) -> GroupCalls: ...


class GroupBuyer:
    """Sets campaigns up, pledges to them, and takes back what a failed one locked."""

    def __init__(
        self,
        *,
        account: GroupAccount,
        signer: Signer,
        market: GroupMarket,
        deployment: Deployment,
        clock: Clock,
        draw: Callable[[], int],
    ) -> None:
        """`signer` is the account's own key; `draw` gives any numbers: they spread nonces."""
        if deployment.group_buy.is_zero:
            raise SettingsInvalid(
                "deployment: found one without GroupBuy, needed one that has it. Deploy with this"
                " package's `cloud-gpu contracts deploy`."
            )
        self.market = market
        self._account, self._signer, self._deployment = account, signer, deployment
        self._clock, self._draw = clock, draw

    @property
    def address(self) -> Address:
        """The account's."""
        return self._account.address

    def products(self) -> Sequence[Product]:
        """What can be bought, as the chain says."""
        return self._account.products()

    def product(self, words: str | int) -> Product:
        """The one product of a number or of words like "A100:2". Raises `WordUnclear`."""
        return product_meant(words, self._account.products())

    def campaign(self, campaign: Digest) -> CampaignPage:
        """What the market tells of a campaign, whose terms are those that its id stands for.

        Raises `Rejected` for an unknown one, `MarketUnavailable` for other terms.
        """
        page = self.market.campaign(campaign)
        if page.report.campaign.id_in(self._deployment.group_buy_domain) != campaign:
            raise MarketUnavailable(
                f"the market shows other terms than those of campaign {campaign}: use another"
                " market, or ask its organiser for them"
            )
        return page

    def cost(self, campaign: Campaign) -> TokenAmount:
        """Of one machine for the campaign's duration: what a slice locks."""
        return campaign.cost(product_of(self._account, campaign.product).slice_gpus)

    # Setting one up.

    def offer(
        self,
        gpu_type: str | int,
        *,
        price: str,
        duration: str | int,
        goal: int,
        deadline: str,
        start: str = "",
        providers: Sequence[str] = (),
    ) -> CampaignOffer:
        """A campaign in words, for `open`; see `campaign_wish`. Raises `WordUnclear`."""
        return campaign_wish(
            organiser=self.address,
            product=self.product(gpu_type),
            market_id=self._described.market_id,
            price=price,
            duration=duration,
            goal=goal,
            deadline=deadline,
            start=start,
            providers=providers,
            at=self._account.chain_time(),
        )

    def open(self, offer: CampaignOffer) -> Digest:
        """Have the market list a campaign; its id. It costs nothing and locks nothing.

        Raises `Rejected`; `MarketUnavailable`, also for a receipt that is not the market's.
        """
        matcher, name = self._described.matcher, self.id_of(offer.campaign)
        said = state(
            offer, self._deployment.domain, self._signer, nonce=0, expiry=offer.campaign.deadline
        )
        self._held_to(self.market.open(said), name, matcher)
        return name

    def id_of(self, campaign: Campaign) -> Digest:
        """What pledges name."""
        return campaign.id_in(self._deployment.group_buy_domain)

    # Pledging.

    def pledge(
        self, campaign: Campaign, slices: int, taken: Collection[int] = frozenset()
    ) -> Signed[Pledge]:
        """Sign a pledge for so many machines, to hand in or to lock; it cannot be withdrawn.

        Raises `Rejected` (closed, too late, full), `FundsTooSmall`.
        """
        name = self.id_of(campaign)
        self._require_open(campaign, name, slices)
        amount = TokenAmount(self.cost(campaign).value * slices)
        account = require_cash(self._account, amount, "this pledge")
        said = Pledge(
            buyer=self.address,
            campaign_id=name,
            max_amount=amount,
            slices=slices,
            nonce=free_nonce(account, self._draw(), taken),
        )
        return sign(said, self._deployment.group_buy_domain, self._signer)

    def hand_in(self, pledge: Signed[Pledge]) -> SignedReceipt:
        """Have the market lock a pledge, at its own cost of gas. Raises as `open` does."""
        matcher = self._described.matcher
        return self._held_to(self.market.pledge(pledge), pledge.payload.id, matcher)

    def _held_to(self, receipt: SignedReceipt, name: Digest, matcher: Address) -> SignedReceipt:
        at = self._clock.now() // 1000
        return require_receipt(receipt, name, self._deployment, market=matcher, at=at)

    @cached_property
    def _described(self) -> MarketView:
        """What the market first said of itself: whose receipts it gives does not change."""
        return require_market(self.market.describe(), self._deployment)

    def lock(self, campaign: Campaign, pledge: Signed[Pledge]) -> None:
        """Lock a pledge by the account's own transaction; no market is needed."""
        self._account.group_buys.lock(campaign, pledge)

    def locked(self, campaign: Campaign) -> Sequence[LockedPledge]:
        """This account's pledges that are locked now, as the chain says."""
        found = self._account.group_buys.pledges(self.id_of(campaign))
        return [each for each in found if each.buyer == self.address]

    def refund(self, campaign: Campaign) -> TokenAmount:
        """Take back what this account pledged to a campaign that did not close in time.

        Raises `Rejected`: it may still close, or nothing is locked.
        """
        at, mine = self._account.chain_time(), self.locked(campaign)
        if not mine:
            raise refused(
                RejectReason.WRONG_STATE,
                "campaign",
                f"{self.id_of(campaign)}, to which this account has nothing locked",
                "one with a pledge of this account",
                "cloud-gpu group notices says what became of it",
            )
        if at <= campaign.deadline:
            raise refused(
                RejectReason.WRONG_STATE,
                "campaign",
                f"{format_utc(at)}, while it may still close",
                f"a time after its deadline, {format_utc(campaign.deadline)}",
                "A pledge cannot be withdrawn; it comes back when the campaign fails.",
            )
        for each in mine:
            self._account.group_buys.refund(campaign, each.place)
        return TokenAmount(sum(each.amount.value for each in mine))

    def _require_open(self, campaign: Campaign, name: Digest, slices: int) -> None:
        at, held = self._account.chain_time(), self._account.group_buys.held(name)
        if held.is_closed:
            raise refused(
                RejectReason.WRONG_STATE,
                "campaign",
                f"{name}, whose leases are open",
                "one that gathers pledges",
                _LIST,
            )
        if at >= campaign.deadline:
            raise refused(
                RejectReason.EXPIRED,
                "campaign",
                f"{name}, whose deadline was {format_utc(campaign.deadline)}",
                f"one whose deadline is after {format_utc(at)}",
                _LIST,
            )
        room = SLICES_MAX - held.slices
        if not 1 <= slices <= room or held.pledges >= PLEDGES_MAX:
            full = held.pledges >= PLEDGES_MAX or not room
            raise refused(
                RejectReason.WRONG_COUNT,
                "slices",
                str(slices),
                "none: the campaign is full" if full else f"1 to {room}",
                _LIST,
            )
