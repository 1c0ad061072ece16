"""What a market tells as it happens: the words of its event stream (`GET /v1/events`).

Public is what a lease's or a round's publication says anyway; how a bid fares, its buyer alone
hears. A bid that waits is never told of, so nothing shows a sealed one before its auction.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from cloud_gpu.protocol.future_reports import ContractReport, SeriesReport
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import LeaseReport
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.signing import Statement
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import Address, Digest, Value

WATCH_LIFE_S_MAX = 24 * 3_600
"""How long a signed wish to watch is good for at most."""


class Topic(StrEnum):
    """What an event is about."""

    BOOK = "book"
    """An ask came or went."""
    TRADE = "trade"
    """A bid was matched, or its match opened."""
    ROUND = "round"
    """A lane cleared."""
    LEASE = "lease"
    """A lease opened, began, ended."""
    SERIES = "series"
    """The depth or the last price of a series of futures."""
    CONTRACT = "contract"
    """A contract of futures opened, was funded, nominated, delivered, ended."""
    BID = "bid"
    """One's own bid, other than that it waits."""


class BookChange(Value, frozen=True, kw_only=True):
    """An ask that came, or, without a price, one that went."""

    ask: Digest | None
    """None: the market starts; forget its book, what is on offer follows."""
    product: int = 0
    """0: not known any more."""
    gpu_class: GpuClass | None = None
    price: Price | None = None


class Trade(Value, frozen=True, kw_only=True):
    """A bid and its machines' asks."""

    bid: Digest
    state: BidState
    product: int
    asks: tuple[Digest, ...]
    price: Price | None
    """Of a gang the dearest machine's."""


class Cleared(Value, frozen=True, kw_only=True):
    """A lane's round; one of lane B is a block auction."""

    lane: str
    number: int
    """Over all lanes: `GET /v1/rounds/{number}`."""


class Cut(Value, frozen=True, kw_only=True):
    """Why the stream ends, or what it could not tell. Not kept, so it has no number."""

    reason: str


NewsBody = BookChange | Trade | Cleared | LeaseReport | SeriesReport | ContractReport | BidReport


BODIES: Mapping[Topic, type[Value]] = MappingProxyType(
    {
        Topic.BOOK: BookChange,
        Topic.TRADE: Trade,
        Topic.ROUND: Cleared,
        Topic.LEASE: LeaseReport,
        Topic.SERIES: SeriesReport,
        Topic.CONTRACT: ContractReport,
        Topic.BID: BidReport,
    }
)
"""What an event of each topic carries."""


class Watch(Value, frozen=True, kw_only=True):
    """An account's wish to hear of its own bids; signed by its own key for a market."""

    KIND: ClassVar[str] = "cloud-gpu/watch"
    account: Address
    market: Address


SignedWatch = Statement[Watch]
"""Travels in `Authorization: CloudGpu <base64url of its JSON>`."""


class Interest(Value, frozen=True, kw_only=True):
    """What to hear of; nothing named: all that is public."""

    topics: tuple[Topic, ...] = ()
    product: int | None = None
    account: Address | None = None
    wish: SignedWatch | None = None
    """Signed by `account`: tell of its own bids too."""


class News(Value, frozen=True, kw_only=True):
    """One event, as a reader of the stream has it."""

    number: int
    """Place in the market's stream; a later stream goes on behind it."""
    topic: Topic
    body: NewsBody
