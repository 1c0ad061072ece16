"""How the API and the matchmaker reach what is durable. Calls block: edges put them in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.effects import MarketEffect, ReportCampaign
from cloud_gpu.protocol.events import (
    BidSubmitted,
    BidWithdrawn,
    CampaignSubmitted,
    FutureSubmitted,
    PledgeSubmitted,
)
from cloud_gpu.protocol.future_reports import ContractReport, FutureReport, SeriesReport
from cloud_gpu.protocol.futures import FutureOrder, Series
from cloud_gpu.protocol.group_buy import SignedCampaign
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignReport,
    CampaignState,
    PledgeReport,
)
from cloud_gpu.protocol.lease import LeaseReport, LeaseState, MachineKey
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.news import Topic
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid, SignedCancellation
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import Receipt
from cloud_gpu.protocol.rounds import RoundHeader, SignedHeader
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Address, Digest
from market.standing import Standing

InboxEvent: TypeAlias = (
    BidSubmitted | BidWithdrawn | FutureSubmitted | CampaignSubmitted | PledgeSubmitted
)
"""What comes out of the inbox."""

SignReceipts = Callable[[Sequence[Receipt]], Sequence[bytes]]
"""One at least; in order, each the JSON of a `SignedReceipt`."""


SignHeader = Callable[[RoundHeader], SignedHeader]


class OrderKind(StrEnum):
    """What lies in the inbox under its id; cancellations lie beside it."""

    BID = "bid"
    FUTURE = "future"
    CAMPAIGN = "campaign"
    PLEDGE = "pledge"


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundOrder:
    """A bid, an order of futures, a campaign or a pledge that passed the door."""

    kind: OrderKind
    id: Digest
    octets: bytes
    """The JSON of what was signed, as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Where an order lies in the inbox: the same place for ever."""

    position: int
    received_at: Instant
    is_new: bool
    """Kept by this call."""


Place: TypeAlias = tuple[int | str, ...]
"""Where a row stands in a listing: what the listing is ordered by."""


class Inbox(Protocol):
    """Verified orders, durable before they are acknowledged. All calls raise StorageFailed."""

    def keep(self, orders: Sequence[SoundOrder], received_at: Instant) -> Sequence[Kept]:
        """The place of each, in one commit. The same order has the same place for ever."""

    def kept(self, kind: OrderKind, order: Digest) -> Kept | None:
        """The place of what was kept."""

    def keep_cancellation(self, cancellation: SignedCancellation, received_at: Instant) -> int:
        """Its position."""

    def bid(self, bid: Digest) -> SignedBid | None:
        """A bid that was kept."""

    def future(self, order: Digest) -> Signed[FutureOrder] | None:
        """An order of futures that was kept."""

    def campaign(self, campaign: Digest) -> SignedCampaign | None:
        """A group buy's terms that were kept."""

    def after(self, position: int, count_max: int) -> Sequence[InboxEvent]:
        """What lies behind a position, in order."""


class BookView(Protocol):
    """The public tables. All calls raise StorageFailed."""

    def report(self, bid: Digest) -> BidReport | None:
        """What is known of a bid."""

    def asks(
        self, gpu: str, count_max: int, at: int, after: Place | None = None
    ) -> Sequence[SignedAdvert]:
        """What is on offer at a time (Unix seconds), cheapest first; `gpu` empty: any class.

        `after` is a price and an ask's id.
        """

    def auctions(self, before: int | None, count_max: int) -> Sequence[AuctionReport]:
        """Block auctions that cleared, newest first; `before`: closed earlier, Unix seconds."""

    def auction(self, window: int) -> AuctionReport | None:
        """The one that closed at this second."""

    def products(self, after: int = 0, count_max: int | None = None) -> Sequence[Product]:
        """What can be traded, by number, of higher numbers than `after`."""

    def standing(self) -> Standing | None:
        """What the matchmaker said of itself last; None: it never ran here."""

    def leases(
        self,
        *,
        buyer: Address | None,
        provider: Address | None,
        bid: Digest | None,
        state: LeaseState | None,
        count_max: int,
        after: Place | None = None,
    ) -> Sequence[LeaseReport]:
        """Leases that satisfy every filter given, newest first.

        `after` is a lease's begin and its key.
        """


class FuturesView(Protocol):
    """The public tables of futures and prices. All calls raise StorageFailed."""

    def order(self, order: Digest) -> FutureReport | None:
        """What is known of an order."""

    def series(
        self, product: int | None, at: int, count_max: int, after: Place | None = None
    ) -> Sequence[SeriesReport]:
        """Series whose contracts may be opened at `at` (Unix seconds); None: of any product.

        `after` is a product, a deadline and a series.
        """

    def history(
        self, series: Series, count_max: int, before: int | None = None
    ) -> Sequence[ContractReport]:
        """What opened in a series, newest first, before a contract of this number."""

    def positions(
        self, account: Address, count_max: int, before: int | None = None
    ) -> Sequence[ContractReport]:
        """Contracts of which an account is a side, newest first, before this number."""

    def node(self, machine: MachineKey) -> SignedAdvert | None:
        """Where the node of a machine is that was promised to a future; None: it was not heard."""

    def index(self, after: str = "", count_max: int | None = None) -> Sequence[IndexPoint]:
        """The newest point of each GPU class, by class, behind `after`."""


class GroupsView(Protocol):
    """The public tables of group buys. All calls raise StorageFailed."""

    def campaigns(
        self, *, product: int | None, state: CampaignState | None, after: int, count_max: int
    ) -> Sequence[CampaignReport]:
        """Those that satisfy every filter given, by number, of higher numbers than `after`."""

    def campaign(self, campaign: Digest) -> ReportCampaign | None:
        """What is known of one."""

    def pledge(self, pledge: Digest) -> PledgeReport | None:
        """What is known of a pledge that was handed in here."""

    def notices(self, account: Address, after: int, count_max: int) -> Sequence[CampaignNotice]:
        """What an account was told, by number, of higher numbers than `after`."""


class RoundsView(Protocol):
    """The published rounds. All calls raise StorageFailed."""

    def headers(self, after: int, count_max: int) -> Sequence[bytes]:
        """Signed headers behind a number, in order, each as its JSON."""

    def round(self, number: int) -> bytes | None:
        """A `PublishedRound` as its JSON."""

    def covering(self, inbox: int) -> bytes | None:
        """The round that says what came out of the inbox at a position; None: not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNews:
    """One thing that changed."""

    number: int
    topic: Topic
    product: int
    """0: none, or not known."""
    accounts: frozenset[str]
    """Those concerned."""
    body: bytes
    """JSON."""


class NewsView(Protocol):
    """What changed in the public tables, by number. All calls raise StorageFailed."""

    def bounds(self) -> tuple[int, int]:
        """The oldest number that is kept and the newest; (n + 1, n) when none is."""

    def after(self, number: int, count_max: int) -> Sequence[KeptNews]:
        """What comes behind a number, in order."""


class BookWriter(Protocol):
    """The matchmaker's side of the public tables."""

    def clear_asks(self) -> None:
        """Forget the list: what is on offer is stated again."""

    def stand(self, standing: Standing) -> None:
        """Say how the market stands, in place of what was said before."""

    def write(self, effects: Sequence[MarketEffect]) -> None:
        """Carry out effects in one transaction, in order. Chain calls are none of its business."""
