"""A market of a few lines: the cheapest ask that fits a bid opens at its own price, at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.calls import MatchedOrders, OpenBatch
from cloud_gpu.protocol.errors import MarketUnavailable, Rejected, Rejection, RejectReason
from cloud_gpu.protocol.group_reports import GroupLease
from cloud_gpu.protocol.identity import LocalKey, PeerId
from cloud_gpu.protocol.lease import LeaseReport, MachineKey
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.news import Cut, Interest, News
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid, SignedCancellation
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import Receipt, SignedReceipt, sign_receipts
from cloud_gpu.protocol.units import BasisPoints
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.testing.pretend_chain import PretendChain, TrioClock
from cloud_gpu.testing.pretend_node import PretendNode


class PretendMarket:
    """The port `MarketApi`; flags make it fail the ways that a market can."""

    def __init__(
        self,
        *,
        key: LocalKey,
        market_id: int,
        fee: BasisPoints,
        chain: PretendChain,
        clock: TrioClock,
        nodes: Sequence[PretendNode],
    ) -> None:
        self._key, self._market_id, self._fee = key, market_id, fee
        self._chain, self._clock, self.nodes = chain, clock, nodes
        self._bids: dict[Digest, SignedBid] = {}
        self._reports: dict[Digest, BidReport] = {}
        self.is_down = False
        """No answer to anything."""
        self.is_idle = False
        """Bids are taken and never matched."""
        self.refuses: Rejection | None = None
        """Every bid is refused for this."""
        self.tells_adverts = True
        """False: nobody learns from it where a node is."""
        self.ahead_ms = 0
        """Its receipts are dated so far ahead."""

    @asynccontextmanager
    async def watch(
        self,
        interest: Interest,  # noqa: ARG002
        after: int | None = None,  # noqa: ARG002
    ) -> AsyncIterator[AsyncIterator[News | Cut]]:
        """See `MarketApi`: this one tells nothing."""

        async def nothing() -> AsyncIterator[News | Cut]:
            none: tuple[News | Cut, ...] = ()
            for event in none:
                yield event

        yield nothing()

    async def describe(self) -> MarketView:
        """See `MarketApi`."""
        self._require_up()
        book = self._chain.chain.book.deployment
        return MarketView(
            matcher=self._key.address,
            market_id=self._market_id,
            fee_bps=self._fee,
            round_ms=1_000,
            chain_id=book.chain_id,
            lease_book=book.lease_book,
            token=book.token,
            peer=PeerId("market"),
            addresses=(),
        )

    async def products(self) -> Sequence[Product]:
        """See `MarketApi`."""
        self._require_up()
        return tuple(self._chain.chain.book.products.values())

    async def asks(self, gpu: str = "") -> Sequence[SignedAdvert]:  # noqa: ARG002
        """See `MarketApi`; it lists everything, whatever is asked for."""
        self._require_up()
        return self._adverts() if self.tells_adverts else ()

    async def place(self, order: SignedBid) -> SignedReceipt:
        """See `MarketApi`."""
        self._require_up()
        if self.refuses is not None:
            raise Rejected(self.refuses)
        bid = order.bid.payload
        if bid.id not in self._bids:
            self._bids[bid.id] = order
            self._reports[bid.id] = BidReport(bid=bid.id, state=BidState.PENDING)
            self._match(order)
        receipt = Receipt(
            order=bid.id,
            inbox=list(self._bids).index(bid.id),
            received_at=self._clock.now() + self.ahead_ms,
        )
        domain = self._chain.chain.book.deployment.domain
        return sign_receipts([receipt], self._key, domain, life_s=86_400)[0]

    async def report(self, bid: Digest) -> BidReport:
        """See `MarketApi`."""
        self._require_up()
        if bid not in self._reports:
            raise Rejected(Rejection(reason=RejectReason.UNKNOWN_ORDER, field="bid"))
        return self._reports[bid]

    async def cancel(self, statement: SignedCancellation) -> None:
        """See `MarketApi`."""
        self._require_up()
        bid = statement.body.bid
        self._reports[bid] = BidReport(bid=bid, state=BidState.CANCELLED)

    async def auctions(self, window: int | None = None) -> Sequence[AuctionReport]:  # noqa: ARG002
        """See `MarketApi`: this market holds no auctions."""
        self._require_up()
        return ()

    async def promised_node(self, machine: MachineKey) -> SignedAdvert | None:  # noqa: ARG002
        """See `MarketApi`: this market trades no futures."""
        self._require_up()
        return None

    async def group_leases(self, campaign: Digest, buyer: Address) -> Sequence[GroupLease]:  # noqa: ARG002
        """See `MarketApi`: this market keeps no group buys."""
        self._require_up()
        return ()

    async def leases(self, buyer: Address) -> Sequence[LeaseReport]:  # noqa: ARG002
        """See `MarketApi`: this market knows of none."""
        self._require_up()
        return ()

    def forget(self) -> None:
        """As after a crash without a disk."""
        self._bids.clear()
        self._reports.clear()

    def _adverts(self) -> list[SignedAdvert]:
        at = self._clock.now() // 1000
        found = [advert for node in self.nodes if (advert := node.advert(at)) is not None]
        return sorted(found, key=lambda a: a.body.ask.payload.min_price_per_hour.value)

    def _match(self, order: SignedBid) -> None:
        bid = order.bid.payload
        for advert in self._adverts():
            ask = advert.body.ask.payload
            fits = (
                not self.is_idle
                and ask.product == bid.product
                and ask.min_price_per_hour <= bid.max_price_per_hour
                and ask.min_duration <= bid.duration <= ask.max_duration
                and order.terms.unmet_by(advert.body.profile, ask.provider) is None
            )
            if not fits:
                continue
            batch = OpenBatch(
                product=ask.product,
                price=ask.min_price_per_hour,
                market_id=self._market_id,
                matches=(MatchedOrders(ask=advert.body.ask, bid=order.bid),),
            )
            self._chain.chain.submit(self._key.address, batch)
            self._reports[bid.id] = BidReport(
                bid=bid.id,
                state=BidState.MATCHED,
                price=ask.min_price_per_hour,
                adverts=(advert,) if self.tells_adverts else (),
            )
            return
        self._reports[bid.id] = BidReport(
            bid=bid.id,
            state=BidState.PENDING,
            rejection=Rejection(
                reason=RejectReason.NO_MATCH,
                field="bid.max_price_per_hour",
                found="no ask that fits",
                needed="one",
                next="Bid more.",
            ),
        )

    def _require_up(self) -> None:
        if self.is_down:
            raise MarketUnavailable("the pretend market is down")
