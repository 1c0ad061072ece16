"""Asking a node for something until it shows it or was silent for too long."""

from __future__ import annotations

from collections.abc import Callable

from cloud_gpu.protocol.audit_messages import AuditMessage
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.units import Instant, instant
from verifier.means import Means
from verifier.review import Retries, Review


class Inquiry:
    """One question to one node; time runs from the first time that it could be asked."""

    def __init__(
        self, machine: MachineKey, question: Callable[[Instant], AuditMessage], means: Means
    ) -> None:
        self._machine, self._question, self._means = machine, question, means
        self._retries = Retries()
        self._until: Instant | None = None
        self.refusal = ""
        """What the node last said instead of an answer."""

    def review(self, review: Review) -> None:
        """Ask, or ask again."""
        place = self._means.whereabouts.node(self._machine)
        if place is None:
            return
        if self._until is None:
            self._until = review.now + instant(self._means.patience.evidence_s)
        review.look_at(self._until)
        if self._retries.due("ask", review, self._means.patience.repeat_s):
            self._means.send(place, self._question(review.now), review)

    def is_over(self, now: Instant) -> bool:
        """Whether the node had its time. A node that was never heard of had none."""
        return self._until is not None and now >= self._until
