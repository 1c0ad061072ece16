"""What a verifier works with: its key and preimages, the deployment, its patience, its picture of
the chain and of where the others are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from cloud_gpu.protocol.audit import Verdict, VerdictResult
from cloud_gpu.protocol.audit_messages import AuditMessage
from cloud_gpu.protocol.deployment import AuditWindows, Deployment
from cloud_gpu.protocol.effects import Connect, SendAudit
from cloud_gpu.protocol.identity import PeerId, Signer
from cloud_gpu.protocol.signing import Signed, Statement, sign, state
from cloud_gpu.protocol.units import Instant, unix_seconds
from cloud_gpu.protocol.values import Address, Digest, Value
from verifier.draw import Preimages
from verifier.ledger import BatchOnChain, Ledger
from verifier.review import Review
from verifier.whereabouts import Place, Whereabouts

SEGMENT_S_MAX: Final = 600
"""A segment is at most so long, or its audit would not fit into the hard cap."""

STATEMENT_LIFE_S: Final = 600

BodyT = TypeVar("BodyT", bound=Value)


class Patience(Value, frozen=True, kw_only=True):
    """How long a verifier waits; seconds."""

    evidence_s: int
    """For a node to show what it committed to, from the first time it was asked."""
    replay_slack_s: int
    """For a re-execution, besides three times the job's own limit."""
    opinion_slack_s: int
    """For the other verifier's."""
    takeover_s: int
    """So long after a verifier's turn began, the other one does what it did not."""
    hard_cap_s: int
    repeat_s: int = 2
    """Between repeats of a question, at first."""
    transact_s: int = 10
    """Between repeats of a transaction, at first."""
    notice_s: int = 60
    """Between notices that this verifier is alive."""

    @property
    def decide_s(self) -> int:
        """After the commitment nobody is waited for: at the hard cap what is in doubt is paid."""
        return 11 * self.hard_cap_s // 12

    @classmethod
    def of(cls, windows: AuditWindows, heartbeat_s: int) -> Patience:
        """The waits that fit a deployment's hard cap; with 24 h: 15 min, 10 min, 30 min, 12 h."""
        return cls(
            evidence_s=min(900, max(5, windows.hard_cap // 4)),
            replay_slack_s=min(600, max(5, windows.hard_cap // 3)),
            opinion_slack_s=min(1_800, max(10, windows.hard_cap // 2)),
            takeover_s=windows.hard_cap // 2,
            hard_cap_s=windows.hard_cap,
            notice_s=max(2, 6 * heartbeat_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """One verifier's."""

    key: Signer
    peer: PeerId
    addresses: tuple[str, ...]
    preimages: Preimages
    deployment: Deployment
    patience: Patience
    ledger: Ledger
    whereabouts: Whereabouts

    @property
    def other(self) -> Address | None:
        """The verifier whose opinion counts beside this one's."""
        return next((v for v in self.deployment.verifiers if v != self.key.address), None)

    def is_turn(self, batch: BatchOnChain) -> bool:
        """Whether this verifier draws and audits the batch; they take turns by commitment."""
        verifiers = self.deployment.verifiers
        return verifiers[batch.number % len(verifiers)] == self.key.address

    def preimage(self, batch: BatchOnChain) -> Digest | None:
        """What this verifier reveals for a batch of its turn; None: its chain is used up."""
        return self.preimages.at(batch.number // len(self.deployment.verifiers))

    def state(self, body: BodyT, now: Instant) -> Statement[BodyT]:
        """A statement of this verifier, for some minutes."""
        return state(
            body,
            self.deployment.domain,
            self.key,
            nonce=now,
            expiry=unix_seconds(now) + STATEMENT_LIFE_S,
        )

    def verdict(
        self, batch: BatchOnChain, i: int, leaf: Digest, digest: Digest, result: VerdictResult
    ) -> Signed[Verdict]:
        """This verifier's signed word on a segment."""
        lease = batch.lease
        verdict = Verdict(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=batch.batch_no,
            i=i,
            leaf=leaf,
            result_digest=digest,
            result=result,
        )
        return sign(verdict, self.deployment.verification_domain, self.key)

    def send(self, place: Place, message: AuditMessage, review: Review) -> None:
        """Say something to a peer."""
        review.do(
            Connect(peer=place.peer, addresses=place.addresses),
            SendAudit(peer=place.peer, message=message),
        )
