"""What a provider owes the verifiers of its verified leases: a commitment, then whatever they draw.

The results of a lease go under one Merkle sum root, at most 100 to a batch, when it has closed or
when there are so many. Before the draw nothing is shown; afterwards any verifier of the deployment
gets leaves and evidence, and may fetch the files; what one asks for on chain is shown there. Kept
until every batch has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cloud_gpu.protocol.audit import (
    SEGMENTS_MAX,
    BatchOutline,
    BatchState,
    Commit,
    Evidence,
    Leaf,
    SegmentOutline,
    Sibling,
    SumTree,
    draw_point,
    segment_at,
    weights,
)
from cloud_gpu.protocol.audit_messages import (
    AuditMessage,
    EvidenceAsked,
    EvidenceGiven,
    EvidenceRefused,
    EvidenceRequest,
    OutlineAsked,
    OutlineGiven,
    OutlineRequest,
)
from cloud_gpu.protocol.calls import CommitBatch, OpenLeaf, SettleBatch
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import ProviderEffect, SendAudit, Transact
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import NoDelegates, PeerId, Signer
from cloud_gpu.protocol.job import SignedJobResult, SignedJobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Statement, sign, verify_statement
from cloud_gpu.protocol.units import Instant, instant, unix_seconds
from cloud_gpu.protocol.values import Digest, keccak256
from node.leases import LAST_RESULTS_S_MAX, LeaseWork
from node.ledger import BatchOnChain, Ledger
from node.review import Retries, Review

RequestT = TypeVar("RequestT", OutlineRequest, EvidenceRequest)

_RETRY_S: Final = 5
_MARGIN_S: Final = 60
_SALTS: Final = keccak256(b"cloud-gpu/salts/1")


class Batch:
    """A frozen set of segments and its tree."""

    def __init__(
        self,
        lease: LeaseKey,
        batch_no: int,
        segments: Sequence[tuple[SignedJobSpec, SignedJobResult]],
        salt_seed: Digest,
        deployment: Deployment,
    ) -> None:
        self.lease, self.batch_no, self._segments = lease, batch_no, tuple(segments)
        shares = weights([max(1, result.body.used.value) for _, result in segments])
        self._leaves = tuple(
            Leaf(
                lease=lease,
                batch_no=batch_no,
                i=i,
                weight=shares[i],
                job=spec.body.id,
                result=result.body.digest,
                salt=keccak256(salt_seed.raw + lease.id.raw + spec.body.id.raw),
            )
            for i, (spec, result) in enumerate(segments)
        )
        place = deployment.chain_id, deployment.verification
        self._hashes = tuple(leaf.hash(*place) for leaf in self._leaves)
        pairs = zip(self._hashes, shares, strict=True)
        self._tree = SumTree([Sibling(hash=hashed, weight=weight) for hashed, weight in pairs])

    @property
    def commit(self) -> Commit:
        """What is signed and posted."""
        return Commit(
            provider=self.lease.provider,
            index=self.lease.index,
            seq=self.lease.seq,
            batch_no=self.batch_no,
            root=self._tree.root,
            n=len(self._segments),
        )

    @property
    def outline(self) -> BatchOutline:
        """All leaves."""
        segments = tuple(
            SegmentOutline(leaf=hashed, used=result.body.used, image=spec.body.image)
            for hashed, (spec, result) in zip(self._hashes, self._segments, strict=True)
        )
        return BatchOutline(lease=self.lease, batch_no=self.batch_no, segments=segments)

    def evidence(self, i: int) -> Evidence | None:
        """Everything about one segment; None: there is none of that number."""
        if not 0 <= i < len(self._segments):
            return None
        spec, result = self._segments[i]
        return Evidence(leaf=self._leaves[i], proof=self._tree.proof(i), spec=spec, result=result)

    def answer(self, seed: Digest, j: int) -> OpenLeaf:
        """The leaf under the j-th point of a draw."""
        i = segment_at(draw_point(seed, j), [leaf.weight for leaf in self._leaves])
        return OpenLeaf(j=j, leaf=self._leaves[i], proof=self._tree.proof(i))

    def files(self, i: int) -> set[str]:
        """The sha256 of a segment's inputs and of what it returned."""
        spec, result = self._segments[i]
        body = result.body
        files = (*spec.body.inputs, *body.outputs, body.stdout, body.stderr)
        return {file.sha256 for file in files}


@dataclass(slots=True)
class _OfLease:
    specs: dict[Digest, SignedJobSpec] = field(default_factory=dict)
    """Of jobs whose result is in no batch yet."""
    results: dict[Digest, SignedJobResult] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    retries: Retries = field(default_factory=Retries)
    closed_at: int = 0
    """Unix seconds; 0: it is open."""


class Commitments:
    """The batches of a provider's verified leases."""

    def __init__(self, deployment: Deployment, key: Signer) -> None:
        self._deployment, self._key = deployment, key
        # Known to nobody without the key, and the same after a restart.
        self._salt_seed = keccak256(key.sign_digest(_SALTS).raw)
        self._leases: dict[LeaseKey, _OfLease] = {}
        self._shown: dict[PeerId, set[str]] = {}

    # Facts.

    def taken(self, work: LeaseWork, spec: SignedJobSpec) -> None:
        """A job was taken; its statement is the first half of its evidence."""
        if work.terms.is_verified and work.jobs.state_of(spec.body.id) is not None:
            kept = self._leases.setdefault(work.key, _OfLease())
            kept.specs.setdefault(spec.body.id, spec)

    def returned(self, result: SignedJobResult, now: Instant) -> None:
        """A job ended; what comes long after its lease's end is in no batch."""
        kept = self._leases.get(result.body.lease)
        job = result.body.job
        if kept is None or job not in kept.specs or self._is_late(kept, now):
            return
        kept.results.setdefault(job, result)
        if len(kept.results) == SEGMENTS_MAX:
            self._freeze(result.body.lease, kept)

    def forget(self, lease: LeaseKey) -> None:
        """Nobody asks about this lease any more, or it is another one's number now."""
        self._leases.pop(lease, None)

    def _is_late(self, kept: _OfLease, now: Instant) -> bool:
        return kept.closed_at > 0 and now > instant(kept.closed_at + LAST_RESULTS_S_MAX)

    def _freeze(self, lease: LeaseKey, kept: _OfLease) -> None:
        pairs = [(kept.specs[job], result) for job, result in kept.results.items()]
        pairs.sort(key=lambda pair: pair[0].body.number)
        batch_no = len(kept.batches)
        kept.batches.append(Batch(lease, batch_no, pairs, self._salt_seed, self._deployment))
        for job in kept.results:
            del kept.specs[job]
        kept.results = {}

    # Decisions.

    def review(self, work: LeaseWork, ledger: Ledger, review: Review) -> None:
        """Commit to what is done."""
        kept = self._leases.get(work.key)
        if kept is None or work.chain is None:
            return
        kept.closed_at = work.chain.closed_at
        if kept.closed_at and kept.results:
            if not work.jobs.unfinished() or self._is_late(kept, review.now):
                self._freeze(work.key, kept)
            else:
                review.look_at(instant(kept.closed_at + LAST_RESULTS_S_MAX) + 1)
        for batch in kept.batches:
            is_known = (work.key, batch.batch_no) in ledger.batches
            if not is_known and review.now < instant(self._commit_by(kept)):
                self._commit(batch, work, kept, review)
            elif is_known:
                self._show(batch, ledger.batches[work.key, batch.batch_no], kept, review)

    def _commit(self, batch: Batch, work: LeaseWork, kept: _OfLease, review: Review) -> None:
        what = f"commit {batch.batch_no}"
        if kept.retries.due(what, review.now, _RETRY_S):
            if not kept.closed_at and work.voucher is not None:
                # Only what was paid is held, and the contract takes no batch of nothing.
                review.do(Transact(call=SettleBatch(vouchers=(work.voucher,))))
            signed = sign(batch.commit, self._deployment.verification_domain, self._key)
            review.do(Transact(call=CommitBatch(commit=signed)))
        review.look_at(kept.retries.at(what))

    def _show(self, batch: Batch, on_chain: BatchOnChain, kept: _OfLease, review: Review) -> None:
        """Open what a verifier asks for on chain: silence would be convicted."""
        if on_chain.seed is None or review.now > instant(on_chain.answer_by):
            return
        for j in sorted(on_chain.challenged):
            what = f"open {batch.batch_no} {j}"
            if kept.retries.due(what, review.now, _RETRY_S):
                review.do(Transact(call=batch.answer(on_chain.seed, j)))
            review.look_at(kept.retries.at(what))

    def _commit_by(self, kept: _OfLease) -> int:
        """Unix seconds; while the lease is open, not yet in sight."""
        windows = self._deployment.audit
        return kept.closed_at + windows.commit if kept.closed_at and windows else 2**40

    def needs(self, lease: LeaseKey, ledger: Ledger, now: Instant) -> bool:
        """Whether verifiers may still ask about a lease: then its files are kept, too."""
        kept, windows = self._leases.get(lease), self._deployment.audit
        if kept is None or windows is None:
            return False
        latest = self._commit_by(kept) + windows.hard_cap + windows.challenge + _MARGIN_S
        if now >= instant(latest):
            return False
        ends = [ledger.batches.get((lease, batch.batch_no)) for batch in kept.batches]
        return bool(kept.results) or any(end is None or end.is_open for end in ends)

    # Verifiers.

    def answer(
        self, peer: PeerId, message: AuditMessage, ledger: Ledger, now: Instant
    ) -> Sequence[ProviderEffect]:
        """What a verifier gets; what others say about audits has no answer."""
        match message:
            case OutlineAsked(request=request):
                refusal, i = self._refusal(request, ledger, now), -1
            case EvidenceAsked(request=demand):
                refusal, i = self._refusal(demand, ledger, now), demand.body.i
            case _:
                return []
        lease, batch_no = message.request.body.lease, message.request.body.batch_no
        batch = self._batch(lease, batch_no)
        answer = self._shown_to(peer, batch, i) if refusal is None and batch else None
        if answer is None:
            unknown = Rejection(reason=RejectReason.UNKNOWN_JOB, found=f"segment {i}")
            answer = EvidenceRefused(
                lease=lease, batch_no=batch_no, i=i, rejection=refusal or unknown
            )
        return [SendAudit(peer=peer, message=answer)]

    def _shown_to(self, peer: PeerId, batch: Batch, i: int) -> AuditMessage | None:
        if i == -1:
            return OutlineGiven(outline=batch.outline)
        evidence = batch.evidence(i)
        if evidence is None:
            return None
        self._shown.setdefault(peer, set()).update(batch.files(i))
        return EvidenceGiven(evidence=evidence)

    def _refusal(
        self,
        request: Statement[RequestT],
        ledger: Ledger,
        now: Instant,
    ) -> Rejection | None:
        body = request.body
        if body.verifier not in self._deployment.verifiers:
            return Rejection(
                reason=RejectReason.KEY_NOT_AUTHORISED,
                field="request.verifier",
                found=str(body.verifier),
                needed="a verifier of this deployment",
            )
        rejection = verify_statement(
            request,
            self._deployment.domain,
            account=body.verifier,
            keys=NoDelegates(),
            role=None,
            at=unix_seconds(now),
        )
        if rejection is not None:
            return rejection
        on_chain = ledger.batches.get((body.lease, body.batch_no))
        if on_chain is None or on_chain.state is BatchState.COMMITTED:
            return Rejection(
                reason=RejectReason.WRONG_STATE,
                field="batch",
                found="not drawn" if on_chain else "not on chain",
                needed="a batch whose draw is on chain",
                next="Ask again when it is drawn.",
            )
        return None

    def _batch(self, lease: LeaseKey, batch_no: int) -> Batch | None:
        kept = self._leases.get(lease)
        known = kept.batches if kept else []
        return known[batch_no] if 0 <= batch_no < len(known) else None

    def may_fetch(self, peer: PeerId, sha256: str) -> bool:
        """Whether a peer may have this file: a verifier's, of evidence that it was shown."""
        return sha256 in self._shown.get(peer, ())

    def is_new(self, peer: PeerId, message: AuditMessage, ledger: Ledger, now: Instant) -> bool:
        """Whether a message gives its peer a right that must survive a restart."""
        if not isinstance(message, EvidenceAsked):
            return False
        body = message.request.body
        batch = self._batch(body.lease, body.batch_no)
        if batch is None or batch.evidence(body.i) is None:
            return False
        if batch.files(body.i) <= self._shown.get(peer, set()):
            return False
        return self._refusal(message.request, ledger, now) is None
