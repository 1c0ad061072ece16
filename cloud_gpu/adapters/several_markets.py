"""Several markets as one: a bid goes to the market that it names, and is asked about there.

Asks and leases are those of all of them. What is told of one market alone (auctions, events, group
buys, futures) is the first one's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.errors import MarketUnavailable, Rejected, RejectReason
from cloud_gpu.protocol.group_reports import GroupLease
from cloud_gpu.protocol.lease import LeaseReport, MachineKey
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.news import Cut, Interest, News
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid, SignedCancellation
from cloud_gpu.protocol.ports import MarketApi, MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.values import Address, Digest

T = TypeVar("T")


class SeveralMarkets:
    """The port `MarketApi` over others."""

    def __init__(self, markets: Sequence[MarketApi]) -> None:
        self._first, self._markets = markets[0], tuple(markets)
        self._names: dict[int, Address] = {}
        """What each, by its place, first said that it is: none takes another's name later."""
        self._of: dict[Digest, MarketApi] = {}
        """Where each bid was handed in, or found."""

    # Bids.

    async def place(self, order: SignedBid) -> SignedReceipt:
        """See `MarketApi`. Raises `MarketUnavailable` when none of them is the one named."""
        market = await self._by_name(order.bid.payload.matcher)
        self._of[order.bid.payload.id] = market  # its answer may be lost
        return await market.place(order)

    async def report(self, bid: Digest) -> BidReport:
        """See `MarketApi`; one that was handed in elsewhere is looked for at all of them."""
        known = self._of.get(bid)
        if known is not None:
            return await _told(known, bid)
        missing: Rejected | MarketUnavailable | None = None
        for market in self._markets:
            try:
                report = await _told(market, bid)
            except Rejected as refused:
                is_unknown = refused.rejection.reason is RejectReason.UNKNOWN_ORDER
                missing = missing or refused if is_unknown else refused
            except MarketUnavailable as silent:
                missing = silent  # it may be there
            else:
                self._of[bid] = market
                return report
        assert missing is not None, "there is a market"
        raise missing

    async def cancel(self, statement: SignedCancellation) -> None:
        """See `MarketApi`."""
        await self.report(statement.body.bid)
        await self._of[statement.body.bid].cancel(statement)

    async def _by_name(self, matcher: Address) -> MarketApi:
        why = f"none of the markets is the matcher {matcher}"
        for place, market in enumerate(self._markets):
            if place not in self._names:
                try:
                    self._names[place] = (await market.describe()).matcher
                except (MarketUnavailable, Rejected) as silent:
                    why = str(silent)
                    continue
            if self._names[place] == matcher:
                return market
        raise MarketUnavailable(why)

    # What all of them have.

    async def asks(self, gpu: str = "") -> Sequence[SignedAdvert]:
        """See `MarketApi`. Raises `MarketUnavailable` when none of them answers."""
        found = await self._of_all(lambda market: market.asks(gpu))
        once = {advert.signature: advert for advert in found}
        return sorted(once.values(), key=lambda ad: ad.body.ask.payload.min_price_per_hour)

    async def leases(self, buyer: Address) -> Sequence[LeaseReport]:
        """See `MarketApi`. Raises `MarketUnavailable` when none of them answers."""
        found = await self._of_all(lambda market: market.leases(buyer))
        return tuple({report.terms.key: report for report in found}.values())

    async def _of_all(self, ask: Callable[[MarketApi], Awaitable[Sequence[T]]]) -> list[T]:
        found: list[T] = []
        silent: list[MarketUnavailable | Rejected] = []
        for market in self._markets:
            try:
                found += await ask(market)
            except (MarketUnavailable, Rejected) as error:
                silent.append(error)
        if len(silent) == len(self._markets):
            raise silent[0]
        return found

    # What the first has.

    async def describe(self) -> MarketView:
        """See `MarketApi`."""
        return await self._first.describe()

    async def products(self) -> Sequence[Product]:
        """See `MarketApi`."""
        return await self._first.products()

    async def auctions(self, window: int | None = None) -> Sequence[AuctionReport]:
        """See `MarketApi`."""
        return await self._first.auctions(window)

    def watch(
        self, interest: Interest, after: int | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[News | Cut]]:
        """See `MarketApi`."""
        return self._first.watch(interest, after)

    async def promised_node(self, machine: MachineKey) -> SignedAdvert | None:
        """See `MarketApi`."""
        return await self._first.promised_node(machine)

    async def group_leases(self, campaign: Digest, buyer: Address) -> Sequence[GroupLease]:
        """See `MarketApi`."""
        return await self._first.group_leases(campaign, buyer)


async def _told(market: MarketApi, bid: Digest) -> BidReport:
    """A market's word of this bid alone: one must not say that another's is dead."""
    report = await market.report(bid)
    if report.bid != bid:
        raise MarketUnavailable(f"asked about the bid {bid}, a market told of {report.bid}")
    return report
