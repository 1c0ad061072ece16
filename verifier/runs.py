"""The re-executions of one segment: who ran it, what each gave, and how often it was tried.

The accused provider never runs it, nor twice the same auditor, nor one that was itself convicted
of late; what fails is tried again on replacements, a bounded number of times.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.audit import Evidence, VerdictResult
from cloud_gpu.protocol.effects import Replay
from cloud_gpu.protocol.events import ReplayDone
from cloud_gpu.protocol.job import ResultContent
from cloud_gpu.protocol.units import Instant, instant
from cloud_gpu.protocol.values import Address
from verifier.means import SEGMENT_S_MAX, Means
from verifier.review import Review
from verifier.whereabouts import Place

REPLACEMENTS_MAX: Final = 2
"""Auditors that may fail before the segment counts as not repeatable."""


class Run:
    """One finished re-execution."""

    __slots__ = ("_compared", "auditor", "content")

    def __init__(self, auditor: Address, content: ResultContent, done: ReplayDone) -> None:
        self.auditor, self.content = auditor, content
        self._compared = {c.other.digest: c.verdict for c in done.compared}

    def compared_with(self, other: ResultContent) -> VerdictResult:
        """What the job's comparator says of this result and another."""
        if self.content.digest == other.digest:
            return VerdictResult.MATCH
        return self._compared.get(other.digest, VerdictResult.INCOMPARABLE)


class Runs:
    """Re-executions of one segment, one after the other."""

    def __init__(
        self,
        evidence: Evidence,
        means: Means,
        *,
        excluded: tuple[Address, ...] = (),
        against: tuple[ResultContent, ...] = (),
        also: Place | None = None,
    ) -> None:
        self._evidence, self._means = evidence, means
        self._excluded = [evidence.leaf.lease.provider, *excluded]
        self._against, self._also = against, also
        self._until: Instant | None = None
        self._failures = 0
        """Since the last result."""
        self._is_exhausted = False
        self.done: list[Run] = []

    def has_failed(self, replacements: int = REPLACEMENTS_MAX) -> bool:
        """Whether there is nobody left to ask, or so many replacements failed too."""
        return self._is_exhausted or self._failures > replacements

    @property
    def auditors(self) -> tuple[Address, ...]:
        """Who ran it."""
        return tuple(run.auditor for run in self.done)

    @property
    def time_s(self) -> int:
        """Seconds that one re-execution may take."""
        limit_s = min(self._evidence.spec.body.runtime_s_max, SEGMENT_S_MAX)
        return 3 * limit_s + self._means.patience.replay_slack_s

    def review(self, wanted: int, review: Review) -> None:
        """Have it run until there are `wanted` results, or nobody is left."""
        if self._until is not None and review.now >= self._until:
            self._fail()
        if self._until is not None:
            review.look_at(self._until)
        if len(self.done) >= wanted or self.has_failed() or self._until is not None:
            return
        place = self._means.whereabouts.node(self._evidence.leaf.lease.machine) or self._also
        product = self._means.ledger.product_of(self._evidence.leaf.lease.machine)
        if place is None or product is None:
            return
        owners = self._means.ledger.owners_of(product.product)
        convicted = {owner for owner in owners if self._means.ledger.is_on_probation(owner)}
        self._is_exhausted = not owners - convicted - set(self._excluded)
        if self._is_exhausted:
            return
        self._until = review.now + instant(self.time_s)
        review.look_at(self._until)
        review.do(
            Replay(
                evidence=self._evidence,
                peer=place.peer,
                addresses=place.addresses,
                excluded=(*self._excluded, *sorted(convicted - set(self._excluded))),
                gpu_class=product.gpu_class,
                gpus=product.slice_gpus,
                against=(*self._against, *(run.content for run in self.done)),
                also_peer=self._also.peer if self._also else None,
                also_addresses=self._also.addresses if self._also else (),
                within_s=self.time_s,
            )
        )

    def take(self, event: ReplayDone) -> None:
        """A re-execution ended."""
        if self._until is None:
            return
        auditor, content = event.auditor, event.content
        if auditor is None or content is None or auditor in self._excluded:
            self._fail()
        else:
            self._until, self._failures = None, 0
            self.done.append(Run(auditor, content, event))
        if auditor is not None and auditor not in self._excluded:
            self._excluded.append(auditor)

    def _fail(self) -> None:
        self._until = None
        self._failures += 1
