"""The second opinion on a segment: formed by this verifier's own means, asked for or not.

It asks the node for the evidence itself, so that the node lets it fetch the files; a node that
falls silent now cannot escape, since what the first verifier saw is proved by itself. Of an
accusation that it was never asked about it forms one too, and contests it if it knows better.
"""

from __future__ import annotations

from cloud_gpu.protocol.audit import Evidence, Verdict, VerdictResult
from cloud_gpu.protocol.audit_messages import (
    EvidenceAsked,
    EvidenceRequest,
    OpinionAsked,
    OpinionGiven,
)
from cloud_gpu.protocol.calls import ContestSegment
from cloud_gpu.protocol.effects import Transact
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import ReplayDone
from cloud_gpu.protocol.signing import Signed, Verified
from cloud_gpu.protocol.units import Instant, unix_seconds
from cloud_gpu.protocol.values import ZERO_DIGEST, Address, Digest
from verifier.audit import is_repeatable
from verifier.evidence import check_evidence
from verifier.inquiry import Inquiry
from verifier.ledger import BatchOnChain
from verifier.means import Means
from verifier.referee import check_verdict
from verifier.review import Retries, Review
from verifier.runs import Run, Runs

OTHERS_MIN = 2
"""So many other owners must be left before the first verifier's auditors are left out."""


def check_question(
    asked: OpinionAsked, batch: BatchOnChain, means: Means, now: Instant
) -> Rejection | None:
    """None when the other verifier says of this drawn batch that a segment differs, and proves it.

    Rejects: BAD_SIGNATURE, KEY_NOT_AUTHORISED, MALFORMED, EXPIRED.
    """
    verdict = check_verdict(asked.verdict, means.deployment, unix_seconds(now))
    if not isinstance(verdict, Verified):
        return verdict
    said, leaf = verdict.payload, asked.evidence.leaf
    needed = Verdict(
        provider=batch.lease.provider,
        index=batch.lease.index,
        seq=batch.lease.seq,
        batch_no=batch.batch_no,
        i=said.i,
        leaf=leaf.hash(means.deployment.chain_id, means.deployment.verification),
        result_digest=asked.replayed.digest,
        result=VerdictResult.MISMATCH,
    )
    if verdict.signer == means.key.address or batch.seed is None or said != needed:
        return Rejection(
            reason=RejectReason.MALFORMED,
            field="verdict",
            found=f"a verdict of {verdict.signer}",
            needed="the other verifier's mismatch of this drawn segment and this replay",
        )
    return _check(asked.evidence, batch, said.i, means)


def _check(evidence: Evidence, batch: BatchOnChain, i: int, means: Means) -> Rejection | None:
    buyer = means.ledger.buyer_of(batch.lease)
    assert buyer is not None, f"a committed batch of a lease nobody opened: {batch}"
    return check_evidence(
        evidence, batch, i, deployment=means.deployment, buyer=buyer, keys=means.ledger
    )


class Opinion:
    """This verifier's own view of one segment of the other's batch."""

    def __init__(self, batch: BatchOnChain, i: int, means: Means) -> None:
        self.i, self._batch, self._means = i, batch, means
        self.verdict: Signed[Verdict] | None = None
        self.evidence: Evidence | None = None
        self._asked: OpinionAsked | None = None
        self._is_answer_due = False
        self._inquiry = Inquiry(batch.lease.machine, self._question, means)
        self._runs: Runs | None = None
        self._retries = Retries()

    def ask(self, asked: OpinionAsked) -> None:
        """The other verifier wants to know, perhaps again; the question was checked."""
        if self._asked is None or self.verdict is None:
            self._asked = asked
        self._is_answer_due = True

    def take_evidence(self, evidence: Evidence) -> Rejection | None:
        """The node showed something.

        Rejects: see `check_evidence`.
        """
        if self.evidence is not None:
            return None
        rejection = _check(evidence, self._batch, self.i, self._means)
        if rejection is None:
            self._begin(evidence)
        return rejection

    def take_replay(self, event: ReplayDone) -> None:
        """A re-execution ended."""
        if self._runs is None or self.verdict is not None:
            return
        self._runs.take(event)
        if self._runs.done:
            self._conclude(self._runs.done[0])

    def review(self, batch: BatchOnChain, review: Review) -> None:
        """Go on; `batch` is how the chain has it now."""
        self._batch = batch
        if self.evidence is None:
            self._inquiry.review(review)
            is_known = self._means.whereabouts.node(batch.lease.machine) is not None
            if self._asked and (self._inquiry.is_over(review.now) or not is_known):
                self._begin(self._asked.evidence)
        if self._runs is not None and self.verdict is None:
            self._runs.review(1, review)
            if self._runs.has_failed():
                self._sign(VerdictResult.INCOMPARABLE, ZERO_DIGEST)
        if self.verdict is None:
            return
        if self._is_answer_due:
            self._answer(review)
        knows_better = self.verdict.payload.result is not VerdictResult.MISMATCH
        transact_s = self._means.patience.transact_s
        if (
            self.i in batch.accused
            and knows_better
            and self._retries.due("contest", review, transact_s)
        ):
            opening = batch.openings[self.i]
            review.do(Transact(call=ContestSegment(verdict=self.verdict, opening=opening)))

    def _begin(self, evidence: Evidence) -> None:
        self.evidence = evidence
        if not is_repeatable(evidence):
            self._sign(VerdictResult.INCOMPARABLE, ZERO_DIGEST)
            return
        other, asked = self._means.other, self._asked
        self._runs = Runs(
            evidence,
            self._means,
            excluded=self._others_auditors(),
            against=(asked.replayed,) if asked else (),
            also=self._means.whereabouts.verifier(other) if other and asked else None,
        )

    def _others_auditors(self) -> tuple[Address, ...]:
        """Auditors that the first verifier used, while enough others are left to choose from."""
        product = self._means.ledger.product_of(self._batch.lease.machine)
        if self._asked is None or product is None:
            return ()
        left = self._means.ledger.owners_of(product.product) - {self._batch.lease.provider}
        left -= set(self._asked.auditors)
        return self._asked.auditors if len(left) >= OTHERS_MIN else ()

    def _conclude(self, run: Run) -> None:
        """A mismatch is said in the first verifier's words, or it would not be the same one."""
        assert self.evidence is not None
        committed = run.compared_with(self.evidence.result.body.content)
        if committed is VerdictResult.MATCH:
            self._sign(VerdictResult.MATCH, run.content.digest)
        elif committed is VerdictResult.MISMATCH and (
            self._asked is not None
            and run.compared_with(self._asked.replayed) is VerdictResult.MATCH
        ):
            self._sign(VerdictResult.MISMATCH, self._asked.replayed.digest)
        elif committed is VerdictResult.MISMATCH and self._asked is None:
            self._sign(VerdictResult.MISMATCH, run.content.digest)
        else:
            self._sign(VerdictResult.INCOMPARABLE, run.content.digest)

    def _sign(self, result: VerdictResult, digest: Digest) -> None:
        assert self.evidence is not None
        leaf = self.evidence.leaf.hash(
            self._means.deployment.chain_id, self._means.deployment.verification
        )
        self.verdict = self._means.verdict(self._batch, self.i, leaf, digest, result)

    def _answer(self, review: Review) -> None:
        assert self.verdict is not None
        place = self._means.whereabouts.verifier(self._means.other) if self._means.other else None
        if place is not None:
            self._is_answer_due = False
            self._means.send(place, OpinionGiven(verdict=self.verdict), review)

    def _question(self, now: Instant) -> EvidenceAsked:
        return EvidenceAsked(
            request=self._means.state(
                EvidenceRequest(
                    verifier=self._means.key.address,
                    lease=self._batch.lease,
                    batch_no=self._batch.batch_no,
                    i=self.i,
                ),
                now,
            )
        )
