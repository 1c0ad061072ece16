"""What a market answers about futures: orders, contracts, series, and what a side must do by when.

Everybody checks it against the chain; the market's word moves no money.
"""

from __future__ import annotations

from enum import StrEnum

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import BidState, Explanation
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value


class OrderFill(Value, frozen=True, kw_only=True):
    """A contract that came of an order."""

    contract: int
    units: int
    per_hour: TokenAmount
    """A GPU-hour."""


class FutureReport(Value, frozen=True, kw_only=True):
    """How far an order has come. Opened: all its units are in contracts.

    Pending, cancelled or expired, it may be filled in part.
    """

    order: Digest
    state: BidState
    rejection: Rejection | None = None
    """Why it was refused, or, while pending, why the last batch did not fill it."""
    price: Price | None = None
    units: int = 0
    """Matched, on their way into contracts at `price`."""
    filled: int = 0
    """Units in contracts."""
    contracts: tuple[OrderFill, ...] = ()
    """That the chain opened, oldest first."""
    explanation: Explanation | None = None
    """Of the last batch that had something new to tell."""


class ContractState(StrEnum):
    """Where a contract stands on the chain."""

    OPEN = "open"
    """Margins are locked; its window has not begun, or nobody delivered yet."""
    DELIVERED = "delivered"
    """Its leases run, or their margins were not paid out yet."""
    SETTLED = "settled"
    LONG_DEFAULT = "long-default"
    SHORT_DEFAULT = "short-default"
    BOTH_DEFAULT = "both-default"
    LAPSED = "lapsed"
    UNDONE = "undone"
    """The block that opened it is no longer part of the chain."""


class FutureContract(Value, frozen=True, kw_only=True):
    """A contract as the chain tells of it."""

    id: int
    long: Address
    short: Address
    series: Series
    per_hour: TokenAmount
    """A GPU-hour."""
    units: int
    long_margin: TokenAmount
    short_margin: TokenAmount
    buy: Digest
    sell: Digest
    """The orders it came from."""
    opened_at: int
    state: ContractState = ContractState.OPEN
    is_funded: bool = False
    machines: tuple[int, ...] = ()
    """Nominated by the short."""
    leases: tuple[LeaseKey, ...] = ()
    """Of delivered machines; margins stand behind them until they are settled."""
    ended: tuple[LeaseKey, ...] = ()
    """Those of `leases` that are over: their margins can be paid out."""


class ContractReport(Value, frozen=True, kw_only=True):
    """A contract, and what the market suggests about it."""

    contract: FutureContract
    deadline: int
    """Until when the long funds and the short nominates, Unix seconds."""
    suggested: tuple[int, ...] = ()
    """Machines of the short that serve no other window then, fewest indexes first."""


class LastTrade(Value, frozen=True, kw_only=True):
    """What a series last cost here."""

    price: Price
    units: int
    at: int
    """Unix seconds, of the block that opened the contract."""


class Level(Value, frozen=True, kw_only=True):
    """Machines wanted or offered at one price."""

    price: Price
    units: int


class SeriesReport(Value, frozen=True, kw_only=True):
    """A series' book at the end of its last batch: what comes within a batch is not shown."""

    series: Series
    deadline: int
    buys: tuple[Level, ...]
    """Dearest first."""
    sells: tuple[Level, ...]
    """Cheapest first."""
    last: LastTrade | None = None


class FutureStep(StrEnum):
    """What somebody must do about a contract."""

    FUND = "fund"
    NOMINATE = "nominate"
    DELIVER = "deliver"
    SETTLE_DEFAULT = "settle-default"
    LAPSE = "lapse"
    SETTLE_UNIT = "settle-unit"
    """Pay out the margins behind a lease that ended."""


class Reminder(Value, frozen=True, kw_only=True):
    """One thing to do. `account` None: anybody may."""

    contract: int
    step: FutureStep
    account: Address | None
    since: int
    until: int | None
    """Unix seconds, both included; None: no end."""
    lease: LeaseKey | None = None
    """Whose margins, where one is meant."""


class Position(Value, frozen=True, kw_only=True):
    """A contract of an account, and what can be done about it now or later."""

    report: ContractReport
    steps: tuple[Reminder, ...]
