"""What the chain says that a market must know: machines, cash, products, keys, voided nonces.

Built from chain events alone, and taken back block by block when the chain reorganises. It is the
market's expectation: LeaseBook checks every entry again and has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.chain_events import (
    AccountRegistered,
    AccusationContested,
    AsksCancelled,
    BatchCommitted,
    BatchFinalised,
    BidsCancelled,
    BondAdded,
    CashChanged,
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    DelegationChanged,
    HeldReturned,
    LeaseClosed,
    LeaseOpened,
    LeaseSettled,
    LeaseStarted,
    LeaseStopped,
    MachineAdded,
    MachinePaused,
    MachineRetired,
    MachineRetiring,
    MarketRegistered,
    PenaltyPaid,
    ProductRegistered,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.future_events import FutureEvent, FutureOrderClosed
from cloud_gpu.protocol.group_events import GroupEvent
from cloud_gpu.protocol.identity import Delegation, KeyRole
from cloud_gpu.protocol.lease import (
    LeaseEndReason,
    LeaseKey,
    LeaseReport,
    LeaseState,
    LeaseStep,
    MachineKey,
    MachineStatus,
    next_state,
)
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import BasisPoints, TokenAmount, share_down
from cloud_gpu.protocol.values import Address
from market.books.futures_positions import FuturePositions
from market.books.group_pledges import GroupPledges
from market.books.paid_leases import PaidLeases
from market.rows import MachineRow, MarketRow
from market.undo import UndoLog

HELD_LEASES = 4
"""A verified lease's held pay lies in slot `seq mod 4` of its machine until it is cleared."""

_BUYER_NO_SHOW = LeaseEndReason.BUYER_NO_SHOW


class Ledger:
    """The chain as this market has heard of it so far. A `KeyRing` for node keys."""

    def __init__(self, bond_unit: TokenAmount) -> None:
        self._bond_unit = bond_unit.value
        self._undo = UndoLog()
        self.cash: dict[Address, int] = {}
        self.products: dict[int, Product] = {}
        self.markets: dict[int, MarketRow] = {}
        self.machines: dict[MachineKey, MachineRow] = {}
        self.leases: dict[LeaseKey, LeaseReport] = {}
        """Open leases; a closed one is gone."""
        self.barred: dict[Address, bool] = {}
        """Providers whose fraud cost them their verified leases."""
        self._keys: dict[Address, Delegation] = {}
        self._buyers: dict[LeaseKey, Address] = {}
        self._locks: dict[tuple[LeaseKey, int], int] = {}
        self._voided: dict[tuple[Address, int], bool] = {}
        self._nonce_floor: dict[Address, int] = {}
        self.futures = FuturePositions(self._undo)
        self.groups = GroupPledges(self._undo)
        self.paid = PaidLeases(self._undo)

    # Questions.

    @property
    def block(self) -> int:
        """The newest whole block; -1: none yet."""
        return self._undo.block

    @property
    def at(self) -> int:
        """Its time, Unix seconds."""
        return self._undo.at

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool:
        """See `KeyRing`; `at` in Unix seconds."""
        found = self._keys.get(signer)
        return found is not None and found.holds(account, role, at)

    def is_void(self, account: Address, nonce: int) -> bool:
        """Whether a bid with this nonce can never open, as far as was heard."""
        return self.is_passed(account, nonce) or (account, nonce) in self._voided

    def is_passed(self, account: Address, nonce: int) -> bool:
        """Whether the account cancelled all nonces up to this one: that ends what began with it."""
        return nonce < self._nonce_floor.get(account, 0)

    def fee_of(self, market_id: int) -> BasisPoints:
        """Basis points; 0 for an id that is not registered."""
        row = self.markets.get(market_id)
        return row.fee if row is not None else BasisPoints(0)

    def rows(self) -> Iterator[tuple[str, object]]:
        """Everything in it in one fixed order, for a digest of the state."""
        yield "block", [self.block, self.at]
        tables: tuple[tuple[str, Mapping[Any, object]], ...] = (
            ("cash", self.cash),
            ("products", self.products),
            ("markets", self.markets),
            ("machines", self.machines),
            ("leases", self.leases),
            ("keys", self._keys),
            ("buyers", self._buyers),
            ("locks", self._locks),
            ("nonce_floor", self._nonce_floor),
            ("barred", self.barred),
            *self.futures.tables(),
            *self.groups.tables(),
            *self.paid.tables(),
        )
        for name, table in tables:
            shown = ([_shown(key), row] for key, row in table.items())
            yield name, sorted(shown, key=lambda row: str(row[0]))
        yield "voided", sorted([str(account), nonce] for account, nonce in self._voided)

    # Facts.

    def void(self, account: Address, nonce: int) -> None:
        """A bid with this nonce opened, in the block whose events are coming in."""
        self._undo.set(self._voided, (account, nonce), True)

    def apply(self, event: ChainEvent) -> None:
        """Take one fact in. Machines, leases or accounts it never heard of are no error."""
        match event:
            case ChainAdvanced():
                self.paid.forget(event.at)
                self.groups.forget(event.at)
                self.futures.forget(event.at)
                self._undo.end_block(event.block, event.at)
            case ChainReorganised():
                self._undo.rewind(event.block)
            case AccountRegistered():
                self._pay(event.account, 0)
            case CashChanged():
                amount = event.amount.value
                self._pay(event.account, amount if event.increase else -amount)
            case DelegationChanged():
                self._undo.set(self._keys, event.signer, event.delegation)
            case ProductRegistered():
                self._undo.set(self.products, event.product, event.row)
            case MarketRegistered():
                row = MarketRow(account=event.account, fee=event.fee)
                self._undo.set(self.markets, event.market_id, row)
            case BidsCancelled(below=True):
                floor = max(event.nonce, self._nonce_floor.get(event.account, 0))
                self._undo.set(self._nonce_floor, event.account, floor)
            case BidsCancelled():
                self.void(event.account, event.nonce)
            case LeaseOpened() | LeaseStarted() | LeaseSettled() | LeaseStopped() | LeaseClosed():
                self._apply_to_lease(event)
            case AccusationContested() | HeldReturned():
                self._refund(event.lease, _back(event))
            case BatchCommitted() | BatchFinalised() | SegmentConvicted() | SilenceConvicted():
                self._apply_to_results(event)
            case FutureOrderClosed():
                self.futures.close(event)
            case _ if isinstance(event, FutureEvent):
                self.futures.apply(event)
            case _ if isinstance(event, GroupEvent):
                self.groups.apply(event)
            case _:
                self._apply_to_machine(event)

    def _apply_to_machine(self, event: ChainEvent) -> None:
        match event:
            case MachineAdded():
                known = self.machines.get(event.machine)
                row = MachineRow(
                    product=event.product,
                    bond=event.bond,
                    next_seq=known.next_seq if known is not None else 1,
                    status=MachineStatus.FREE,
                )
                self._undo.set(self.machines, event.machine, row)
                self._pay(event.machine.provider, -event.bond.value)
            case BondAdded():
                self._change(event.machine, bond=self._bond(event.machine) + event.added)
                self._pay(event.machine.provider, -event.added.value)
            case PenaltyPaid():
                self._apply_penalty(event)
            case MachinePaused():
                status = MachineStatus.PAUSED if event.paused else MachineStatus.FREE
                self._change(event.machine, status=status)
            case MachineRetiring():
                self._change(event.machine, status=MachineStatus.RETIRING)
            case MachineRetired():
                self._pay(event.machine.provider, self._bond(event.machine).value)
                self._change(event.machine, status=MachineStatus.NONE, bond=TokenAmount(0))
            case AsksCancelled():
                self._change(event.machine, next_seq=event.seq)
            case _:
                pass  # nothing that a market keeps

    def _apply_to_lease(
        self, event: LeaseOpened | LeaseStarted | LeaseSettled | LeaseStopped | LeaseClosed
    ) -> None:
        if isinstance(event, LeaseOpened):
            self._open(event)
            return
        report = self.leases.get(event.lease)
        if report is None:
            return
        match event:
            case LeaseStarted():
                self._change(event.lease.machine, status=MachineStatus.ACTIVE)
                self._advance(report, LeaseStep.BEGIN, started_at=event.started_at)
            case LeaseSettled():
                self._earn(report, event.paid)
                self._advance(report, LeaseStep.SETTLE, paid=event.paid)
            case LeaseStopped():
                self.paid.stopped(event.lease, event.at)
                self._change(event.lease.machine, status=MachineStatus.STOPPED)
                self._pay(report.terms.buyer, report.terms.cap.value - event.ceiling.value)
                terms = msgspec.structs.replace(report.terms, cap=event.ceiling)
                self._advance(report, LeaseStep.STOP, terms=terms)
            case LeaseClosed():
                self.paid.closed(report, event.paid, self._product_of(event.lease), event.at)
                self._earn(report, event.paid, fee_free=event.reason is _BUYER_NO_SHOW)
                self._pay(report.terms.buyer, report.terms.cap.value - event.paid.value)
                self._change(event.lease.machine, status=MachineStatus.FREE)
                self._undo.remove(self.leases, event.lease)

    def _product_of(self, lease: LeaseKey) -> Product | None:
        row = self.machines.get(lease.machine)
        return self.products.get(row.product) if row is not None else None

    def _open(self, event: LeaseOpened) -> None:
        key = event.terms.key
        row = self.machines.get(key.machine)
        if row is not None:
            next_seq = max(row.next_seq, key.seq + 1)
            self._change(key.machine, status=MachineStatus.FUNDED, next_seq=next_seq)
        self._undo.set(self._buyers, key, event.terms.buyer)
        if key.seq >= HELD_LEASES:
            # The slot of held pay that this lease takes is empty: the older lease is over for good.
            older = msgspec.structs.replace(key, seq=key.seq - HELD_LEASES)
            if older in self._buyers:
                self._undo.remove(self._buyers, older)
        self._pay(event.terms.buyer, -event.terms.cap.value)
        report = LeaseReport(
            terms=event.terms, bid=event.bid, state=LeaseState.FUNDED, paid=TokenAmount(0)
        )
        self._undo.set(self.leases, key, report)

    def _advance(self, report: LeaseReport, step: LeaseStep, **changes: object) -> None:
        state = next_state(report.state, step) or report.state
        changed = msgspec.structs.replace(report, state=state, **changes)
        self._undo.set(self.leases, report.terms.key, changed)

    def _earn(self, report: LeaseReport, paid: TokenAmount, *, fee_free: bool = False) -> None:
        """What a settlement moves on top of what was paid: the fee to its market, the rest on."""
        delta = TokenAmount(max(0, paid.value - report.paid.value))
        row = None if fee_free else self.markets.get(report.terms.market_id)
        fee = share_down(delta, row.fee) if row is not None else TokenAmount(0)
        self._pay(report.terms.key.provider, delta.value - fee.value)
        if row is not None:
            self._pay(row.account, fee.value)

    def _apply_penalty(self, event: PenaltyPaid) -> None:
        row = self.machines.get(event.lease.machine)
        if row is not None:
            self._slash(event.lease.machine, row, event.amount.value)
            self._refund(event.lease, event.amount)

    def _slash(self, machine: MachineKey, row: MachineRow, amount: int) -> int:
        """Take so many base units from a bond; returns by how much it falls."""
        # Bonds are counted in whole units; the change is the provider's cash again.
        units = -(-amount // self._bond_unit) * self._bond_unit
        self._change(machine, bond=TokenAmount(max(0, row.bond.value - units)))
        self._pay(machine.provider, units - amount)
        return units

    def _apply_to_results(
        self, event: BatchCommitted | BatchFinalised | SegmentConvicted | SilenceConvicted
    ) -> None:
        machine = event.lease.machine
        row = self.machines.get(machine)
        match event:
            case BatchCommitted() if row is not None:
                self._change(machine, locked=row.locked + event.locked.value)
                self._undo.set(self._locks, (event.lease, event.batch_no), event.locked.value)
            case BatchFinalised():
                self._refund(event.lease, event.buyer)
                if event.state is BatchState.SLASHED:
                    self._undo.set(self.barred, machine.provider, True)
                place = event.lease, event.batch_no
                if row is not None and place in self._locks:
                    self._change(machine, locked=max(0, row.locked - self._locks[place]))
                    self._undo.remove(self._locks, place)
            case SegmentConvicted() | SilenceConvicted():
                self._refund(event.lease, event.refund)
                if row is not None:
                    self._convict(event, row)
            case _:
                pass  # a batch of a machine that was never heard of

    def _convict(self, event: SegmentConvicted | SilenceConvicted, row: MachineRow) -> None:
        machine, place = event.lease.machine, (event.lease, event.batch_no)
        lock = self._locks.get(place)
        if lock is None:  # the batch was paid unverified: its price, too, comes out of the bond
            self._slash(machine, row, event.refund.value + event.fine.value)
            return
        freed = min(lock, self._slash(machine, row, event.fine.value))
        self._change(machine, locked=max(0, row.locked - freed))
        self._undo.set(self._locks, place, lock - freed)

    def _refund(self, lease: LeaseKey, amount: TokenAmount) -> None:
        buyer = self._buyers.get(lease)
        if buyer is not None:
            self._pay(buyer, amount.value)

    def _bond(self, machine: MachineKey) -> TokenAmount:
        row = self.machines.get(machine)
        return row.bond if row is not None else TokenAmount(0)

    def _change(self, machine: MachineKey, **changes: object) -> None:
        row = self.machines.get(machine)
        if row is not None:
            self._undo.set(self.machines, machine, msgspec.structs.replace(row, **changes))

    def _pay(self, account: Address, amount: int) -> None:
        # Registration fees and audits locked beside a cap leave no log with an amount: what is
        # expected may be more than there is, never less, and LeaseBook refuses what it lacks.
        self._undo.set(self.cash, account, max(0, self.cash.get(account, 0) + amount))


def _back(event: AccusationContested | HeldReturned) -> TokenAmount:
    return event.amount if isinstance(event, HeldReturned) else event.refund


def _shown(key: object) -> str:
    return " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key)
