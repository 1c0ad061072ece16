"""The book: which machine is offered, who wants one, what is held while an opening is on its way.

Asks rest per product in (price, entry batch, tie key) order; bids in (price down, batch, tie key).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import Ask, AskId, Bid, BidId, SignedAdvert, Terms
from cloud_gpu.protocol.signing import Verified
from cloud_gpu.protocol.ties import subject_of_ask, subject_of_bid, tie_of
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Address, Digest, keccak256
from market.books.entry_batches import EntryBatches
from market.books.ledger import Ledger

Nonce = tuple[Address, int]
"""Bids that share it are alternatives: at most one of them opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingAsk:
    """An ask in the book."""

    id: AskId
    ask: Verified[Ask]
    advert: SignedAdvert
    batch: Instant
    """When the round began in which it came."""
    tie: bytes = b""
    """Set when that round ends."""

    @property
    def machine(self) -> MachineKey:
        """What it is for."""
        return self.ask.payload.machine

    @property
    def gpus(self) -> int:
        """Of that machine."""
        return len(self.advert.body.profile.gpus)

    @property
    def rank(self) -> tuple[int, int, bytes]:
        """Its place among the asks of its product, cheapest first."""
        return self.ask.payload.min_price_per_hour.value, self.batch, self.tie


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingBid:
    """A bid that this market answers for, whatever became of it."""

    id: BidId
    bid: Verified[Bid]
    terms: Terms
    inbox: int
    batch: Instant
    tie: bytes = b""
    openings: int = 0
    """How often an opening of it failed."""
    not_before: Instant = 0
    """No new match earlier, after a failure."""
    is_withdrawn: bool = False
    explained_in: int = -1
    """The round that last said why it does not match."""
    report: BidReport
    """What the API answers now."""

    @property
    def state(self) -> BidState:
        """How far it has come."""
        return self.report.state

    @property
    def nonce(self) -> Nonce:
        """What its alternatives share."""
        return self.bid.payload.buyer, self.bid.payload.nonce

    @property
    def rank(self) -> tuple[int, int, bytes]:
        """Its place among the bids, dearest first; alternatives of one price share it."""
        return -self.bid.payload.max_price_per_hour.value, self.batch, self.tie


class Book:
    """Resting orders of all products. Changes only by the calls below; equal calls, equal book."""

    def __init__(self) -> None:
        self._asks: dict[MachineKey, RestingAsk] = {}
        self._ladders: dict[int, list[tuple[tuple[int, int, bytes], MachineKey]]] = {}
        self._bids: dict[BidId, RestingBid] = {}
        self._alternatives: dict[Nonce, list[BidId]] = {}
        self._held: dict[MachineKey, BidId] = {}
        self._waiting: set[BidId] = set()
        self._sealed: set[BidId] = set()
        self._live: dict[Address, set[BidId]] = {}
        self.batches = EntryBatches()
        self._entering_asks: set[MachineKey] = set()
        self._entering_bids: set[BidId] = set()

    # Entry batches.

    def batch_for(self, interval: Instant) -> Instant:
        """The batch that an order enters now, whose round's interval began then.

        A later interval ends the batch before.
        """
        if self.batches.is_over(interval):
            self.end_batch()
        return self.batches.number_for(interval)

    def end_batch(self) -> None:
        """The round in which orders entered is over: draw their tie keys."""
        asks = [self._asks[machine] for machine in sorted(self._entering_asks)]
        bids = [self._bids[bid] for bid in sorted(self._entering_bids)]
        entered = [subject_of_ask(ask.ask.payload) for ask in asks]
        entered += [subject_of_bid(bid.bid.payload, bid.terms) for bid in bids]
        if not entered:
            return
        seed = self.batches.draw(entered)
        for ask in asks:
            tied = replace(ask, tie=tie_of(seed, subject_of_ask(ask.ask.payload)).raw)
            self._asks[ask.machine] = tied
            self._climb(tied)
        for bid in bids:
            tie = tie_of(seed, subject_of_bid(bid.bid.payload, bid.terms)).raw
            self._bids[bid.id] = replace(bid, tie=tie)
        self._entering_asks.clear()
        self._entering_bids.clear()

    def _enter(self, batch: Instant) -> None:
        self.batches.enter(batch, len(self._entering_asks) + len(self._entering_bids))

    # Asks.

    def ask_of(self, machine: MachineKey) -> RestingAsk | None:
        """The one ask that counts for a machine."""
        return self._asks.get(machine)

    def asks(self) -> Iterator[RestingAsk]:
        """All asks, by machine."""
        return (self._asks[key] for key in sorted(self._asks))

    def put_ask(self, ask: RestingAsk) -> None:
        """List an ask in place of the machine's earlier one.

        Renewed at the same price for the same lease, it keeps its place: otherwise a node would
        lose its age, or draw a new tie key, with every renewal.
        """
        before = self.drop_ask(ask.machine)
        if before is not None and _same_offer(before.ask.payload, ask.ask.payload):
            ask = replace(ask, batch=before.batch, tie=before.tie)
        self._asks[ask.machine] = ask
        if ask.tie:
            self._climb(ask)
        else:
            self._enter(ask.batch)
            self._entering_asks.add(ask.machine)

    def drop_ask(self, machine: MachineKey) -> RestingAsk | None:
        """Forget a machine's ask; returns it."""
        ask = self._asks.pop(machine, None)
        self._entering_asks.discard(machine)
        if ask is not None and ask.tie:
            ladder = self._ladders[ask.ask.payload.product]
            place = bisect_left(ladder, (ask.rank, machine))
            assert ladder[place] == (ask.rank, machine), (ladder[place], ask.rank)
            del ladder[place]
        return ask

    def _climb(self, ask: RestingAsk) -> None:
        insort(self._ladders.setdefault(ask.ask.payload.product, []), (ask.rank, ask.machine))

    def is_available(self, ask: RestingAsk, ledger: Ledger, at: int) -> bool:
        """Whether the machine could be leased by this ask now; `at` in Unix seconds."""
        payload = ask.ask.payload
        row = ledger.machines.get(ask.machine)
        return (
            row is not None
            and row.status is MachineStatus.FREE
            and row.next_seq == payload.seq
            and row.product == payload.product
            and ask.machine not in self._held
            and payload.start_by > at
            and (
                ask.ask.signer == payload.provider
                or ledger.may_sign(payload.provider, ask.ask.signer, KeyRole.NODE, at)
            )
        )

    def available(self, product: int, ledger: Ledger, at: int) -> tuple[RestingAsk, ...]:
        """A product's asks that could be taken now, cheapest first; not those of an open batch."""
        ranked = (self._asks[machine] for _, machine in self._ladders.get(product, []))
        return tuple(ask for ask in ranked if self.is_available(ask, ledger, at))

    # Bids.

    def bid(self, bid: BidId | Digest) -> RestingBid | None:
        """A bid that was not forgotten yet."""
        return self._bids.get(BidId(bid))

    def bids(self) -> Iterator[RestingBid]:
        """All bids, by id."""
        return (self._bids[key] for key in sorted(self._bids))

    @property
    def has_waiting(self) -> bool:
        """Whether any bid waits for a match in lane A."""
        return bool(self._waiting)

    @property
    def has_sealed(self) -> bool:
        """Whether any bid waits for a block auction, lane B."""
        return bool(self._sealed)

    @property
    def waiting_count(self) -> int:
        """Bids that wait for a match."""
        return len(self._waiting) + len(self._sealed)

    def sealed(self) -> list[RestingBid]:
        """Bids that wait for a block auction, by id."""
        return [self._bids[key] for key in sorted(self._sealed)]

    def waiting(self) -> list[RestingBid]:
        """Bids that wait for a match in lane A, dearest first."""
        return sorted(
            (self._bids[key] for key in self._waiting), key=lambda bid: (bid.rank, bid.id)
        )

    def enter_bid(self, bid: RestingBid) -> None:
        """A new bid joins the round that is open."""
        assert bid.id not in self._bids, bid.id
        self._enter(bid.batch)
        self._entering_bids.add(bid.id)
        self._alternatives.setdefault(bid.nonce, []).append(bid.id)
        self.put_bid(bid)

    def put_bid(self, bid: RestingBid) -> None:
        """A bid changed."""
        self._bids[bid.id] = bid
        lane = self._sealed if bid.terms.block else self._waiting
        if bid.state is BidState.PENDING:
            lane.add(bid.id)
        else:
            lane.discard(bid.id)
        live = self._live.setdefault(bid.nonce[0], set())
        if bid.state in (BidState.PENDING, BidState.MATCHED):
            live.add(bid.id)
        else:
            live.discard(bid.id)

    def drop_bid(self, bid: RestingBid) -> None:
        """Forget a bid."""
        del self._bids[bid.id]
        self._waiting.discard(bid.id)
        self._sealed.discard(bid.id)
        rest = [other for other in self._alternatives[bid.nonce] if other != bid.id]
        if rest:
            self._alternatives[bid.nonce] = rest
        else:
            del self._alternatives[bid.nonce]
        self._entering_bids.discard(bid.id)
        live = self._live[bid.nonce[0]]
        live.discard(bid.id)
        if not live:
            del self._live[bid.nonce[0]]

    def alternatives(self, nonce: Nonce) -> list[RestingBid]:
        """Bids of one buyer that share a nonce, in the order they came."""
        return [self._bids[key] for key in self._alternatives.get(nonce, [])]

    def live_count(self, buyer: Address) -> int:
        """Bids of one buyer that wait or are on their way to the chain."""
        return len(self._live.get(buyer, ()))

    def live_of(self, buyer: Address) -> list[RestingBid]:
        """Bids of one buyer that wait or are on their way to the chain, by id."""
        return [self._bids[key] for key in sorted(self._live.get(buyer, ()))]

    # Capacity.

    def hold(self, machine: MachineKey, bid: BidId) -> None:
        """A match takes the machine until the chain answers."""
        assert machine not in self._held, (machine, self._held[machine])
        self._held[machine] = bid

    def release(self, machine: MachineKey, bid: BidId) -> None:
        """The match is settled or given up."""
        if self._held.get(machine) == bid:
            del self._held[machine]

    def holder(self, machine: MachineKey) -> BidId | None:
        """The bid for which a machine is held."""
        return self._held.get(machine)

    # The whole.

    def state_hash(self, *others: object) -> Digest:
        """keccak256 of everything in the book, and of `others`, in one canonical order."""
        state = [
            [[ask.id, ask.batch, ask.tie.hex(), ask.advert.expiry] for ask in self.asks()],
            [_bid_row(bid) for bid in self.bids()],
            sorted([str(machine), bid] for machine, bid in self._held.items()),
            [*self.batches.rows(), sorted(self._entering_asks), sorted(self._entering_bids)],
            list(others),
        ]
        return keccak256(to_json(state))


def is_newer(advert: SignedAdvert, known: SignedAdvert) -> bool:
    """Whether it counts in place of another one of its machine: gossip comes in any order."""
    ask, before = advert.body.ask.payload, known.body.ask.payload
    return ask.seq > before.seq or (
        (ask.start_by, advert.nonce, advert.expiry) > (before.start_by, known.nonce, known.expiry)
    )


def _same_offer(before: Ask, after: Ask) -> bool:
    return all(
        getattr(before, name) == getattr(after, name)
        for name in Ask.__struct_fields__
        if name != "start_by"
    )


def _bid_row(bid: RestingBid) -> list[object]:
    return [
        bid.id,
        bid.inbox,
        bid.batch,
        bid.tie.hex(),
        bid.openings,
        bid.not_before,
        bid.is_withdrawn,
        bid.explained_in,
        bid.report,
    ]
