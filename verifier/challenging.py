"""What a node does not show is asked for on chain; who shows it nowhere is convicted of silence.

A point is asked for once, all points of a batch as parts of one number. While one is open the
batch cannot end; an answer ends it, or its time and anybody's `ConvictSilence`.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.calls import ChallengeLeaf, ConvictSilence
from cloud_gpu.protocol.effects import Transact
from verifier.ledger import BatchOnChain
from verifier.means import Means
from verifier.review import Retries, Review

POINTS_MAX: Final = 10
"""As many points show that a root is garbage; each costs both sides a transaction."""


class Challenging:
    """What this verifier asks of one batch on chain."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._retries = Retries()

    def review(self, batch: BatchOnChain, points: frozenset[int], m: int, review: Review) -> bool:
        """Ask for these points of m, convict what stayed silent; whether one is waited for."""
        at, patience = self._means.ledger.at, self._means.patience
        missing = points - batch.asked if self._has_time(batch) else frozenset()
        for j in sorted(missing):
            if self._retries.due(f"challenge {j}", review, patience.transact_s):
                lease, batch_no = batch.lease, batch.batch_no
                challenge = ChallengeLeaf(lease=lease, batch_no=batch_no, j=j, m=m)
                review.do(Transact(call=challenge))
        for j in sorted(batch.unanswered):
            if at > batch.answer_by and self._retries.due(
                f"silence {j}", review, patience.transact_s
            ):
                silence = ConvictSilence(lease=batch.lease, batch_no=batch.batch_no, j=j)
                review.do(Transact(call=silence))
        return bool(missing or batch.unanswered)

    def _has_time(self, batch: BatchOnChain) -> bool:
        return self._means.ledger.at - batch.committed_at < self._means.patience.decide_s
