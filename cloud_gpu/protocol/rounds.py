"""Rounds as a market publishes them, so that strangers can compute its matches again.

Each clearing of a lane is one signed header over Merkle roots, and a body with what changed since
the lane's round before. Whoever applies the bodies in order has the lists behind the roots. Headers
form one chain over all lanes: the newest one says which rounds and which journal must be there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final, TypeAlias

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.futures import FutureOrder, Series
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.merkle import Path
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.signing import Domain, Signed, Statement
from cloud_gpu.protocol.ties import EntryBatch
from cloud_gpu.protocol.units import BasisPoints, Instant, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value, keccak256

NEVER: Final = 2**53 - 1
"""The expiry of a header: what a market published stays its word."""


class Lane(StrEnum):
    """Which rule cleared."""

    ON_DEMAND = "on-demand"
    BLOCK = "block"
    FUTURES = "futures"

    @property
    def entries(self) -> Lane:
        """Whose entry batches draw its tie keys: lanes A and B have one book."""
        return Lane.ON_DEMAND if self is Lane.BLOCK else self


# What a round was given: lists in order of their keys.


class _Row(Value, frozen=True, kw_only=True, tag=True):
    pass


class PlacedBid(_Row, frozen=True, kw_only=True):
    """A bid that took part."""

    order: SignedBid
    batch: Instant
    """When the batch began in which it entered."""
    tie: Digest

    @property
    def key(self) -> str:
        """Its place in the list."""
        return str(self.order.bid.payload.id)


class PlacedFuture(_Row, frozen=True, kw_only=True):
    """An order of futures that took part."""

    order: Signed[FutureOrder]
    filled: int
    """Units in contracts before the round: the rest took part."""
    batch: Instant
    tie: Digest

    @property
    def key(self) -> str:
        """Its place in the list."""
        return str(self.order.payload.id)


class PlacedAsk(_Row, frozen=True, kw_only=True):
    """An ask that could be taken, of a product that somebody wanted."""

    advert: SignedAdvert
    batch: Instant
    tie: Digest

    @property
    def key(self) -> str:
        """Its place in the list."""
        return str(self.advert.body.ask.payload.id)


class AccountCondition(_Row, frozen=True, kw_only=True):
    """A buyer's or trader's free cash, base units."""

    account: Address
    cash: int
    """Before the round."""
    left: int
    """After it."""

    @property
    def key(self) -> str:
        """Its place in the list."""
        return self.key_of(self.account)

    @staticmethod
    def key_of(account: Address) -> str:
        """Where an account's row stands."""
        return f"account {account}"


class MachineCondition(_Row, frozen=True, kw_only=True):
    """What the chain says of an ask's machine."""

    machine: MachineKey
    bond: TokenAmount
    """Free."""
    is_barred: bool
    """Its provider takes no verified lease any more."""

    @property
    def key(self) -> str:
        """Its place in the list."""
        return self.key_of(self.machine)

    @staticmethod
    def key_of(machine: MachineKey) -> str:
        """Where a machine's row stands."""
        return f"machine {machine}"


class ProductCondition(_Row, frozen=True, kw_only=True):
    """A product that somebody wanted."""

    product: Product
    owners: int
    """Of its GPU class; 0 where no bid for a verified lease asked."""

    @property
    def key(self) -> str:
        """Its place in the list."""
        return self.key_of(self.product.id)

    @staticmethod
    def key_of(product: int) -> str:
        """Where a product's row stands."""
        return f"product {product}"


class SeriesCondition(_Row, frozen=True, kw_only=True):
    """A series that somebody wanted to trade."""

    series: Series
    reference: Price | None
    """Its last price on chain."""

    @property
    def key(self) -> str:
        """Its place in the list."""
        return f"series {self.series}"


# What came of it.


class Taken(_Row, frozen=True, kw_only=True):
    """One machine's ask, matched."""

    ask: Digest
    bid: Digest
    price: Price
    """In lane A the ask's own; in lane B what the auction has it paid."""
    locked: TokenAmount
    """Of the buyer's cash."""

    @property
    def key(self) -> str:
        """Its place in the list: no ask stands there twice."""
        return str(self.ask)


class Paired(_Row, frozen=True, kw_only=True):
    """A long's order and a short's, matched for one contract."""

    buy: Digest
    sell: Digest
    price: Price
    units: int

    @property
    def key(self) -> str:
        """Its place in the list."""
        return f"{self.buy} {self.sell}"


class Unmatched(_Row, frozen=True, kw_only=True):
    """An order that took part in vain; in lane A not one whose alternative was matched."""

    order: Digest
    reason: str
    """A `RejectReason`: NO_MATCH; another where only cash was in the way. In lane B a
    `LossReason`."""

    @property
    def key(self) -> str:
        """Its place in the list."""
        return str(self.order)


class Gone(Value, frozen=True, kw_only=True):
    """An order that does not take part, though it did before, or came in since."""

    order: Digest
    why: str
    """Its state, as the API tells it; "waiting": it may not match yet; "forgotten"; "alternative":
    another order with its nonce is on its way to the chain, also by another lane."""


class ArrivalKind(StrEnum):
    """What came out of the inbox."""

    BID = "bid"
    BLOCK = "block"
    """A bid for lane B: what it wants is told by the round of its auction, not before."""
    FUTURE = "future"
    CANCELLATION = "cancellation"
    CAMPAIGN = "campaign"
    PLEDGE = "pledge"


class Arrival(_Row, frozen=True, kw_only=True):
    """What came out of the inbox at one position: each position stands in one round."""

    inbox: int
    order: Digest
    """Of a cancellation: what it cancels."""
    kind: ArrivalKind
    journal: int
    """Which entry of the journal it is."""
    refused: str = ""
    """A `RejectReason`, if it did not enter the book."""


Placed: TypeAlias = PlacedBid | PlacedFuture
Condition: TypeAlias = AccountCondition | MachineCondition | ProductCondition | SeriesCondition
Fill: TypeAlias = Taken | Paired


class RoundBody(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What changed since the lane's round before; fills, batches and arrivals are whole."""

    rules: str = ""
    """The market's rules as canonical JSON, where they changed."""
    orders: tuple[Placed, ...] = ()
    orders_gone: tuple[Gone, ...] = ()
    asks: tuple[PlacedAsk, ...] = ()
    asks_gone: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    conditions_gone: tuple[str, ...] = ()
    fills: tuple[Fill, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    unmatched_gone: tuple[str, ...] = ()
    batches: tuple[EntryBatch, ...] = ()
    """Of the lane's `entries`, that ended."""
    arrivals: tuple[Arrival, ...] = ()
    """Of every lane, since the round before of any."""


class Roots(Value, frozen=True, kw_only=True):
    """Of the whole lists; see `merkle`."""

    orders: Digest
    asks: Digest
    conditions: Digest
    fills: Digest
    unmatched: Digest
    batches: Digest
    """Of `SealedBatch`es."""
    arrivals: Digest


class SealedBatch(Value, frozen=True, kw_only=True):
    """An entry batch, short: what a proof shows of it."""

    batch: Instant
    before: Digest
    entered: Digest
    """The root of its subjects."""
    seed: Digest


class RoundFacts(Value, frozen=True, kw_only=True):
    """What the matchmaker says of a round: the same from the same journal."""

    domain: Domain
    market: Address
    market_id: int
    number: int
    """Over all lanes, from 1 without gaps."""
    lane: Lane
    batch: int
    """Rounds of the lane so far."""
    at: Instant
    """The market's clock."""
    journal_from: int
    journal_to: int
    """The entries since the round before, up to that at which it cleared: what that one says
    came after."""
    inbox_from: int
    inbox_to: int
    """The inbox's positions since the round before; from above to: none."""
    engine: str
    """Which version of the lanes' rules."""
    rules: Digest
    fee: BasisPoints
    chain_at: int
    """Unix seconds: the later of the market's clock and the chain's."""
    inclusion_s: int
    owners_min: int
    verifiers_alive: bool
    seed: Digest
    """Of the newest batch that ended of the lane's `entries`."""
    roots: Roots


class RoundHeader(Value, frozen=True, kw_only=True):
    """A round in its chain. Signed as a statement by the market's key."""

    KIND: ClassVar[str] = "cloud-gpu/round"
    facts: RoundFacts
    before: Digest
    """The id of the header before; zero before the first."""
    journal_head: Digest
    """Of the journal, at `facts.journal_to`."""

    @property
    def id(self) -> Digest:
        """keccak256 of the canonical JSON."""
        return keccak256(to_json(self))


SignedHeader = Statement[RoundHeader]


class Sequenced(Value, frozen=True, kw_only=True):
    """The second receipt: where an order came into the journal, under a header of the market's."""

    header: SignedHeader
    arrival: Arrival
    path: Path
    """From the arrival to `header.body.facts.roots.arrivals`."""


class PublishedRound(Value, frozen=True, kw_only=True):
    """A round as it travels."""

    header: SignedHeader
    body: RoundBody
