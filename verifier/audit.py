"""One drawn segment's audit, as the verifier whose turn it is leads it.

The node shows its evidence, another provider repeats the job. A difference is repeated by others,
put before the other verifier when two of them agree on it, and accused by two equal verdicts; what
anybody could reproduce is never accused. Every stage ends by itself in time. A node that shows
nothing forgoes the segment's price; whether it is convicted is the batch's affair (`challenging`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cloud_gpu.protocol.audit import BatchOutline, Evidence, Verdict, VerdictResult
from cloud_gpu.protocol.audit_messages import EvidenceAsked, EvidenceRequest, OpinionAsked
from cloud_gpu.protocol.calls import AccuseSegment, ContestSegment
from cloud_gpu.protocol.effects import Transact
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.events import ReplayDone
from cloud_gpu.protocol.job import JobOutcome, ResultContent
from cloud_gpu.protocol.signing import Signed, Verified
from cloud_gpu.protocol.units import Instant, instant, unix_seconds
from verifier.comparison import is_audited
from verifier.evidence import check_evidence
from verifier.inquiry import Inquiry
from verifier.ledger import BatchOnChain
from verifier.means import Means
from verifier.referee import Ruling, check_verdict, rule
from verifier.review import Retries, Review
from verifier.runs import REPLACEMENTS_MAX, Run, Runs
from verifier.whereabouts import Place


class Stage(StrEnum):
    """Where an audit is."""

    EVIDENCE = "evidence"
    FIRST_RUN = "first-run"
    SECOND_RUN = "second-run"
    THIRD_RUN = "third-run"
    OPINION = "opinion"
    ACCUSING = "accusing"
    DECIDED = "decided"


class Step(StrEnum):
    """What happens to an audit."""

    SHOWN = "shown"
    DIFFERED = "differed"
    SPLIT = "split"
    CONFIRMED = "confirmed"
    AGREED = "agreed"
    DECIDE = "decide"


AUDIT_TABLE: Final = MappingProxyType(
    {
        (Stage.EVIDENCE, Step.SHOWN): Stage.FIRST_RUN,
        (Stage.EVIDENCE, Step.DECIDE): Stage.DECIDED,
        (Stage.FIRST_RUN, Step.DIFFERED): Stage.SECOND_RUN,
        (Stage.FIRST_RUN, Step.DECIDE): Stage.DECIDED,
        (Stage.SECOND_RUN, Step.CONFIRMED): Stage.OPINION,
        (Stage.SECOND_RUN, Step.SPLIT): Stage.THIRD_RUN,
        (Stage.SECOND_RUN, Step.DECIDE): Stage.DECIDED,
        (Stage.THIRD_RUN, Step.CONFIRMED): Stage.OPINION,
        (Stage.THIRD_RUN, Step.DECIDE): Stage.DECIDED,
        (Stage.OPINION, Step.AGREED): Stage.ACCUSING,
        (Stage.OPINION, Step.DECIDE): Stage.DECIDED,
        (Stage.ACCUSING, Step.DECIDE): Stage.DECIDED,
    }
)
"""(stage, step) -> stage; a missing entry is our own mistake."""


_RUNS: Final = MappingProxyType({Stage.FIRST_RUN: 1, Stage.SECOND_RUN: 2, Stage.THIRD_RUN: 3})
"""How many re-executions a stage waits for."""

_MATCH: Final = VerdictResult.MATCH


class Finding(StrEnum):
    """What an audit found."""

    MATCH = "match"
    INCONCLUSIVE = "inconclusive"
    """The segment's price goes to the buyer; no slash."""
    NOT_AUDITED = "not-audited"
    """Nothing that can be compared: the buyer accepts it by hand."""
    NOT_REPEATED = "not-repeated"
    """No auditor could run it: no fault of anybody's."""
    CONVICTED = "convicted"


class Audit:
    """The audit of one segment."""

    def __init__(self, batch: BatchOnChain, i: int, outline: BatchOutline, means: Means) -> None:
        self.i, self._batch, self._outline, self._means = i, batch, outline, means
        self.stage = Stage.EVIDENCE
        self.finding: Finding | None = None
        self.evidence: Evidence | None = None
        self.verdicts: tuple[Signed[Verdict], ...] = ()
        """This verifier's, then the other's."""
        self.detail = ""
        """Why it was decided so, for people."""
        self._inquiry = Inquiry(batch.lease.machine, self._question, means)
        self._runs: Runs | None = None
        self._different: ResultContent | None = None
        """What two auditors got instead."""
        self._opinion_until: Instant | None = None
        self._retries = Retries()

    # Facts.

    def take_evidence(self, evidence: Evidence) -> Rejection | None:
        """The node showed something; what is not what it committed to is refused and asked again.

        Rejects: see `check_evidence`.
        """
        if self.stage is not Stage.EVIDENCE:
            return None
        buyer = self._means.ledger.buyer_of(self._batch.lease)
        assert buyer is not None, f"a committed batch of a lease nobody opened: {self._batch}"
        rejection = check_evidence(
            evidence,
            self._batch,
            self.i,
            deployment=self._means.deployment,
            buyer=buyer,
            keys=self._means.ledger,
            outline=self._outline,
        )
        if rejection is not None:
            self._inquiry.refusal = str(rejection)
            return rejection
        self.evidence = evidence
        self._step(Step.SHOWN)
        if not is_repeatable(evidence):
            self._decide(Finding.NOT_AUDITED, "a class or an ending that cannot be compared")
        else:
            self._runs = Runs(evidence, self._means)
        return None

    def take_refusal(self, rejection: Rejection) -> None:
        """The node said why it shows nothing (now)."""
        self._inquiry.refusal = str(rejection)

    def take_replay(self, event: ReplayDone) -> None:
        """A re-execution ended."""
        if self._runs is None or self.evidence is None:
            return
        self._runs.take(event)
        runs = self._runs.done
        if len(runs) == _RUNS.get(self.stage):
            self._judge(runs, self.evidence.result.body.content)

    def _judge(self, runs: Sequence[Run], committed: ResultContent) -> None:
        """All runs of this stage are here: what do they say together?"""
        *before, newest = runs
        found = newest.compared_with(committed)
        was_reproduced = any(run.compared_with(committed) is _MATCH for run in before)
        if found is VerdictResult.INCOMPARABLE:
            self._decide(Finding.INCONCLUSIVE, "the results cannot be compared")
        elif found is _MATCH and (not before or was_reproduced):
            self._decide(Finding.MATCH, f"{newest.auditor} got the same")
        elif not before:
            self._step(Step.DIFFERED)
        elif (
            not was_reproduced
            and found is VerdictResult.MISMATCH
            and (agreeing := [run for run in before if newest.compared_with(run.content) is _MATCH])
        ):
            self._different = agreeing[0].content
            self._step(Step.CONFIRMED)
        elif self.stage is Stage.SECOND_RUN:
            self._step(Step.SPLIT)
        else:
            self._decide(Finding.INCONCLUSIVE, "the re-executions differ among themselves")

    def take_opinion(self, signed: Signed[Verdict], now: Instant) -> None:
        """The other verifier gave its verdict on the difference."""
        if self.stage is not Stage.OPINION:
            return
        own = check_verdict(self.verdicts[0], self._means.deployment, unix_seconds(now))
        other = check_verdict(signed, self._means.deployment, unix_seconds(now))
        assert isinstance(own, Verified), own
        if not isinstance(other, Verified) or other.signer == own.signer:
            return
        self.verdicts = (self.verdicts[0], signed)
        if rule(own, other) is Ruling.FAULT:
            self._step(Step.AGREED)
        else:
            self._decide(Finding.INCONCLUSIVE, f"{other.signer}: {other.payload.result.name}")

    # What is to be done.

    def review(self, batch: BatchOnChain, review: Review) -> None:
        """Go on; `batch` is how the chain has it now."""
        self._batch = batch
        if self.i in batch.convicted or self.i in batch.contested:
            if self.finding is None:
                is_guilty = self.i in batch.convicted
                self._decide(Finding.CONVICTED if is_guilty else Finding.INCONCLUSIVE, "on chain")
            return
        if self.i in batch.accused:
            self._review_accusation(batch.accused[self.i], review)
            return
        match self.stage:
            case Stage.EVIDENCE:
                self._inquiry.review(review)
                if self._inquiry.is_over(review.now):
                    said = self._inquiry.refusal or "nothing"
                    self._decide(Finding.INCONCLUSIVE, f"the node shows no evidence: {said}")
            case Stage.FIRST_RUN | Stage.SECOND_RUN | Stage.THIRD_RUN:
                self._review_runs(review)
            case Stage.OPINION:
                self._review_opinion(review)
            case Stage.ACCUSING:
                self._accuse(review)
            case Stage.DECIDED:
                pass

    @property
    def is_unshown(self) -> bool:
        """Whether the node showed nothing in time."""
        return self.stage is Stage.DECIDED and self.evidence is None

    @property
    def is_accusing(self) -> bool:
        """Whether two verdicts agree, and the chain does not know yet."""
        return self.stage is Stage.ACCUSING

    @property
    def _is_late(self) -> bool:
        """Whether there is no time left to wait for anybody."""
        age_s = self._means.ledger.at - self._batch.committed_at
        return age_s >= self._means.patience.decide_s

    def _review_runs(self, review: Review) -> None:
        assert self._runs is not None
        assert self.evidence is not None
        self._runs.review(_RUNS[self.stage], review)
        # The third run only breaks a tie, so it is tried once.
        replacements = 0 if self.stage is Stage.THIRD_RUN else REPLACEMENTS_MAX
        if not self._runs.has_failed(replacements) and not self._is_late:
            return
        committed = self.evidence.result.body.content
        if self.stage is Stage.FIRST_RUN:
            self._decide(Finding.NOT_REPEATED, "no auditor could run it")
        elif any(run.compared_with(committed) is _MATCH for run in self._runs.done):
            self._decide(Finding.MATCH, "one of two got the same, and nobody else is left to ask")
        else:
            self._decide(Finding.INCONCLUSIVE, "the difference could not be repeated")

    def _review_opinion(self, review: Review) -> None:
        assert self._runs is not None
        assert self._different is not None
        if not self.verdicts:
            leaf, digest = self._outline.segments[self.i].leaf, self._different.digest
            own = self._means.verdict(self._batch, self.i, leaf, digest, VerdictResult.MISMATCH)
            self.verdicts = (own,)
        if self._opinion_until is None:
            wait_s = self._runs.time_s + self._means.patience.opinion_slack_s
            self._opinion_until = review.now + instant(wait_s)
        review.look_at(self._opinion_until)
        if review.now >= self._opinion_until or self._is_late:
            self._decide(Finding.INCONCLUSIVE, "the other verifier gave no opinion")
            return
        other = self._means.other
        place = self._means.whereabouts.verifier(other) if other else None
        if place is not None and self._retries.due("ask", review, self._means.patience.repeat_s):
            self._ask_opinion(self._different, place, review)

    def _ask_opinion(self, replayed: ResultContent, place: Place, review: Review) -> None:
        assert self._runs is not None
        assert self.evidence is not None
        question = OpinionAsked(
            verdict=self.verdicts[0],
            evidence=self.evidence,
            replayed=replayed,
            auditors=self._runs.auditors,
        )
        self._means.send(place, question, review)

    def _accuse(self, review: Review) -> None:
        assert self.evidence is not None
        if self._retries.due("accuse", review, self._means.patience.transact_s):
            first, second = self.verdicts
            review.do(
                Transact(
                    call=AccuseSegment(
                        leaf=self.evidence.leaf,
                        proof=self.evidence.proof,
                        first=first,
                        second=second,
                    )
                )
            )

    def _review_accusation(self, until: int, review: Review) -> None:
        """An accusation stands: contest it if this verifier knows better."""
        if self.finding is not Finding.MATCH or self._means.ledger.at > until:
            return
        if self._retries.due("contest", review, self._means.patience.transact_s):
            assert self.evidence is not None
            verdict = self._means.verdict(
                self._batch,
                self.i,
                self._outline.segments[self.i].leaf,
                self.evidence.result.body.content.digest,
                VerdictResult.MATCH,
            )
            opening = self._batch.openings[self.i]
            review.do(Transact(call=ContestSegment(verdict=verdict, opening=opening)))

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

    def _step(self, step: Step) -> None:
        self.stage = AUDIT_TABLE[self.stage, step]

    def _decide(self, finding: Finding, detail: str) -> None:
        self._step(Step.DECIDE)
        self.finding, self.detail = finding, detail


def is_repeatable(evidence: Evidence) -> bool:
    """Whether a second run could be held against the first.

    Only a run that exited by itself can: how far one that was killed or ran out of time had come
    says nothing, and the buyer saw it end.
    """
    is_ended = evidence.result.body.outcome is JobOutcome.EXITED
    return is_ended and is_audited(evidence.spec.body.comparison)
