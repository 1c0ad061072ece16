"""A buyer at one market: what is for sale and why something is not, bids, and open leases.

Async, ports only. `Session` and `AsyncSession` (in `main`) are a `Lease` of a `Client` behind a
thread. Amounts are base units, durations seconds, unless a text says otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from cloud_gpu.bidding import LeaseRequest, WordUnclear, drawn_salt, make_bids, ways_for
from cloud_gpu.buyer import Buyer
from cloud_gpu.ending import ending_call
from cloud_gpu.handing_in import handed_in
from cloud_gpu.jobs import Echo, Job
from cloud_gpu.leased import Lease, Line
from cloud_gpu.members import ABANDON_S, Member, Wanted
from cloud_gpu.opening import Opening, WaitedTooLong
from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable, NoMatch
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.lease import LeaseKey, LeaseReport, MachineKey, MachineStatus
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.news import WATCH_LIFE_S_MAX, Cut, Interest, News, Topic
from cloud_gpu.protocol.notices import AnyNotice
from cloud_gpu.protocol.orders import Cancellation, SignedAdvert, SignedBid
from cloud_gpu.protocol.ports import AccountView, Clock, MachineView, MarketApi, MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.values import ZERO_DIGEST, Address, Digest
from cloud_gpu.quoting import Quote, look_up
from cloud_gpu.rhythm import Rhythm
from cloud_gpu.spending import Promises, Purse, require_funds
from cloud_gpu.taking import Given, lease_given, lease_opened
from cloud_gpu.vault import others_that_answer, require_market, require_receipt

__all__ = ["Client", "Job", "Lease"]

Progress = Callable[[str], None]
"""Tell the person who waits."""


class BuyerChain(Protocol):
    """What a client reads of the chain by itself."""

    async def account(self, address: Address) -> AccountView:
        """An account's word; id 0: not registered."""

    async def machine(self, key: MachineKey) -> MachineView:
        """A machine's words."""

    async def products(self) -> Sequence[Product]:
        """The contract's table."""

    async def submit(self, call: ChainCall) -> None:
        """Have a call sent."""

    async def catch_up(self, at: int) -> None:
        """Until a block of this time, Unix seconds, was read."""

    async def chain_time(self) -> int:
        """The newest block's time, Unix seconds."""


class Lines(Protocol):
    """Runs Buyers: connects them to the chain, the market and their nodes."""

    @property
    def peer(self) -> PeerId:
        """Our own peer on the overlay."""

    async def start(self, buyer: Buyer, tell: Callable[[AnyNotice], None]) -> Line:
        """Run one until its line is closed."""

    async def finish(self, work: Callable[[], Awaitable[None]], within_s: float) -> None:
        """Do something in at most so long, even for a caller who was cancelled."""


class Client:
    """One wallet at one market, or at several."""

    def __init__(
        self,
        *,
        purse: Purse,
        market: MarketApi,
        chain: BuyerChain,
        start_lines: Callable[[], Awaitable[Lines]],
        clock: Clock,
        deployment: Deployment,
        draw: Callable[[], int],
        others: Sequence[MarketApi] = (),
    ) -> None:
        """`start_lines` is called when the first lease is opened; `draw` gives 32 random bits:
        they spread nonces, and keep sealed bids from being guessed by their ids. For `others`
        bids are signed as well; `market` takes and knows theirs, too.
        """
        self._purse, self._market, self._chain = purse, market, chain
        self._others = tuple(others)
        self._start_lines = start_lines
        self._lines_started: Lines | None = None
        self._clock, self._deployment, self._draw = clock, deployment, draw
        self._rhythm = Rhythm.of(deployment)
        self._promises = Promises()
        self._view: MarketView | None = None

    # What there is.

    async def market(self) -> MarketView:
        """The market, which must be of our deployment. Raises `SettingsInvalid` if it is not."""
        if self._view is None:
            found = require_market(await self._market.describe(), self._deployment)
            self._view = found
        return self._view

    async def products(self) -> Sequence[Product]:
        """What can be sold, as the chain says."""
        return await self._chain.products()

    async def asks(self) -> Sequence[SignedAdvert]:
        """What the market lists."""
        return await self._market.asks()

    async def auctions(self, window: int | None = None) -> Sequence[AuctionReport]:
        """The last block auctions, the newest first; or the one of a window (Unix seconds).

        Raises `Rejected` where none closed then, `MarketUnavailable`.
        """
        return await self._market.auctions(window)

    async def account(self) -> AccountView:
        """The wallet's account in the vault; id 0: not registered."""
        return await self._chain.account(self._purse.account)

    async def quote(self, request: LeaseRequest) -> Quote:
        """What there is for a request, or what is in the way. Places nothing."""
        await self.market()
        products, adverts = await self.products(), await self._asks_for(request)
        return look_up(request, products, adverts, await self._chain.chain_time())

    # Bids without a lease to hold.

    async def place(self, request: LeaseRequest, progress: Progress) -> tuple[SignedBid, ...]:
        """Sign and hand in a bid for each way to meet the request; at most one of them opens.

        Raises `NoMatch`, `FundsTooSmall`; `Rejected`, `MarketUnavailable` where no market takes it.
        """
        return await handed_in(await self.sign(request, progress), self.submit, progress)

    async def sign(self, request: LeaseRequest, progress: Progress) -> tuple[SignedBid, ...]:
        """The bids that `place` would hand in, ready for `submit`. Raises as `place`."""
        wanted, _ = await self._orders(request, progress)
        return wanted.bids

    async def submit(self, order: SignedBid) -> SignedReceipt:
        """Hand in a bid that was signed before. Raises `Rejected`; `MarketUnavailable`, also for a
        receipt that is not the market's.
        """
        bid, found = order.bid.payload, await self._market.place(order)
        at = self._clock.now() // 1000
        return require_receipt(found, bid.id, self._deployment, market=bid.matcher, at=at)

    async def report(self, bid: Digest) -> BidReport:
        """How far a bid is, by the market's word. Raises `Rejected` for an unknown one."""
        return await self._market.report(bid)

    async def cancel(self, bid: Digest) -> None:
        """Ask the market to forget a bid; it binds nobody but saves it the work."""
        at = self._clock.now() // 1000
        statement = self._purse.cancellation(Cancellation(bid=bid), expiry=at + 600)
        await self._market.cancel(statement)

    @asynccontextmanager
    async def watch(
        self, *topics: Topic, product: int | None = None, own: bool = False, after: int = 0
    ) -> AsyncIterator[AsyncIterator[News | Cut]]:
        """What happens at the market; `own`: to this wallet alone, its bids among it.

        `after` is the number that was heard last; 0: from now on. What the market cannot tell any
        more, a `Cut` says. Raises `Rejected`, `MarketUnavailable`.
        """
        interest = Interest(topics=topics, product=product)
        if own:
            expiry = self._clock.now() // 1000 + WATCH_LIFE_S_MAX - 600
            wish = self._purse.watch((await self.market()).matcher, expiry=expiry)
            interest = replace(interest, account=self._purse.account, wish=wish)
        async with self._market.watch(interest, after or None) as events:
            yield events

    # Leases that some other process opened.

    async def leases(self) -> Sequence[LeaseReport]:
        """This wallet's leases, by the market's word. Raises `MarketUnavailable`."""
        return await self._market.leases(self._purse.account)

    async def end(self, lease: LeaseKey) -> MachineStatus:
        """End a lease whose session is gone, by what the chain allows now; its machine's status.

        A running one is stopped: pay is frozen, the rest is back, and the provider claims its part
        or nobody does. Raises `ChainUnavailable`, `Rejected` while nothing can be done yet.
        """
        view = await self._chain.machine(lease.machine)
        call = ending_call(lease, view, await self._chain.chain_time(), self._rhythm.claim_s)
        if call is None:
            return view.status
        await self._chain.submit(call)
        deadline = self._clock.now() + self._rhythm.chain_patience
        while self._clock.now() < deadline:
            await self._chain.catch_up(await self._chain.chain_time() + 1)
            now = await self._chain.machine(lease.machine)
            if (now.status, now.seq) != (view.status, view.seq):
                return now.status
        raise ChainUnavailable(f"lease {lease.short}: the transaction was not mined in time")

    # A lease.

    async def open(
        self,
        request: LeaseRequest,
        *,
        echo: Echo,
        progress: Progress,
        within_s: float | None = None,
    ) -> Lease:
        """Bid, wait for a match, check what the node offers, and start the meter.

        `within_s` ends the wait though the bid may stand longer. Raises `NoMatch`, `FundsTooSmall`,
        `Rejected`, `MarketUnavailable`, `StartTimeout`, `LeaseInterrupted`, `WaitedTooLong`. What
        was begun when it raises is ended or taken back.
        """
        if request.scope is not None:
            raise WordUnclear("scope", "one lease has one machine; open a gang for several")
        (lease,) = await self.open_gang(request, echo=echo, progress=progress, within_s=within_s)
        return lease

    async def open_gang(
        self,
        request: LeaseRequest,
        *,
        echo: Echo,
        progress: Progress,
        within_s: float | None = None,
    ) -> tuple[Lease, ...]:
        """`open` for a request that several machines may meet: a lease of each, all or none.

        Raises as `open`; when one of them does not become usable, all are ended.
        """
        until = None if within_s is None else self._clock.now() + int(within_s * 1000)
        wanted, adverts = await self._orders(request, progress)
        self._promises.add([order.bid.payload for order in wanted.bids])
        lines = await self._lines()
        members: list[Member] = []
        try:
            for place in range(wanted.machines):
                buyer = Buyer(purse=self._purse, peer=lines.peer, rhythm=self._rhythm)
                opening = Opening(progress)
                line = await lines.start(buyer, opening.take)
                members.append(Member(buyer, opening, line, self._clock))
                line.post(wanted.event(place, tuple(adverts)))
            for member in members:
                await member.decided(until, within_s)
            self._promises.drop(wanted.nonce)
        except BaseException:
            for member in members:
                await lines.finish(partial(member.give_up, progress), ABANDON_S + 2)
            raise
        for spare in (member for member in members if member.is_spare):
            await spare.line.close()
        return tuple(
            self._lease(each, echo, verified=request.verified)
            for each in members
            if not each.is_spare
        )

    async def take_up(
        self,
        given: LeaseKey | Given,
        *,
        echo: Echo,
        progress: Progress,
        within_s: float | None = None,
    ) -> Lease:
        """Start the meter of a lease that a future or a group buy opens for this account.

        Waits until it is open. Raises `Rejected` (started, over, not ours, its node unknown), and
        as `open` does.
        """
        until = None if within_s is None else self._clock.now() + int(within_s * 1000)
        lines = await self._lines()  # a start window may be seconds

        async def next_look() -> None:
            if until is not None and self._clock.now() >= until:
                raise WaitedTooLong(f"no lease opened within {within_s:g} s")
            await self._chain.catch_up(await self._chain.chain_time() + 1)

        adverts: list[SignedAdvert] = []
        if isinstance(given, Given):
            adverts += await self._market.asks()  # what is let later is not listed then
            progress("waiting until the lease opens")
            lease = await lease_opened(given, self.leases, next_look)
            if given.is_of_group:
                found = await self._market.group_leases(given.opened_by, self._purse.account)
                adverts += [each.advert for each in found if each.advert is not None]
        else:
            lease = given
        promised = await self._market.promised_node(lease.machine)
        adverts += [] if promised is None else [promised]
        view, products = await self._chain.machine(lease.machine), await self.products()
        product = next((each for each in products if each.id == view.product), None)
        if product is None:
            raise ChainUnavailable(f"lease {lease}: its product {view.product} was not read yet")
        wanted = lease_given(
            lease,
            view,
            product,
            [*adverts, *await self._market.asks(product.gpu_class)],
            buyer=self._purse.account,
            account=await self.account(),
            market=await self.market(),
            start_window_s=self._deployment.windows.start,
        )
        buyer = Buyer(purse=self._purse, peer=lines.peer, rhythm=self._rhythm)
        opening = Opening(progress)
        line = await lines.start(buyer, opening.take)
        member = Member(buyer, opening, line, self._clock)
        line.post(wanted)
        try:
            await member.decided(until, within_s)
        except BaseException:
            await lines.finish(partial(member.give_up, progress), ABANDON_S + 2)
            raise
        return self._lease(member, echo, verified=False)

    def _lease(self, member: Member, echo: Echo, *, verified: bool) -> Lease:
        opening = member.opening
        assert opening.funded is not None
        assert opening.usable is not None
        assert member.buyer.node is not None
        lease = Lease(
            member.line,
            funded=opening.funded,
            usable=opening.usable,
            node=member.buyer.node,
            gpus=opening.funded.gpus,
            claim_s=self._rhythm.claim_s,
            echo=echo,
            progress=opening.progress,
            verified=verified,
        )
        opening.hand_over(lease.take)
        return lease

    async def _lines(self) -> Lines:
        if self._lines_started is None:
            self._lines_started = await self._start_lines()
        return self._lines_started

    async def _orders(
        self, request: LeaseRequest, progress: Progress
    ) -> tuple[Wanted, Sequence[SignedAdvert]]:
        markets = [await self.market()]
        markets += await others_that_answer(markets[0], self._others, self._deployment, progress)
        products, adverts = await self.products(), await self._asks_for(request)
        at = await self._chain.chain_time()
        found = look_up(request, products, adverts, at)
        ways = ways_for(request, products, len(markets))
        if not ways:
            assert found.blocking is not None
            raise NoMatch(found.blocking)
        if found.blocking is not None:
            listed = {advert.body.ask.payload.product for advert in adverts}
            taken = not listed & {product.id for product, _ in ways}
            what = f"{request.count}x {request.gpu_type}"
            why = f"every {what} is let" if taken else str(found.blocking)
            progress(f"no ask fits yet: {why}")
        account = await self.account()
        self._promises.expire(at)
        nonce = self._promises.free_nonce(account, self._draw())
        orders: list[SignedBid] = []
        for market in markets:  # what one publishes must not tell of a bid that another keeps
            salt = drawn_salt(self._draw) if request.block else ZERO_DIGEST
            orders += make_bids(request, ways, market, self._purse, nonce=nonce, at=at, salt=salt)
        require_funds(account, self._promises, [order.bid.payload for order in orders])
        slices = tuple(product.slice_gpus for product, _ in ways) * len(markets)
        return Wanted(tuple(orders), slices), adverts

    async def _asks_for(self, request: LeaseRequest) -> Sequence[SignedAdvert]:
        """What the market lists of the classes wanted; of all classes, if it lists none of them."""
        found = [advert for name in request.query.names for advert in await self._market.asks(name)]
        once = {advert.signature: advert for advert in found}
        return tuple(once.values()) or await self._market.asks()
