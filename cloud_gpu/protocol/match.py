"""A match pairs one ask with one bid at a price; a fill is the same fact seen from one order.

Here too: what a market answers about a bid, up to the lease it became.
"""

from __future__ import annotations

from enum import StrEnum

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.signing import TypedData
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import Digest, Value


class Match(TypedData, frozen=True, kw_only=True):
    """The matcher's signature under a pair, with which anyone may open it."""

    TYPE = "Match(bytes32 askHash,bytes32 bidHash,uint64 price,uint16 marketId)"
    ask_hash: Digest
    bid_hash: Digest
    price: Price
    market_id: int


class BidState(StrEnum):
    """How far a bid has come."""

    PENDING = "pending"
    """Durable, waits for a round."""
    MATCHED = "matched"
    """Paired; the opening is on its way to the chain."""
    OPENED = "opened"
    """The lease is funded."""
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Obstruction(Value, frozen=True, kw_only=True):
    """One limit, and how many machines it keeps from a bid."""

    field: str
    """As in a `Rejection`."""
    asks: int
    alone: int
    """Of them: those that nothing else keeps from it."""


class Explanation(Value, frozen=True, kw_only=True):
    """How one round compared a bid with the free asks of its product, the cheapest ones first; an
    order of futures, with all orders of the other side."""

    asks: int
    """How many were compared."""
    obstructions: tuple[Obstruction, ...] = ()
    """Limits that were in the way, the most hindering first. Of a match: of cheaper asks only."""
    taken: int = 0
    """Fitting ones that went to others, who come before it."""
    change: str = ""
    """The cheapest single change that would have matched; empty: there is none."""
    price: str = ""
    """Why a match has its price, one sentence."""


class BidReport(Value, frozen=True, kw_only=True):
    """What the market says of one bid. The buyer checks every word of it against the chain."""

    bid: Digest
    state: BidState
    rejection: Rejection | None = None
    """Why it was refused, or, while pending, why the last round did not match it."""
    price: Price | None = None
    """Of a gang the dearest machine's."""
    leases: tuple[LeaseKey, ...] = ()
    adverts: tuple[SignedAdvert, ...] = ()
    """The matched asks, with their nodes' addresses: one, or a gang's."""
    explanation: Explanation | None = None
    """Of the last round that looked at it."""
