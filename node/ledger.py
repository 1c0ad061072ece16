"""What the chain says: the provider's own machines and leases, and everybody's delegated keys.

A pure picture that can be wound back when blocks are replaced. It decides nothing; leases and
asks are reviewed against it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    AsksCancelled,
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    BatchStep,
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    DelegationChanged,
    LeafChallenged,
    LeafOpened,
    LeaseClosed,
    LeaseOpened,
    LeaseReady,
    LeaseSettled,
    LeaseStarted,
    LeaseStopped,
    MachineAdded,
    MachinePaused,
    MachineRetired,
    MachineRetiring,
    NoticeGiven,
    ProductRegistered,
    SegmentAccused,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.future_events import (
    FutureAssigned,
    FutureDelivered,
    FutureEnded,
    FutureOpened,
    MachinesNominated,
    UnitDelivered,
)
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.identity import Delegation, KeyRole
from cloud_gpu.protocol.lease import (
    LeaseEndReason,
    LeaseKey,
    LeaseState,
    LeaseStep,
    LeaseTerms,
    MachineStatus,
    next_state,
)
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value

_SNAPSHOTS: Final = 256
"""Blocks that changed something here; a deeper reorganisation would be a new chain."""


class MachineOnChain(Value, frozen=True, kw_only=True):
    """One own machine; whether a lease runs on it is its leases' to say."""

    product: int
    status: MachineStatus
    """FREE, PAUSED or RETIRING."""


class LeaseOnChain(Value, frozen=True, kw_only=True):
    """One own lease; times in Unix seconds."""

    terms: LeaseTerms
    state: LeaseState
    is_firm: bool = False
    """Of a future, which was delivered."""
    is_ready_posted: bool = False
    started_at: int = 0
    paid: TokenAmount = ZERO_TOKENS
    releasable_at: int = 0
    """From when notice lets it be released for nothing; 0: none was given that could."""
    stopped_at: int = 0
    closed_at: int = 0
    reason: LeaseEndReason | None = None

    @property
    def ends_at(self) -> int:
        """Unix seconds; of a lease that did not begin, its latest end."""
        return self.terms.ends_at(self.started_at or self.terms.start_deadline)


class BatchOnChain(Value, frozen=True, kw_only=True):
    """One batch of an own verified lease."""

    root: Digest
    state: BatchState = BatchState.COMMITTED
    seed: Digest | None = None
    challenged: frozenset[int] = frozenset()
    """Points whose leaves a verifier asks for on chain."""
    answer_by: int = 0
    """Until then; Unix seconds."""

    @property
    def is_open(self) -> bool:
        """Whether it still waits for its end."""
        return self.state in (BatchState.COMMITTED, BatchState.DRAWN, BatchState.ACCUSED)


_BATCH_STATES: Final = {
    SegmentAccused: BatchState.ACCUSED,
    AccusationContested: BatchState.DRAWN,
    SegmentConvicted: BatchState.DRAWN,
}


class FutureOnChain(Value, frozen=True, kw_only=True):
    """Anybody's contract of futures that was not delivered yet."""

    short: Address
    series: Series
    machines: tuple[int, ...] = ()
    """Indexes that the short named."""


@dataclass(slots=True)
class _Picture:
    machines: dict[int, MachineOnChain] = field(default_factory=dict)
    next_seqs: dict[int, int] = field(default_factory=dict)
    """By index; kept while a machine is away, since numbers go on where they were."""
    leases: dict[LeaseKey, LeaseOnChain] = field(default_factory=dict)
    keys: dict[Address, Delegation] = field(default_factory=dict)
    batches: dict[tuple[LeaseKey, int], BatchOnChain] = field(default_factory=dict)
    futures: dict[int, FutureOnChain] = field(default_factory=dict)
    notices: dict[int, int] = field(default_factory=dict)
    """Seconds by product; the table is append-only."""

    def copy(self) -> _Picture:
        return _Picture(
            dict(self.machines),
            dict(self.next_seqs),
            dict(self.leases),
            dict(self.keys),
            dict(self.batches),
            dict(self.futures),
            dict(self.notices),
        )


class Ledger:
    """The chain as one provider's node sees it. A `KeyRing`."""

    def __init__(self, provider: Address) -> None:
        self._provider = provider
        self._now = _Picture()
        self._past: deque[tuple[int, _Picture]] = deque(maxlen=_SNAPSHOTS)
        self._changed = False
        self._history_ends = 0
        self.is_catching_up = False
        """True while the chain is read again from the beginning: then it shows old states."""

    def start_over(self, at: int) -> None:
        """Everything will be told again; before `at`, Unix seconds, it is history."""
        self._now = _Picture()
        self._past.clear()
        self._changed = False
        self._history_ends = at
        self.is_catching_up = True

    @property
    def machines(self) -> dict[int, MachineOnChain]:
        """Own machines by index; not to be changed."""
        return self._now.machines

    @property
    def leases(self) -> dict[LeaseKey, LeaseOnChain]:
        """Own leases, closed ones too until they are forgotten; not to be changed."""
        return self._now.leases

    @property
    def batches(self) -> dict[tuple[LeaseKey, int], BatchOnChain]:
        """Own verified leases' batches by lease and number; not to be changed."""
        return self._now.batches

    def promised_from(self, index: int) -> int | None:
        """When the next window starts that a machine was named for, Unix seconds; None: for none.

        It counts until the contract was delivered or ended.
        """
        starts = (
            each.series.window_start
            for each in self._now.futures.values()
            if each.short == self._provider and index in each.machines
        )
        return min(starts, default=None)

    def notice_s(self, index: int) -> int:
        """Seconds of notice that a lease of this machine has a right to."""
        machine = self._now.machines.get(index)
        return self._now.notices.get(machine.product, 0) if machine is not None else 0

    def awaits_long(self, index: int) -> bool:
        """Whether a future's lease of a machine is open, and did not begin yet."""
        own = (each for key, each in self._now.leases.items() if key.index == index)
        return any(each.is_firm and each.state is LeaseState.FUNDED for each in own)

    def next_seq(self, index: int) -> int:
        """What this machine's next ask must carry."""
        return self._now.next_seqs.get(index, 1)

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool:
        """See `KeyRing`; `at` in Unix seconds."""
        found = self._now.keys.get(signer)
        return found is not None and found.holds(account, role, at)

    def forget(self, lease: LeaseKey) -> None:
        """Drop a lease that nobody asks about any more."""
        self._now.leases.pop(lease, None)
        for batch in [each for each in self._now.batches if each[0] == lease]:
            del self._now.batches[batch]

    def apply(self, event: ChainEvent) -> None:
        """Take in one fact; those about others' machines and leases change nothing."""
        match event:
            case ChainAdvanced(block=block, at=at):
                self._advance(block, at)
            case ChainReorganised(block=block):
                self._rewind(block)
            case DelegationChanged():
                self._now.keys[event.signer] = event.delegation
                self._changed = True
            case MachineAdded() | MachinePaused() | MachineRetiring() | MachineRetired():
                if event.machine.provider == self._provider:
                    self._apply_to_machine(event)
            case AsksCancelled(machine=machine) if machine.provider == self._provider:
                self._raise_seq(machine.index, event.seq)
            case LeaseOpened(terms=terms) if terms.key.provider == self._provider:
                self._now.leases[terms.key] = LeaseOnChain(terms=terms, state=LeaseState.FUNDED)
                self._raise_seq(terms.key.index, terms.key.seq + 1)
            case ProductRegistered():
                self._now.notices[event.product] = event.notice
                self._changed = True
            case (
                LeaseReady()
                | LeaseStarted()
                | LeaseSettled()
                | NoticeGiven()
                | LeaseStopped()
                | LeaseClosed()
            ):
                if (lease := self._now.leases.get(event.lease)) is not None:
                    self._now.leases[event.lease] = _after(lease, event)
                    self._changed = True
            case UnitDelivered() if (firm := self._now.leases.get(event.lease)) is not None:
                self._now.leases[event.lease] = replace(firm, is_firm=True)
                self._changed = True
            case (
                BatchCommitted()
                | BatchDrawn()
                | SegmentAccused()
                | AccusationContested()
                | SegmentConvicted()
                | LeafChallenged()
                | LeafOpened()
                | SilenceConvicted()
                | BatchFinalised()
            ) if event.lease.provider == self._provider:
                self._apply_to_batch(event)
            case (
                FutureOpened()
                | FutureAssigned()
                | MachinesNominated()
                | FutureDelivered()
                | FutureEnded()
            ):
                self._apply_to_future(event)
            case _:
                pass  # others' affairs, or of no consequence to a node

    def _apply_to_machine(
        self, event: MachineAdded | MachinePaused | MachineRetiring | MachineRetired
    ) -> None:
        self._changed = True
        index = event.machine.index
        if isinstance(event, MachineAdded):
            found = MachineOnChain(product=event.product, status=MachineStatus.FREE)
        elif isinstance(event, MachineRetired):
            self._now.machines.pop(index, None)
            return
        elif index not in self._now.machines:
            return
        elif isinstance(event, MachinePaused):
            status = MachineStatus.PAUSED if event.paused else MachineStatus.FREE
            found = MachineOnChain(product=self._now.machines[index].product, status=status)
        else:
            found = MachineOnChain(
                product=self._now.machines[index].product, status=MachineStatus.RETIRING
            )
        self._now.machines[index] = found

    def _apply_to_batch(self, event: BatchCommitted | BatchStep) -> None:
        self._changed = True
        key = event.lease, event.batch_no
        if isinstance(event, BatchCommitted):
            self._now.batches[key] = BatchOnChain(root=event.root)
        elif key in self._now.batches:
            self._now.batches[key] = _stepped(self._now.batches[key], event)

    def _apply_to_future(
        self,
        event: FutureOpened | FutureAssigned | MachinesNominated | FutureDelivered | FutureEnded,
    ) -> None:
        # Others' too: a contract's short may become another one.
        self._changed = True
        found = self._now.futures.get(event.contract)
        if isinstance(event, FutureOpened):
            self._now.futures[event.contract] = FutureOnChain(
                short=event.short, series=event.series
            )
        elif found is None:
            return
        elif isinstance(event, FutureAssigned):
            if not event.is_buy:
                self._now.futures[event.contract] = replace(found, short=event.joiner)
        elif isinstance(event, MachinesNominated):
            self._now.futures[event.contract] = replace(found, machines=event.indexes)
        else:
            del self._now.futures[event.contract]

    def _raise_seq(self, index: int, seq: int) -> None:
        self._now.next_seqs[index] = max(self._now.next_seqs.get(index, 1), seq)
        self._changed = True

    def _advance(self, block: int, at: int) -> None:
        if self._changed or not self._past:
            self._past.append((block, self._now.copy()))
            self._changed = False
        if at >= self._history_ends:
            self.is_catching_up = False

    def _rewind(self, block: int) -> None:
        while len(self._past) > 1 and self._past[-1][0] > block:
            self._past.pop()
        if self._past:
            self._now = self._past[-1][1].copy()
        self._changed = False


def _stepped(batch: BatchOnChain, event: BatchStep) -> BatchOnChain:
    match event:
        case BatchFinalised(state=state):
            return replace(batch, state=state)
        case BatchDrawn(seed=seed):
            return replace(batch, state=BatchState.DRAWN, seed=seed)
        case LeafChallenged(j=j, until=until):
            return replace(batch, challenged=batch.challenged | {j}, answer_by=until)
        case LeafOpened(j=j) | SilenceConvicted(j=j):
            return replace(batch, challenged=batch.challenged - {j})
        case SegmentAccused() | AccusationContested() | SegmentConvicted():
            # One that has ended unverified is not opened again.
            return replace(batch, state=_BATCH_STATES[type(event)]) if batch.is_open else batch


def _after(
    lease: LeaseOnChain,
    event: LeaseReady | LeaseStarted | LeaseSettled | NoticeGiven | LeaseStopped | LeaseClosed,
) -> LeaseOnChain:
    """A lease after one fact about it; a step that its table does not know changes nothing."""
    change: dict[str, object] = {}
    match event:
        case LeaseReady():
            step, change = None, {"is_ready_posted": True}
        case NoticeGiven():
            can_leave = lease.terms.is_interruptible
            step, change = None, {"releasable_at": event.releasable_at if can_leave else 0}
        case LeaseStarted():
            step, change = LeaseStep.BEGIN, {"started_at": event.started_at}
        case LeaseSettled():
            step, change = LeaseStep.SETTLE, {"paid": event.paid}
        case LeaseStopped():
            step, change = LeaseStep.STOP, {"stopped_at": event.at}
        case LeaseClosed():
            step = LeaseStep.CLOSE
            change = {"paid": event.paid, "closed_at": event.at, "reason": event.reason}
    if step is not None:
        state = next_state(lease.state, step)
        if state is None:
            return lease
        change["state"] = state
    return replace(lease, **change)
