"""Held pay that no provider commits to goes back to its buyer, though neither of them is there.

A provider has the commit window after a lease's end. Afterwards returning is anyone's call, and
verifiers are always there: they take turns by the lease's number, and one that does not act is
replaced by the other. Both acting is harmless.
"""

from __future__ import annotations

from cloud_gpu.protocol.calls import ReturnHeld
from cloud_gpu.protocol.effects import Transact
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import Instant
from verifier.ledger import HeldPay
from verifier.means import Means
from verifier.review import Retries, Review


class Returning:
    """What this verifier does about held pay in no batch."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._retries: dict[LeaseKey, Retries] = {}
        self.deadline: Instant | None = None
        """When something is due though no block comes."""

    def review(self, review: Review) -> None:
        """Return what nobody committed to in time, again until the chain says that it is gone."""
        held = self._means.ledger.held
        self._retries = {lease: kept for lease, kept in self._retries.items() if lease in held}
        for lease in sorted(held):
            if self._means.ledger.at <= self._until(held[lease]):
                continue
            retries = self._retries.setdefault(lease, Retries())
            if retries.due("return", review, self._means.patience.transact_s):
                review.do(Transact(call=ReturnHeld(lease=lease)))
        self.deadline = review.wake

    def _until(self, held: HeldPay) -> int:
        """The last second, Unix, in which this verifier leaves it alone."""
        windows, verifiers = self._means.deployment.audit, self._means.deployment.verifiers
        assert windows is not None, "a verifier's deployment has its windows"
        is_turn = verifiers[held.lease.seq % len(verifiers)] == self._means.key.address
        margin_s = 0 if is_turn else self._means.patience.takeover_s
        return held.ended_at + windows.commit + margin_s
