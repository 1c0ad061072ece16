"""A verifier that wants providers convicted for what they did not do."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.protocol.audit import Evidence, Verdict, VerdictResult
from cloud_gpu.protocol.audit_messages import EvidenceGiven, OpinionAsked, OpinionGiven
from cloud_gpu.protocol.calls import AccuseSegment
from cloud_gpu.protocol.effects import SendAudit, Transact, VerifierEffect
from cloud_gpu.protocol.events import AuditMessageReceived, VerifierEvent
from cloud_gpu.protocol.identity import LocalKey, PeerId
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest
from tests.unit.verifier.builders import DEPLOYMENT, content_of, file
from verifier.coordinator import Coordinator

INVENTED = content_of(file("out/a.txt", b"invented"))


class Framer:
    """It draws as it must, then says of every segment that it sees that it is wrong.

    It shows a result that nobody computed, signs whatever the other one asks it to sign, and
    accuses with whatever signatures it can get, its own twice included.
    """

    def __init__(self, honest: Coordinator, key: LocalKey, other: PeerId) -> None:
        self._honest, self._key, self._other = honest, key, other
        self._framed: dict[Digest, tuple[Evidence, Signed[Verdict]]] = {}

    @property
    def deadline(self) -> Instant | None:
        return self._honest.deadline

    def handle(self, event: VerifierEvent, now: Instant) -> Sequence[VerifierEffect]:
        effects = list(self._honest.handle(event, now))
        if not isinstance(event, AuditMessageReceived):
            return effects
        match event.message:
            case EvidenceGiven(evidence=evidence):
                return [*effects, *self._frame(evidence)]
            case OpinionAsked(verdict=verdict):
                signed = self._sign(verdict.payload)
                return [SendAudit(peer=self._other, message=OpinionGiven(verdict=signed))]
            case OpinionGiven(verdict=verdict):
                return [*effects, *self._accuse(verdict)]
            case _:
                return effects

    def _frame(self, evidence: Evidence) -> list[VerifierEffect]:
        leaf = evidence.leaf
        hashed = leaf.hash(DEPLOYMENT.chain_id, DEPLOYMENT.verification)
        signed = self._sign(
            Verdict(
                provider=leaf.lease.provider,
                index=leaf.lease.index,
                seq=leaf.lease.seq,
                batch_no=leaf.batch_no,
                i=leaf.i,
                leaf=hashed,
                result_digest=INVENTED.digest,
                result=VerdictResult.MISMATCH,
            )
        )
        self._framed[hashed] = evidence, signed
        asked = OpinionAsked(verdict=signed, evidence=evidence, replayed=INVENTED)
        return [SendAudit(peer=self._other, message=asked), *self._accuse(signed)]

    def _accuse(self, second: Signed[Verdict]) -> list[VerifierEffect]:
        if second.payload.leaf not in self._framed:
            return []
        evidence, first = self._framed[second.payload.leaf]
        call = AccuseSegment(leaf=evidence.leaf, proof=evidence.proof, first=first, second=second)
        return [Transact(call=call)]

    def _sign(self, verdict: Verdict) -> Signed[Verdict]:
        return sign(verdict, DEPLOYMENT.verification_domain, self._key)
