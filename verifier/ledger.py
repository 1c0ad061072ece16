"""What the chain says: who bought a lease and what is held of it, whose key may sign, how far every
batch is.

A pure picture that is wound back when blocks are replaced. It decides nothing; everybody who reads
the same logs has the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import field
from msgspec.structs import replace

from cloud_gpu.protocol.audit import BatchState, Opening
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    BatchStep,
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    DelegationChanged,
    HeldReturned,
    LeafChallenged,
    LeafOpened,
    LeaseClosed,
    LeaseOpened,
    MachineAdded,
    MachineRetired,
    ProductRegistered,
    SegmentAccused,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.identity import Delegation, KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value

PROBATION_SEGMENTS: Final = 100
"""After a conviction so many of a provider's segments are all audited."""

_BLOCKS: Final = 1_024
"""Blocks that changed something here and can be taken back; a deeper one is a new chain."""

BatchId = tuple[LeaseKey, int]
"""A lease, and the number of a batch in it."""


class BatchOnChain(Value, frozen=True, kw_only=True):
    """One committed batch; times in Unix seconds."""

    lease: LeaseKey
    batch_no: int
    root: Digest
    n: int
    value: TokenAmount
    locked: TokenAmount
    committed_at: int
    block: int
    number: int
    """Commitments before it in this deployment: which preimage serves it, and whose turn it is."""
    passed: TokenAmount
    """The provider's audited value before it."""
    on_probation: bool
    state: BatchState = BatchState.COMMITTED
    seed: Digest | None = None
    accused: dict[int, int] = field(default_factory=dict)
    """Segment -> until when the accusation may be contested."""
    openings: dict[int, Opening] = field(default_factory=dict)
    """Of the segments that were ever accused."""
    contested: frozenset[int] = frozenset()
    convicted: frozenset[int] = frozenset()
    points: int = 0
    """Of how many points a verifier asks on chain; 0: it asked for none."""
    asked: frozenset[int] = frozenset()
    """Points whose leaves were asked for on chain."""
    unanswered: frozenset[int] = frozenset()
    """Of these: neither shown nor convicted yet."""
    answer_by: int = 0
    """When the last of them is late."""
    silent: frozenset[int] = frozenset()
    """Points convicted of silence."""

    @property
    def id(self) -> BatchId:
        """The lease and the batch's number in it."""
        return self.lease, self.batch_no

    @property
    def is_open(self) -> bool:
        """Whether it still waits for its end."""
        return self.state in (BatchState.COMMITTED, BatchState.DRAWN, BatchState.ACCUSED)

    def __str__(self) -> str:
        return f"{self.lease}#{self.batch_no}"


class HeldPay(Value, frozen=True, kw_only=True):
    """Pay of a verified lease that ended, of which no batch was made."""

    lease: LeaseKey
    amount: TokenAmount
    ended_at: int
    """Unix seconds."""


KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Ledger:
    """The chain as a verifier sees it. A `KeyRing`."""

    def __init__(self) -> None:
        self._keys: dict[Address, Delegation] = {}
        self._leases: dict[LeaseKey, LeaseTerms] = {}
        self._held: dict[LeaseKey, HeldPay] = {}
        self._products: dict[int, ProductRegistered] = {}
        self._machines: dict[MachineKey, int] = {}
        self._batches: dict[BatchId, BatchOnChain] = {}
        self._passed: dict[Address, TokenAmount] = {}
        self._probation: dict[Address, int] = {}
        self._committed: dict[str, int] = {"batches": 0}
        self._since: list[Callable[[], Any]] = []
        """How to take back what came after the newest block that was told."""
        self._undone_by: deque[tuple[int, list[Callable[[], Any]]]] = deque(maxlen=_BLOCKS)
        self.block = 0
        """The newest block that was told."""
        self.at = 0
        """Its time, Unix seconds."""

    @property
    def batches(self) -> dict[BatchId, BatchOnChain]:
        """Every batch there was; not to be changed."""
        return self._batches

    def buyer_of(self, lease: LeaseKey) -> Address | None:
        """Who opened a lease."""
        terms = self._leases.get(lease)
        return terms.buyer if terms else None

    @property
    def held(self) -> dict[LeaseKey, HeldPay]:
        """What waits for a commitment or for its return; not to be changed."""
        return self._held

    def product_of(self, machine: MachineKey) -> ProductRegistered | None:
        """What a machine is sold as."""
        return self._products.get(self._machines.get(machine, 0))

    def owners_of(self, product: int) -> set[Address]:
        """Providers that have a machine of a product."""
        return {machine.provider for machine, of in self._machines.items() if of == product}

    def is_on_probation(self, provider: Address) -> bool:
        """Whether a provider was convicted, and has not shown a hundred segments since."""
        return self._probation.get(provider, 0) > 0

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool:
        """See `KeyRing`; `at` in Unix seconds."""
        found = self._keys.get(signer)
        return found is not None and found.holds(account, role, at)

    def apply(self, event: ChainEvent) -> None:
        """Take in one fact; those about anything else change nothing."""
        match event:
            case ChainAdvanced():
                self._advance(event)
            case ChainReorganised(block=block):
                self._rewind(block)
            case DelegationChanged():
                self._put(self._keys, event.signer, event.delegation)
            case ProductRegistered():
                self._put(self._products, event.product, event)
            case MachineAdded():
                self._put(self._machines, event.machine, event.product)
            case MachineRetired():
                self._take_out(self._machines, event.machine)
            case LeaseOpened(terms=terms):
                self._put(self._leases, terms.key, terms)
            case LeaseClosed():
                self._close(event)
            case HeldReturned(lease=lease):
                self._take_out(self._held, lease)
            case BatchCommitted():
                self._commit(event)
            case (
                BatchDrawn()
                | SegmentAccused()
                | AccusationContested()
                | SegmentConvicted()
                | LeafChallenged()
                | LeafOpened()
                | SilenceConvicted()
                | BatchFinalised()
            ):
                self._step(event)
            case _:
                return

    def _close(self, event: LeaseClosed) -> None:
        terms = self._leases.get(event.lease)
        # What a buyer pays who never came was not worked for: nobody audits it.
        if terms is None or not terms.is_verified or event.reason is LeaseEndReason.BUYER_NO_SHOW:
            return
        amount, batch_no = event.paid, 0
        while (batch := self._batches.get((event.lease, batch_no))) is not None:
            amount, batch_no = amount - batch.value, batch_no + 1
        if amount > ZERO_TOKENS:
            held = HeldPay(lease=event.lease, amount=amount, ended_at=event.at)
            self._put(self._held, event.lease, held)

    def _commit(self, event: BatchCommitted) -> None:
        provider = event.lease.provider
        left, before = self._probation.get(provider, 0), self._committed["batches"]
        batch = BatchOnChain(
            lease=event.lease,
            batch_no=event.batch_no,
            root=event.root,
            n=event.n,
            value=event.value,
            locked=event.locked,
            committed_at=event.at,
            block=event.block,
            number=before,
            passed=self._passed.get(provider, ZERO_TOKENS),
            on_probation=left > 0,
        )
        self._put(self._batches, batch.id, batch)
        self._take_out(self._held, event.lease)
        self._put(self._committed, "batches", before + 1)
        self._put(self._probation, provider, max(0, left - event.n))

    def _step(self, event: BatchStep) -> None:
        batch = self._batches.get((event.lease, event.batch_no))
        if batch is None:
            return
        provider = event.lease.provider
        match event:
            case BatchDrawn(seed=seed):
                batch = replace(batch, state=BatchState.DRAWN, seed=seed)
            case SegmentAccused(i=i, until=until, opening=opening):
                batch = replace(batch, openings={**batch.openings, i: opening})
                # The newest accusation restarts the window of all.
                accused = dict.fromkeys([*batch.accused, i], until)
                batch = _with_accused(batch, accused)
            case AccusationContested(i=i):
                batch = _cleared(batch, i, contested=batch.contested | {i})
            case SegmentConvicted(i=i):
                batch = _cleared(batch, i, convicted=batch.convicted | {i})
                self._put(self._probation, provider, PROBATION_SEGMENTS)
            case LeafChallenged() | LeafOpened() | SilenceConvicted():
                batch = _pointed(batch, event)
                if isinstance(event, SilenceConvicted):
                    self._put(self._probation, provider, PROBATION_SEGMENTS)
            case BatchFinalised(state=state):
                batch = replace(batch, state=state)
                if state is BatchState.FINAL:
                    before = self._passed.get(provider, ZERO_TOKENS)
                    self._put(self._passed, provider, before + batch.value)
        self._put(self._batches, batch.id, batch)

    def _put(self, table: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> None:
        if key in table:
            self._since.append(partial(table.__setitem__, key, table[key]))
        else:
            self._since.append(partial(table.pop, key, None))
        table[key] = value

    def _take_out(self, table: dict[KeyT, ValueT], key: KeyT) -> None:
        found = table.pop(key, None)
        if found is not None:
            self._since.append(partial(table.__setitem__, key, found))

    def _advance(self, event: ChainAdvanced) -> None:
        if self._since:
            self._undone_by.append((event.block, self._since))
            self._since = []
        self.block, self.at = event.block, event.at

    def _rewind(self, block: int) -> None:
        self._take_back(self._since)
        while self._undone_by and self._undone_by[-1][0] > block:
            self._take_back(self._undone_by.pop()[1])
        self._since = []
        self.block = min(self.block, block)

    def _take_back(self, steps: list[Callable[[], Any]]) -> None:
        for undo in reversed(steps):
            undo()


def _cleared(
    batch: BatchOnChain,
    i: int,
    *,
    contested: frozenset[int] | None = None,
    convicted: frozenset[int] | None = None,
) -> BatchOnChain:
    """An accusation ended, one way or the other."""
    accused = {other: until for other, until in batch.accused.items() if other != i}
    return replace(
        _with_accused(batch, accused),
        contested=batch.contested if contested is None else contested,
        convicted=batch.convicted if convicted is None else convicted,
    )


def _with_accused(batch: BatchOnChain, accused: dict[int, int]) -> BatchOnChain:
    """An accusation of a batch that has ended does not open it again."""
    state = batch.state
    if batch.is_open:
        state = BatchState.ACCUSED if accused else BatchState.DRAWN
    return replace(batch, accused=accused, state=state)


def _pointed(
    batch: BatchOnChain, event: LeafChallenged | LeafOpened | SilenceConvicted
) -> BatchOnChain:
    j = event.j
    match event:
        case LeafChallenged(m=m, until=until):
            return replace(
                batch,
                points=m,
                asked=batch.asked | {j},
                unanswered=batch.unanswered | {j},
                answer_by=until,
            )
        case LeafOpened():
            return replace(batch, unanswered=batch.unanswered - {j})
        case SilenceConvicted():
            return replace(batch, unanswered=batch.unanswered - {j}, silent=batch.silent | {j})
