"""Verification's rules in memory: what the contract lets pass, and the facts that follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from cloud_gpu.protocol.audit import (
    BatchState,
    Opening,
    Sibling,
    VerdictResult,
    batch_key,
    draw_point,
    prove,
    seed_of,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    AuditCall,
    ChallengeLeaf,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    ConvictSilence,
    Draw,
    Ending,
    FallbackSeed,
    FinaliseBatches,
    OpenLeaf,
    ReturnHeld,
    RevealPreimages,
)
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    ChainEvent,
    LeafChallenged,
    LeafOpened,
    SegmentAccused,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Signed, TypedData, recover
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, keccak256
from tests.unit.verifier.builders import DEPLOYMENT, T0, digest

assert DEPLOYMENT.audit is not None
CHALLENGE, HARD_CAP = DEPLOYMENT.audit.challenge, DEPLOYMENT.audit.hard_cap
ANSWER = DEPLOYMENT.audit.answer
ACCUSED = BatchState.ACCUSED
DOMAIN = DEPLOYMENT.verification_domain


class Reverted(Exception):
    """The contract refuses."""


def require(holds: bool, why: str) -> None:
    if not holds:
        raise Reverted(why)


@dataclass(slots=True)
class OnChain:
    """One batch's storage."""

    commit: BatchCommitted
    number: int
    state: BatchState = BatchState.COMMITTED
    seed: Digest | None = None
    accused: dict[int, int] = field(default_factory=dict)
    convicted: set[int] = field(default_factory=set)
    contested: set[int] = field(default_factory=set)
    m: int = 0
    asked: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    answer_by: int = 0
    silent: set[int] = field(default_factory=set)


class Verification:
    """The module; a block a second. `events` are those of the block that is being made."""

    def __init__(self, anchors: dict[Address, Digest]) -> None:
        self.batches: dict[tuple[LeaseKey, int], OnChain] = {}
        self.events: list[ChainEvent] = []
        self.block = 0
        self._tips = dict(anchors)

    @property
    def at(self) -> int:
        return T0 + self.block

    def call(self, sender: Address, call: AuditCall, value: TokenAmount = ZERO_TOKENS) -> None:
        """Raises `Reverted`."""
        match call:
            case CommitBatch():
                self._commit(call, value)
            case RevealPreimages(draws=draws):
                for draw in draws:
                    self._reveal(sender, draw)
            case FallbackSeed():
                batch = self._batch(call.lease, call.batch_no, BatchState.COMMITTED)
                require(self.block > batch.commit.block + 256, "too early")
                self._draw(batch, digest("fallback"))
            case AccuseSegment():
                self._accuse(call)
            case ContestSegment():
                self._contest(call)
            case ConvictSegment():
                self._convict(call)
            case ChallengeLeaf():
                self._challenge(sender, call)
            case OpenLeaf():
                self._open_leaf(call)
            case ConvictSilence():
                self._convict_silence(call)
            case FinaliseBatches(endings=endings):
                for ending in endings:
                    self._finalise(ending)
            case ReturnHeld():
                raise Reverted("not the module's")

    def _batch(self, lease: LeaseKey, batch_no: int, *states: BatchState) -> OnChain:
        batch = self.batches.get((lease, batch_no))
        require(batch is not None, "no such batch")
        assert batch is not None
        require(batch.state in states, f"state {batch.state}")
        return batch

    def _commit(self, call: CommitBatch, value: TokenAmount) -> None:
        body = call.commit.payload
        lease = LeaseKey(provider=body.provider, index=body.index, seq=body.seq)
        require((lease, body.batch_no) not in self.batches, "one root a batch")
        committed = BatchCommitted(
            lease=lease,
            batch_no=body.batch_no,
            root=body.root,
            n=body.n,
            value=value,
            locked=TokenAmount(value.value * max(1, -(-20 // body.n))),
            at=self.at,
            block=self.block,
        )
        self.batches[lease, body.batch_no] = OnChain(committed, len(self.batches))
        self.events.append(committed)

    def _reveal(self, sender: Address, call: Draw) -> None:
        batch = self._batch(call.lease, call.batch_no, BatchState.COMMITTED)
        verifiers = DEPLOYMENT.verifiers
        require(sender == verifiers[batch.number % len(verifiers)], "not its turn")
        require(self.block >= batch.commit.block + 2, "too early")
        known, times = call.preimage, batch.number // len(verifiers) + 1
        for _ in range(times):
            known = keccak256(known.raw)
        require(known == self._tips[sender], "not the next preimage")
        self._draw(batch, call.preimage)

    def _draw(self, batch: OnChain, preimage: Digest) -> None:
        commit = batch.commit
        batch.seed = seed_of(
            digest(f"block {commit.block + 1}"),
            preimage,
            commit.root,
            batch_key(commit.lease, commit.batch_no),
        )
        batch.state = BatchState.DRAWN
        self.events.append(
            BatchDrawn(lease=commit.lease, batch_no=commit.batch_no, seed=batch.seed, at=self.at)
        )

    def _accuse(self, call: AccuseSegment) -> None:
        leaf = call.leaf
        batch = self._batch(leaf.lease, leaf.batch_no, BatchState.DRAWN, BatchState.ACCUSED)
        hashed = leaf.hash(DEPLOYMENT.chain_id, DEPLOYMENT.verification)
        sibling = Sibling(hash=hashed, weight=leaf.weight)
        commit = batch.commit
        require(prove(commit.root, commit.n, leaf.i, sibling, call.proof) is not None, "bad proof")
        once = {*batch.accused, *batch.convicted, *batch.contested}
        require(leaf.i not in once, "once a segment")
        require(self.at <= commit.at + HARD_CAP, "past the hard cap")
        first, second = call.first.payload, call.second.payload
        require(first == second and first.leaf == hashed, "two verdicts on this leaf")
        require(first.result is VerdictResult.MISMATCH, "a mismatch")
        signers = {_signer(call.first), _signer(call.second)}
        require(signers == set(DEPLOYMENT.verifiers), "both verifiers")
        until = self.at + CHALLENGE
        batch.accused, batch.state = dict.fromkeys([*batch.accused, leaf.i], until), ACCUSED
        opening = Opening(i=leaf.i, leaf=hashed, weight=leaf.weight, proof=call.proof)
        self.events.append(
            SegmentAccused(
                lease=leaf.lease,
                batch_no=leaf.batch_no,
                until=until,
                opening=opening,
                at=self.at,
            )
        )

    def _contest(self, call: ContestSegment) -> None:
        said = call.verdict.payload
        lease = LeaseKey(provider=said.provider, index=said.index, seq=said.seq)
        batch = self._batch(lease, said.batch_no, BatchState.ACCUSED)
        require(said.i in batch.accused, "not accused")
        require(said.result is not VerdictResult.MISMATCH, "the same again")
        require(_signer(call.verdict) in DEPLOYMENT.verifiers, "a verifier")
        self._require_shown(batch, call.opening, said.i)
        self._clear(batch, said.i)
        batch.contested.add(said.i)
        self.events.append(
            AccusationContested(
                lease=lease, batch_no=said.batch_no, i=said.i, refund=ZERO_TOKENS, at=self.at
            )
        )

    def _convict(self, call: ConvictSegment) -> None:
        batch = self._batch(call.lease, call.batch_no, BatchState.ACCUSED)
        i = call.opening.i
        require(i in batch.accused and self.at > batch.accused[i], "too early")
        self._require_shown(batch, call.opening, i)
        self._clear(batch, i)
        batch.convicted.add(i)
        self.events.append(
            SegmentConvicted(
                lease=call.lease,
                batch_no=call.batch_no,
                i=i,
                refund=ZERO_TOKENS,
                fine=ZERO_TOKENS,
                bounty=ZERO_TOKENS,
                at=self.at,
            )
        )

    @staticmethod
    def _require_shown(batch: OnChain, opening: Opening, i: int) -> None:
        commit, sibling = batch.commit, Sibling(hash=opening.leaf, weight=opening.weight)
        is_there = prove(commit.root, commit.n, i, sibling, opening.proof) is not None
        require(opening.i == i and is_there, "the segment is shown")

    def _challenge(self, sender: Address, call: ChallengeLeaf) -> None:
        batch = self._batch(call.lease, call.batch_no, BatchState.DRAWN, BatchState.ACCUSED)
        require(sender in DEPLOYMENT.verifiers, "a verifier")
        require(call.j < call.m <= batch.commit.n, "a point of the batch")
        require(call.j not in batch.asked and batch.m in (0, call.m), "once a point, one number")
        batch.m, batch.answer_by = call.m, self.at + ANSWER
        batch.asked.add(call.j)
        batch.open.add(call.j)
        self.events.append(
            LeafChallenged(
                lease=call.lease,
                batch_no=call.batch_no,
                j=call.j,
                m=call.m,
                until=batch.answer_by,
                at=self.at,
            )
        )

    def _open_leaf(self, call: OpenLeaf) -> None:
        leaf = call.leaf
        batch = self._batch(leaf.lease, leaf.batch_no, BatchState.DRAWN, BatchState.ACCUSED)
        require(call.j in batch.open and self.at <= batch.answer_by, "asked for, in time")
        hashed = leaf.hash(DEPLOYMENT.chain_id, DEPLOYMENT.verification)
        commit, sibling = batch.commit, Sibling(hash=hashed, weight=leaf.weight)
        start = prove(commit.root, commit.n, leaf.i, sibling, call.proof)
        assert batch.seed is not None
        is_at = start is not None and 0 <= draw_point(batch.seed, call.j) - start < leaf.weight
        require(is_at, "the leaf at the point")
        batch.open.remove(call.j)
        self.events.append(
            LeafOpened(
                lease=leaf.lease,
                batch_no=leaf.batch_no,
                j=call.j,
                i=leaf.i,
                job=leaf.job,
                result=leaf.result,
                salt=leaf.salt,
                at=self.at,
            )
        )

    def _convict_silence(self, call: ConvictSilence) -> None:
        batch = self._batch(call.lease, call.batch_no, BatchState.DRAWN, BatchState.ACCUSED)
        require(call.j in batch.open and self.at > batch.answer_by, "asked for, too late")
        batch.open.remove(call.j)
        batch.silent.add(call.j)
        self.events.append(
            SilenceConvicted(
                lease=call.lease,
                batch_no=call.batch_no,
                j=call.j,
                refund=ZERO_TOKENS,
                fine=ZERO_TOKENS,
                at=self.at,
            )
        )

    def _clear(self, batch: OnChain, i: int) -> None:
        del batch.accused[i]
        batch.state = BatchState.ACCUSED if batch.accused else BatchState.DRAWN

    def _finalise(self, call: Ending) -> None:
        batch = self._batch(call.lease, call.batch_no, BatchState.COMMITTED, BatchState.DRAWN)
        require(not batch.open, "a challenge is open")
        if call.results is None:
            require(self.at >= batch.commit.at + HARD_CAP, "before the hard cap")
            state = BatchState.FINAL_UNVERIFIED
        else:
            require(batch.state is BatchState.DRAWN, "drawn")
            self._require_results(batch, call)
            bad = call.results.payload.incomparable or batch.convicted or batch.silent
            is_whole = not bad
            state = BatchState.FINAL if is_whole else BatchState.PARTIAL
        batch.state = state
        self.events.append(
            BatchFinalised(
                lease=call.lease,
                batch_no=call.batch_no,
                state=state,
                provider=batch.commit.value,
                market=ZERO_TOKENS,
                audits=ZERO_TOKENS,
                buyer=ZERO_TOKENS,
                burnt=ZERO_TOKENS,
                at=self.at,
            )
        )

    def _require_results(self, batch: OnChain, call: Ending) -> None:
        """Of the verifier whose turn it is, or late of either; what is not paid is shown."""
        assert call.results is not None
        commit, verifiers = batch.commit, DEPLOYMENT.verifiers
        is_late = self.at >= commit.at + HARD_CAP // 2
        may_sign = verifiers if is_late else (verifiers[batch.number % 2],)
        require(_signer(call.results) in may_sign, "a verifier's results")
        bits, settled = call.results.payload.incomparable, batch.convicted | batch.contested
        bad = {i for i in range(commit.n) if bits >> i & 1}
        require(bits >> commit.n == 0, "no such segment")
        if len(bad | settled) == commit.n:
            return
        require([opened.i for opened in call.openings] == sorted(bad - settled), "not shown")
        for opened in call.openings:
            sibling = Sibling(hash=opened.leaf, weight=opened.weight)
            start = prove(commit.root, commit.n, opened.i, sibling, opened.proof)
            require(start is not None, "bad proof")


DataT = TypeVar("DataT", bound=TypedData)


def _signer(signed: Signed[DataT]) -> Address | None:
    return recover(signed.payload.digest(DOMAIN), signed.signature)
