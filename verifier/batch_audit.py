"""One committed batch, from its draw to its end: who draws it, which segments, and what it pays.

The verifier whose turn it is leads; half of the hard cap later the other one does what is left.
A node that does not even outline its batch is asked on chain, and paid nothing of it; a verifier
that lost its preimages is replaced by `FallbackSeed`; past the hard cap anybody ends it
unverified. What two verifiers agreed on before that is accused even then, for a while.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.audit import (
    BatchOutline,
    BatchState,
    Evidence,
    Opening,
    Results,
    Sibling,
    draw_point,
    prove,
    segment_at,
)
from cloud_gpu.protocol.audit_messages import AuditRecord, OutlineAsked, OutlineRequest
from cloud_gpu.protocol.calls import (
    ConvictSegment,
    Draw,
    Ending,
    FallbackSeed,
    FinaliseBatches,
    RevealPreimages,
)
from cloud_gpu.protocol.effects import PublishRecord, Transact
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import Instant
from verifier.audit import Audit, Finding
from verifier.challenging import POINTS_MAX, Challenging
from verifier.draw import Stakes, Trust, drawn, points
from verifier.evidence import check_outline
from verifier.inquiry import Inquiry
from verifier.ledger import BatchOnChain
from verifier.means import Means
from verifier.review import Retries, Review

REVEAL_AFTER_BLOCKS: Final = 2
FALLBACK_AFTER_BLOCKS: Final = 257


class BatchAudit:
    """What this verifier does about one batch."""

    def __init__(self, batch: BatchOnChain, means: Means, images: frozenset[str]) -> None:
        self._batch, self._means, self._images = batch, means, images
        self.outline: BatchOutline | None = None
        self.audits: dict[int, Audit] = {}
        """Of the drawn segments."""
        self._is_silent = False
        self._results: Signed[Results] | None = None
        self._published: AuditRecord | None = None
        self._inquiry = Inquiry(batch.lease.machine, self._question, means)
        self._challenging = Challenging(means)
        self._retries = Retries()

    def is_of(self, batch: BatchOnChain) -> bool:
        """Whether the chain still has the batch that this is about: blocks may be replaced."""
        ours = self._batch
        is_redrawn = ours.seed is not None and ours.seed != batch.seed
        return ours.root == batch.root and ours.block == batch.block and not is_redrawn

    def take_outline(self, outline: BatchOutline) -> Rejection | None:
        """The node showed all leaves; they are what it committed to, or it is asked again.

        Rejects: see `check_outline`.
        """
        if self.outline is not None or self._batch.seed is None:
            return None
        rejection = check_outline(outline, self._batch)
        if rejection is not None:
            self._inquiry.refusal = str(rejection)
            return rejection
        self.outline, self._is_silent = outline, False
        chosen = drawn(self._batch.seed, outline, self._stakes, self._trust)
        self.audits = {i: Audit(self._batch, i, outline, self._means) for i in chosen}
        return None

    def take_refusal(self, i: int, rejection: Rejection) -> None:
        """The node said why it shows nothing (now)."""
        if i in self.audits:
            self.audits[i].take_refusal(rejection)
        else:
            self._inquiry.refusal = str(rejection)

    def review(self, batch: BatchOnChain, review: Review) -> None:
        """Go on; `batch` is how the chain has it now."""
        self._batch = batch
        if not batch.is_open:
            if self.is_pursued(batch):
                self._pursue(review)
            self._publish(review)
            return
        age_s = self._means.ledger.at - batch.committed_at
        leads = self._means.is_turn(batch) or age_s >= self._means.patience.takeover_s
        if batch.state is BatchState.COMMITTED:
            self._draw(leads, review)
        elif leads:
            self._audit(review)
            self._convict(review)
        if self._results is None and age_s >= self._means.patience.hard_cap_s and leads:
            self._end(None, review)

    def _draw(self, leads: bool, review: Review) -> None:
        blocks = self._means.ledger.block - self._batch.block
        transact_s = self._means.patience.transact_s
        if blocks >= FALLBACK_AFTER_BLOCKS and leads:
            if self._retries.due("fallback", review, transact_s):
                call = FallbackSeed(lease=self._batch.lease, batch_no=self._batch.batch_no)
                review.do(Transact(call=call))
            return
        preimage = self._means.preimage(self._batch) if self._means.is_turn(self._batch) else None
        if preimage is None or blocks < REVEAL_AFTER_BLOCKS:
            return
        if self._retries.due("reveal", review, transact_s):
            lease, batch_no = self._batch.lease, self._batch.batch_no
            draw = Draw(lease=lease, batch_no=batch_no, preimage=preimage)
            review.do(Transact(call=RevealPreimages(draws=(draw,))))

    def _audit(self, review: Review) -> None:
        if self.outline is None and not self._is_silent:
            self._inquiry.review(review)
            self._is_silent = self._inquiry.is_over(review.now)
        for audit in self.audits.values():
            audit.review(self._batch, review)
        is_waiting = self._challenge(review)
        if not is_waiting and (self._is_silent or self.outline is not None):
            self._conclude(review)
        if any(audit.verdicts for audit in self.audits.values()):
            self._publish(review)

    def _challenge(self, review: Review) -> bool:
        """Ask on chain for what is not shown; whether an answer is still waited for."""
        batch, seed = self._batch, self._batch.seed
        assert seed is not None, "asked for of a drawn batch"
        drawn_by_points = points(seed, batch.n, self._stakes, self._trust)
        # One at least: what is always audited may lie under no point, and a root may be garbage.
        m = batch.points or max(1, min(POINTS_MAX, drawn_by_points))
        wanted = set(range(m)) if self._is_silent else set()
        if self.outline is not None:
            unshown = {i for i, audit in self.audits.items() if audit.is_unshown}
            wanted = {j for j in range(m) if self._segment_at(j, self.outline) in unshown}
        wanted -= {j for j in range(m) if self._was_accused(j)}  # it was shown with that
        return self._challenging.review(batch, frozenset(wanted), m, review)

    def _was_accused(self, j: int) -> bool:
        batch = self._batch
        assert batch.seed is not None, "asked for of a drawn batch"
        point = draw_point(batch.seed, j)
        for i, shown in batch.openings.items():
            leaf = Sibling(hash=shown.leaf, weight=shown.weight)
            start = prove(batch.root, batch.n, i, leaf, shown.proof)
            if start is not None and start <= point < start + shown.weight:
                return True
        return False

    def _segment_at(self, j: int, outline: BatchOutline) -> int:
        assert self._batch.seed is not None, "asked for of a drawn batch"
        return segment_at(draw_point(self._batch.seed, j), outline.weights)

    @property
    def _stakes(self) -> Stakes:
        return Stakes(value=self._batch.value, locked=self._batch.locked)

    @property
    def _trust(self) -> Trust:
        return Trust(
            passed=self._batch.passed,
            on_probation=self._batch.on_probation,
            images=self._images,
        )

    def is_pursued(self, batch: BatchOnChain) -> bool:
        """Whether a batch that ended unverified is still to be accused, or to be convicted."""
        windows = self._means.deployment.audit
        assert windows is not None, "a verifier's deployment has its windows"
        age_s = self._means.ledger.at - batch.committed_at
        until_s = windows.hard_cap + windows.late_slash
        is_accusing = any(audit.is_accusing for audit in self.audits.values())
        may_accuse = is_accusing and age_s <= until_s
        is_unverified = batch.state is BatchState.FINAL_UNVERIFIED
        return is_unverified and (may_accuse or bool(batch.accused))

    def _pursue(self, review: Review) -> None:
        for audit in self.audits.values():
            if audit.is_accusing:
                audit.review(self._batch, review)
        self._convict(review)

    def _convict(self, review: Review) -> None:
        """An accusation that nobody can contest any more is seen through, whoever made it.

        Not of a segment that this verifier found honest, as long as the batch may wait.
        """
        patience, at = self._means.patience, self._means.ledger.at
        must_end = at - self._batch.committed_at >= patience.hard_cap_s
        for i, until in self._batch.accused.items():
            audit = self.audits.get(i)
            if at <= until or (audit and audit.finding is Finding.MATCH and not must_end):
                continue
            if self._retries.due(f"convict {i}", review, patience.transact_s):
                lease, batch_no = self._batch.lease, self._batch.batch_no
                opening = self._batch.openings[i]
                convict = ConvictSegment(lease=lease, batch_no=batch_no, opening=opening)
                review.do(Transact(call=convict))

    def _conclude(self, review: Review) -> None:
        """When everything drawn is decided, say so and end the batch."""
        found = {i: audit.finding for i, audit in self.audits.items()}
        if None in found.values() or self._batch.accused:
            return
        bad = {i for i, finding in found.items() if finding is Finding.INCONCLUSIVE}
        unsure = {i for i, finding in found.items() if finding is Finding.NOT_REPEATED}
        if self.outline is not None:  # a part went back for each silent point
            bad -= {self._segment_at(j, self.outline) for j in self._batch.silent}
        if unsure and not bad and not self._batch.convicted and not self._batch.silent:
            return  # nobody's fault: the hard cap pays it as unverified
        if self._is_silent:
            bad = set(range(self._batch.n))
        # Who is under suspicion has no benefit of the doubt.
        incomparable = sum(1 << i for i in (bad | unsure) - self._batch.convicted)
        lease = self._batch.lease
        results = Results(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=self._batch.batch_no,
            incomparable=incomparable,
        )
        if self._results is None or self._results.payload != results:
            domain = self._means.deployment.verification_domain
            self._results = sign(results, domain, self._means.key)
        shown = (bad | unsure) - self._batch.convicted - self._batch.contested
        openings = self.outline.openings(shown) if self.outline is not None else ()
        self._end(self._results, review, openings)

    def _end(
        self, results: Signed[Results] | None, review: Review, openings: tuple[Opening, ...] = ()
    ) -> None:
        is_quiet = not self._batch.accused and not self._batch.unanswered
        if is_quiet and self._retries.due("finalise", review, self._means.patience.transact_s):
            ending = Ending(
                lease=self._batch.lease,
                batch_no=self._batch.batch_no,
                results=results,
                openings=openings,
            )
            review.do(Transact(call=FinaliseBatches(endings=(ending,))))

    def _publish(self, review: Review) -> None:
        record = self.record
        if record is not None and record != self._published:
            self._published = record
            review.do(PublishRecord(record=record))

    @property
    def record(self) -> AuditRecord | None:
        """All that was said about it; None before this verifier saw its outline."""
        if self.outline is None or self._batch.seed is None:
            return None
        shown: list[Evidence] = [a.evidence for a in self.audits.values() if a.evidence]
        return AuditRecord(
            lease=self._batch.lease,
            batch_no=self._batch.batch_no,
            root=self._batch.root,
            seed=self._batch.seed,
            passed=self._batch.passed,
            known_images=tuple(sorted(self._images)),
            outline=self.outline,
            drawn=tuple(self.audits),
            evidence=tuple(shown),
            verdicts=tuple(v for audit in self.audits.values() for v in audit.verdicts),
            results=self._results,
        )

    def _question(self, now: Instant) -> OutlineAsked:
        return OutlineAsked(
            request=self._means.state(
                OutlineRequest(
                    verifier=self._means.key.address,
                    lease=self._batch.lease,
                    batch_no=self._batch.batch_no,
                ),
                now,
            )
        )
