"""Held pay and batches of a `SimulatedBook`: what LeaseBook holds, and Verification's rows.

Amounts are base units, times Unix seconds, weights parts per million.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import BasisPoints, TokenAmount, share_down
from cloud_gpu.protocol.values import Address, Digest

HELD_SLOTS = 4


def no_block_hash(_number: int) -> Digest | None:
    """Of a book that no chain has mined."""
    return None


@dataclass(frozen=True, slots=True)
class Seat:
    """One of the two verifiers; both accounts must be registered before they are paid."""

    signer: Address
    anchor: Digest
    audits: Address


@dataclass(slots=True)
class HeldRow:
    """The held pay of one verified lease."""

    seq: int
    buyer: Address
    market_id: int
    audit_bps: BasisPoints
    audit: int
    """The buyer's share for audits that waits beside the pay."""
    amount: int = 0
    ended_at: int = 0
    """0: the lease runs."""
    next_batch: int = 0

    @property
    def needed(self) -> int:
        """The audit share of what is held."""
        return share_down(TokenAmount(self.amount), self.audit_bps).value


@dataclass(slots=True)
class BatchRow:
    """One batch."""

    buyer: Address
    market_id: int
    root: Digest
    n: int
    value: int
    audit: int
    locked: int
    number: int
    """Commitments before it: whose turn it is, and which preimage serves it."""
    block: int
    at: int
    state: BatchState = BatchState.COMMITTED
    seed: Digest | None = None
    accused: set[int] = field(default_factory=set)
    until: int = 0
    """When the newest accusation's window ends: all of them wait for it."""
    settled: set[int] = field(default_factory=set)
    """Contested or convicted."""
    returned: int = 0
    """Weight whose price went back to the buyer."""
    is_forfeit: bool = False
    points: int = 0
    """Of how many the verifier asks; 0: it asked for none."""
    open: set[int] = field(default_factory=set)
    """Points whose leaves are to be shown."""
    answered: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    answer_by: int = 0

    def copy(self) -> BatchRow:
        """A row that changes by itself."""
        return replace(
            self,
            accused=set(self.accused),
            settled=set(self.settled),
            open=set(self.open),
            answered=set(self.answered),
            silent=set(self.silent),
        )

    @property
    def has_ended(self) -> bool:
        """Whether its money left."""
        return self.state not in (BatchState.COMMITTED, BatchState.DRAWN)

    @property
    def left(self) -> int:
        """What of its value is still here."""
        return 0 if self.has_ended else self.value - self.price(self.returned)

    def give_back(self, weight: int) -> int:
        """The price of a weight that goes back to the buyer; all weights sum to 10^6 at most."""
        before = self.price(self.returned)
        self.returned = min(10**6, self.returned + weight)
        return self.price(self.returned) - before

    def price(self, weight: int) -> int:
        """What segments of this weight cost."""
        return self.value * weight // 10**6


@dataclass(slots=True)
class AuditRows:
    """Verification's storage, and what of the chain it asks for."""

    seats: tuple[Seat, ...] = ()
    block: int = 0
    """The block that is being made."""
    block_hash: Callable[[int], Digest | None] = no_block_hash
    batches: dict[tuple[LeaseKey, int], BatchRow] = field(default_factory=dict)
    heads: dict[int, tuple[Digest, int]] = field(default_factory=dict)
    """Seat -> its newest known preimage, and how far that is from the anchor."""
    convicted: set[LeaseKey] = field(default_factory=set)
    faults: dict[Address, tuple[Address, int]] = field(default_factory=dict)
    """Provider -> the buyer and the time of its newest conviction on two verdicts."""
    barred: set[Address] = field(default_factory=set)
    """LeaseBook's own."""
    held: dict[tuple[Address, int, int], HeldRow] = field(default_factory=dict)
    """(provider, index, seq mod 4) -> what is held there; LeaseBook's own."""

    def copy(self) -> AuditRows:
        """Rows that change by themselves."""
        return replace(
            self,
            batches={key: row.copy() for key, row in self.batches.items()},
            heads=dict(self.heads),
            convicted=set(self.convicted),
            faults=dict(self.faults),
            barred=set(self.barred),
            held={key: replace(row) for key, row in self.held.items()},
        )

    @property
    def money(self) -> int:
        """What is held and what open batches hold."""
        held = sum(row.amount + row.audit for row in self.held.values())
        open_ = [row for row in self.batches.values() if not row.has_ended]
        return held + sum(row.left + row.audit for row in open_)

    def slot(self, lease: LeaseKey) -> HeldRow | None:
        """What the slot of this lease number holds, of whichever lease."""
        return self.held.get(_slot(lease))

    def of(self, lease: LeaseKey) -> HeldRow | None:
        """What this very lease holds."""
        row = self.slot(lease)
        return row if row is not None and row.seq == lease.seq else None

    def put(self, lease: LeaseKey, row: HeldRow) -> None:
        """A verified lease opened."""
        self.held[_slot(lease)] = row

    def clear(self, lease: LeaseKey) -> None:
        """The slot is free again."""
        del self.held[_slot(lease)]

    def end(self, lease: LeaseKey, at: int) -> int:
        """The lease ended: what of the audit share is the buyer's again."""
        row = self.of(lease)
        assert row is not None, f"{lease} ended and has no slot"
        back = row.audit - row.needed
        if row.amount:
            row.audit, row.ended_at = row.needed, at
        else:
            self.clear(lease)
        return back


def _slot(lease: LeaseKey) -> tuple[Address, int, int]:
    return lease.provider, lease.index, lease.seq % HELD_SLOTS
