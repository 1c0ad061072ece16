"""Orders of futures at rest, by series and in order of service; and openings on their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cloud_gpu.protocol.calls import OpenFutures
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.future_reports import FutureReport, Level
from cloud_gpu.protocol.futures import FutureOrder, Series
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.signing import Verified
from cloud_gpu.protocol.ties import tie_of
from cloud_gpu.protocol.units import Instant, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from market.books.entry_batches import EntryBatches

LIVE = (BidState.PENDING, BidState.MATCHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingFuture:
    """An order that this market answers for, whatever became of it."""

    id: Digest
    order: Verified[FutureOrder]
    series: Series
    inbox: int
    batch: Instant
    """When the batch began in which it came."""
    tie: bytes = b""
    """Set when that batch ends."""
    openings: int = 0
    """In how many batches since its last contract an opening of it failed."""
    failed: Rejection | None = None
    """Why one of the present batch did."""
    is_withdrawn: bool = False
    report: FutureReport
    """What the API answers now."""

    @property
    def state(self) -> BidState:
        """How far it has come."""
        return self.report.state

    @property
    def limit(self) -> Price:
        """The most a buy pays, the least a sell takes."""
        return self.order.payload.limit_price_per_hour

    @property
    def units(self) -> int:
        """Machines that are not in a contract yet; some may be on their way into one."""
        return self.order.payload.units - self.report.filled

    @property
    def nonce(self) -> tuple[Address, int]:
        """What it uses up when it opens."""
        return self.order.payload.trader, self.order.payload.nonce

    @property
    def rank(self) -> tuple[int, Instant, bytes]:
        """Its place on its side of the series, best first."""
        limit = self.limit.value
        return -limit if self.order.payload.is_buy else limit, self.batch, self.tie


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureOpening:
    """A pair whose transaction is on its way."""

    buy: Digest
    sell: Digest
    matched_at: Instant
    price: Price
    units: int
    locked: tuple[tuple[Address, TokenAmount], ...]
    """Whose cash becomes which margin, once it opens."""
    call: OpenFutures
    posted_at: Instant
    contract: int | None = None
    """That opened; kept in case that its block does not stay."""

    @property
    def key(self) -> tuple[Digest, Digest, Instant]:
        """A batch matches two orders once."""
        return self.buy, self.sell, self.matched_at

    @property
    def is_settled(self) -> bool:
        """Whether the contract opened."""
        return self.contract is not None


class FuturesBook:
    """Changes only by the calls below; equal calls, equal book."""

    def __init__(self) -> None:
        self._orders: dict[Digest, RestingFuture] = {}
        self._live: dict[Address, set[Digest]] = {}
        self._openings: dict[tuple[Digest, Digest, Instant], FutureOpening] = {}
        self._of: dict[Digest, set[tuple[Digest, Digest, Instant]]] = {}
        self._entering: set[Digest] = set()
        self.batches = EntryBatches()

    # Orders.

    def order(self, order: Digest) -> RestingFuture | None:
        """One that was not forgotten yet."""
        return self._orders.get(order)

    def orders(self) -> Iterator[RestingFuture]:
        """All, by id."""
        return (self._orders[key] for key in sorted(self._orders))

    def live_of(self, account: Address) -> list[RestingFuture]:
        """Orders of one account that wait or are on their way to the chain, by id."""
        return [self._orders[key] for key in sorted(self._live.get(account, ()))]

    def waiting(self) -> dict[Series, list[RestingFuture]]:
        """Orders that may be matched, by series in order of product, start and length."""
        found: dict[Series, list[RestingFuture]] = {}
        for account in sorted(self._live):
            for each in self.live_of(account):
                if each.state is BidState.PENDING:
                    found.setdefault(each.series, []).append(each)
        return dict(sorted(found.items(), key=lambda item: item[0].key))

    @property
    def has_waiting(self) -> bool:
        """Whether any order waits."""
        live = (self._orders[key] for keys in self._live.values() for key in keys)
        return any(each.state is BidState.PENDING for each in live)

    def put(self, order: RestingFuture) -> None:
        """A new order, which joins the batch that is open, or one that changed."""
        if order.id not in self._orders:
            self.batches.enter(order.batch, len(self._entering))
            self._entering.add(order.id)
        self._orders[order.id] = order
        live = self._live.setdefault(order.nonce[0], set())
        if order.state in LIVE:
            live.add(order.id)
        else:
            self._forget_live(order)

    def drop(self, order: Digest) -> None:
        """Forget an order."""
        self._forget_live(self._orders.pop(order))
        self._entering.discard(order)

    def _forget_live(self, order: RestingFuture) -> None:
        live = self._live.get(order.nonce[0], set())
        live.discard(order.id)
        if not live:
            self._live.pop(order.nonce[0], None)

    def batch_for(self, interval: Instant) -> Instant:
        """The batch that an order enters now; a later interval ends the one before."""
        if self.batches.is_over(interval):
            self.end_batch()
        return self.batches.number_for(interval)

    def end_batch(self) -> None:
        """The batch in which orders entered is over: draw their tie keys."""
        if not self._entering:
            return
        seed = self.batches.draw(self._entering)
        for key in self._entering:
            self._orders[key] = replace(self._orders[key], tie=tie_of(seed, key).raw)
        self._entering.clear()

    # Openings, each under both its orders.

    def openings_of(self, order: Digest) -> list[FutureOpening]:
        """An order's openings, oldest first."""
        found = (self._openings[key] for key in self._of.get(order, ()))
        return sorted(found, key=lambda each: (each.matched_at, each.buy, each.sell))

    def on_its_way(self, order: Digest) -> list[FutureOpening]:
        """Those of them that the chain has not answered."""
        return [each for each in self.openings_of(order) if not each.is_settled]

    def put_opening(self, opening: FutureOpening) -> None:
        """A new opening, or one that changed."""
        self._openings[opening.key] = opening
        for order in (opening.buy, opening.sell):
            self._of.setdefault(order, set()).add(opening.key)

    def drop_opening(self, opening: FutureOpening) -> None:
        """Forget one."""
        self._openings.pop(opening.key, None)
        for order in (opening.buy, opening.sell):
            keys = self._of.get(order, set())
            keys.discard(opening.key)
            if not keys:
                self._of.pop(order, None)

    def openings(self) -> Iterator[FutureOpening]:
        """All, by their buys, sells and times."""
        return (opening for _, opening in sorted(self._openings.items()))

    def on_their_way(self) -> Iterator[FutureOpening]:
        """Those that the chain has not answered."""
        return (opening for opening in self.openings() if not opening.is_settled)

    def calls(self) -> list[OpenFutures]:
        """The distinct transactions of those, in order of their first buy."""
        calls: list[OpenFutures] = []
        for opening in self.on_their_way():
            if opening.call not in calls:
                calls.append(opening.call)
        return calls

    def locking(self) -> dict[Address, int]:
        """What openings on their way will lock of each account's cash."""
        sums: dict[Address, int] = {}
        for opening in self.on_their_way():
            for account, margin in opening.locked:
                sums[account] = sums.get(account, 0) + margin.value
        return sums

    def busy(self) -> frozenset[tuple[Address, int]]:
        """The nonces of openings on their way."""
        keys = (key for opening in self.on_their_way() for key in (opening.buy, opening.sell))
        return frozenset(self._orders[key].nonce for key in keys if key in self._orders)

    # The whole.

    def rows(self) -> list[list[object]]:
        """Everything in it in one fixed order, for a digest of the state."""
        orders: list[object] = [
            [
                each.id,
                each.batch,
                each.tie.hex(),
                each.openings,
                each.failed,
                each.is_withdrawn,
                each.report,
            ]
            for each in self.orders()
        ]
        openings: list[object] = [
            [*o.key, o.price, o.units, o.posted_at, o.contract] for o in self.openings()
        ]
        return [orders, openings, [*self.batches.rows(), sorted(self._entering)]]


def levels_of(orders: list[RestingFuture], *, is_buy: bool) -> tuple[Level, ...]:
    """A side's depth, best price first."""
    sums: dict[int, int] = {}
    for each in orders:
        if each.order.payload.is_buy is is_buy:
            sums[each.limit.value] = sums.get(each.limit.value, 0) + each.units
    return tuple(
        Level(price=Price(price), units=units)
        for price, units in sorted(sums.items(), reverse=is_buy)
    )
