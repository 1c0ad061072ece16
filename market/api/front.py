"""What the API stands on: ports, facts and a few questions; main makes one and hands it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import ParamSpec, TypeVar

import anyio
from anyio import to_thread
from fastapi import Request

from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.orders import Bid, SignedBid
from cloud_gpu.protocol.ports import Clock
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import Receipt
from cloud_gpu.protocol.signing import Signed, Verified
from cloud_gpu.protocol.units import unix_seconds
from cloud_gpu.protocol.values import Address, Digest
from market.api.errors import Refused
from market.api.limiting import Limiting
from market.api.metrics import Metrics
from market.api.newsroom import Newsroom
from market.api.taking import Acknowledged, Taking
from market.doors.futures_door import check_future
from market.doors.intake import check_bid
from market.health import Health
from market.ports import (
    BookView,
    FuturesView,
    GroupsView,
    Inbox,
    Kept,
    KeptNews,
    NewsView,
    OrderKind,
    RoundsView,
    SignReceipts,
    SoundOrder,
)
from market.rules import MarketRules
from market.standing import Standing, health_at

_THREADS = 8
_TOO_LATE = (RejectReason.EXPIRED, RejectReason.WRONG_STATE, RejectReason.FEE_ABOVE_LIMIT)
"""What an order may come to break after it was taken: its end, its campaign's state, the fee."""

ResultT = TypeVar("ResultT")
ParamsT = ParamSpec("ParamsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Everything that a route may use."""

    rules: MarketRules
    deployment: Deployment
    inbox: Inbox
    view: BookView
    futures: FuturesView
    groups: GroupsView
    rounds: RoundsView
    clock: Clock
    sign: SignReceipts
    arrived: Callable[[], None]
    """Something new lies in the inbox."""
    standing: Callable[[], Standing]
    """The newest."""
    metrics: Metrics
    limiting: Limiting
    news: NewsView
    newsroom: Newsroom = field(init=False)
    _threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(_THREADS))
    _core: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    _taking: Taking = field(init=False)
    _products: dict[int, Product] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_taking", Taking(self._keep))
        object.__setattr__(self, "newsroom", Newsroom(self.news, self._read_news))
        self.metrics.watch(self.health)

    @property
    def at(self) -> int:
        """Now, Unix seconds."""
        return unix_seconds(self.clock.now())

    def health(self) -> Health:
        """Now."""
        return health_at(self.standing(), self.clock.now())

    async def place(
        self, order: SoundOrder, account: Address, refused: Rejection | None
    ) -> Acknowledged:
        """Take what the door let in, of the account that signed it; of what it refuses by now, find
        where it was taken before. Raises Refused, StorageFailed.
        """
        if refused is None:
            self.limiting.spend_account(account)
            return (await self.take([order]))[0]
        before = await self.in_thread(self.kept_before, order.kind, order.id, refused)
        if before is None:
            raise Refused(refused)
        return self.acknowledged([order.id], [before])[0]

    async def take(self, orders: Sequence[SoundOrder]) -> Sequence[Acknowledged]:
        """Keep verified orders; returns once they are durable. Raises StorageFailed."""
        found = await self._taking.take(orders)
        self.arrived()
        return found

    async def _keep(self, orders: Sequence[SoundOrder]) -> Sequence[Acknowledged]:
        return await self.in_thread(self._kept, orders)

    def _kept(self, orders: Sequence[SoundOrder]) -> Sequence[Acknowledged]:
        kept = self.inbox.keep(orders, self.clock.now())
        return self.acknowledged([order.id for order in orders], kept)

    async def _read_news(self, after: int, count_max: int) -> Sequence[KeptNews]:
        return await self.in_thread(self.news.after, after, count_max)

    def acknowledged(self, orders: Sequence[Digest], kept: Sequence[Kept]) -> list[Acknowledged]:
        """The market's word that it has orders of these ids, one signature under all."""
        receipts = [
            Receipt(order=order, inbox=each.position, received_at=each.received_at)
            for order, each in zip(orders, kept, strict=True)
        ]
        return [
            Acknowledged(receipt=receipt, status=201 if each.is_new else 200)
            for receipt, each in zip(self.sign(receipts), kept, strict=True)
        ]

    async def in_thread(
        self, work: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """Run blocking work beside the event loop."""
        return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=self._threads)

    async def computed(
        self, work: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """As `in_thread`, of work that keeps a core busy: one at a time, or all are slower."""
        return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=self._core)

    async def know_product(self, wanted: int) -> None:
        """Have it at hand for `judge`; read once, since rows never change."""
        if wanted not in self._products:
            await self.in_thread(self.read_products, wanted)

    def read_products(self, wanted: int) -> None:
        """As `know_product`; blocks."""
        if wanted not in self._products:
            self._products.update({product.id: product for product in self.view.products()})

    @property
    def known_products(self) -> Mapping[int, Product]:
        """Those at hand."""
        return MappingProxyType(self._products)

    def judge(self, order: SignedBid) -> Verified[Bid] | Rejection:
        """Whether the market takes a bid now, if its product is known here."""
        return check_bid(
            order,
            rules=self.rules,
            products=self._products,
            fee=self.standing().fee,
            at=self.at,
        )

    def judge_future(self, order: Signed[FutureOrder]) -> Rejection | None:
        """Why the market does not take an order of futures now."""
        at = self.at
        found = check_future(order, rules=self.rules, products=self._products, at=at)
        return found if isinstance(found, Rejection) else None

    def kept_before(self, kind: OrderKind, order: Digest, refused: Rejection) -> Kept | None:
        """Its place, if it was taken before it came to break that rule; blocks."""
        return self.inbox.kept(kind, order) if refused.reason in _TOO_LATE else None


def front_of(request: Request) -> Front:
    """The front of the app that serves a request."""
    front = request.app.state.front
    assert isinstance(front, Front)
    return front
