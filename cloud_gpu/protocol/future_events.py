"""Past facts of Futures on the chain; see `chain_events`, whose union they are part of.

What they move of accounts' cash is told besides, as `CashChanged`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value


class FutureEnd(StrEnum):
    """How a contract ended without delivery."""

    LONG_DEFAULT = "long-default"
    """It did not fund: its margin went to the short."""
    SHORT_DEFAULT = "short-default"
    """It nominated nothing: its margin went to the long."""
    BOTH_DEFAULT = "both-default"
    LAPSED = "lapsed"
    """Nobody delivered in time: everything went back."""


class UnitEnd(StrEnum):
    """How the lease of a delivered machine ended."""

    HELD = "held"
    BROKEN_BY_LONG = "broken-by-long"
    BROKEN_BY_SHORT = "broken-by-short"


class _Event(Value, frozen=True, kw_only=True, tag=True):
    pass


class FutureOpened(_Event, frozen=True, kw_only=True):
    """A contract begins; both margins are locked."""

    contract: int
    long: Address
    short: Address
    series: Series
    per_hour: TokenAmount
    """A GPU-hour; another market may open at a finer price than a tick."""
    units: int
    long_margin: TokenAmount
    short_margin: TokenAmount
    buy: Digest
    sell: Digest
    """Struct hashes of the orders it came from."""
    at: int


class FutureOrderClosed(_Event, frozen=True, kw_only=True):
    """An order opens no more contracts, if it is this trader's."""

    order: Digest
    """Its struct hash."""
    trader: Address
    at: int


class FutureAssigned(_Event, frozen=True, kw_only=True):
    """`joiner` stands where `leaver` stood."""

    contract: int
    is_buy: bool
    leaver: Address
    joiner: Address
    at: int


class FutureFunded(_Event, frozen=True, kw_only=True):
    """The long locked the whole price."""

    contract: int
    amount: TokenAmount
    at: int


class MachinesNominated(_Event, frozen=True, kw_only=True):
    """The short will deliver these machines, in place of any it named before."""

    contract: int
    indexes: tuple[int, ...]
    at: int


class UnitDelivered(_Event, frozen=True, kw_only=True):
    """A machine's firm lease is open (its `LeaseOpened` came before), with margins behind it."""

    contract: int
    lease: LeaseKey
    long_margin: TokenAmount
    short_margin: TokenAmount
    at: int


class UnitFailed(_Event, frozen=True, kw_only=True):
    """A nominated machine could not be leased."""

    contract: int
    machine: MachineKey
    rejection: Rejection
    at: int


class FutureDelivered(_Event, frozen=True, kw_only=True):
    """All machines were tried. The contract is over but for the leases of its units."""

    contract: int
    delivered: int
    to_long: TokenAmount
    to_short: TokenAmount
    at: int


class FutureEnded(_Event, frozen=True, kw_only=True):
    """The contract ended without delivery."""

    contract: int
    end: FutureEnd
    to_long: TokenAmount
    to_short: TokenAmount
    at: int


class UnitEnded(_Event, frozen=True, kw_only=True):
    """The lease of a unit ended or was stopped, `left_s` seconds early."""

    contract: int
    lease: LeaseKey
    end: UnitEnd
    left_s: int
    at: int


class UnitSettled(_Event, frozen=True, kw_only=True):
    """The margins of a unit went to the sides."""

    contract: int
    lease: LeaseKey
    to_long: TokenAmount
    to_short: TokenAmount
    at: int


FutureEvent: TypeAlias = (  # of one contract
    FutureOpened
    | FutureAssigned
    | FutureFunded
    | MachinesNominated
    | UnitDelivered
    | UnitFailed
    | FutureDelivered
    | FutureEnded
    | UnitEnded
    | UnitSettled
)
