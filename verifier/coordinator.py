"""The verifier's party: leads the audits of its turn, gives its opinion on the other's, and returns
held pay that nobody commits to.

It keeps no journal: the chain says which batches are open, nodes show their evidence again, and a
re-execution that was done is not done twice (its adapter keeps results). So after a restart it
reads the chain from the beginning, acts on nothing that is history, and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.audit_messages import (
    AuditRecord,
    EvidenceAsked,
    EvidenceGiven,
    EvidenceRefused,
    OpinionAsked,
    OpinionGiven,
    OutlineAsked,
    OutlineGiven,
    VerifierNotice,
)
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    TransactionFailed,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import PublishVerifier, VerifierEffect
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.events import (
    AskHeard,
    AuditMessageReceived,
    DeadlinePassed,
    ReplayDone,
    VerifierEvent,
    VerifierHeard,
)
from cloud_gpu.protocol.identity import PeerId, Signer
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import Instant, instant, unix_seconds
from cloud_gpu.protocol.values import Address
from verifier.audit import Audit
from verifier.batch_audit import BatchAudit
from verifier.draw import Preimages
from verifier.grouping import Groups
from verifier.ledger import BatchId, BatchOnChain, Ledger
from verifier.means import Means, Patience
from verifier.opinion import Opinion, check_question
from verifier.returning import Returning
from verifier.review import Review
from verifier.whereabouts import Whereabouts

_NOTICES_MISSED: Final = 10
"""A notice counts for so many intervals."""


class Coordinator:
    """A `Party` over `VerifierEvent` and `VerifierEffect`."""

    def __init__(
        self,
        *,
        deployment: Deployment,
        key: Signer,
        peer: PeerId,
        addresses: tuple[str, ...],
        preimages: Preimages,
        history_until: int = 0,
        records: Iterable[AuditRecord] = (),
        patience: Patience | None = None,
    ) -> None:
        """`history_until`: the newest block's time at the start, Unix seconds.

        Raises SettingsInvalid: the deployment names no audits, or not this verifier.
        """
        if deployment.audit is None or key.address not in deployment.verifiers:
            raise SettingsInvalid(f"keystore: {key.address} is no verifier of this deployment")
        ledger = Ledger()
        self._ledger, self._history_until = ledger, history_until
        self._means = Means(
            key=key,
            peer=peer,
            addresses=addresses,
            preimages=preimages,
            deployment=deployment,
            patience=patience or Patience.of(deployment.audit, deployment.heartbeat_s),
            ledger=ledger,
            whereabouts=Whereabouts(deployment, ledger),
        )
        self._returning = Returning(self._means)
        self._open: set[BatchId] = set()
        self._audits: dict[BatchId, BatchAudit] = {}
        self._opinions: dict[tuple[BatchId, int], Opinion] = {}
        self._groups = Groups()
        self._images: dict[Address, frozenset[str]] = {}
        self._wakes: dict[BatchId, Instant] = {}
        self._notice_at: Instant = 0
        for record in records:
            self._learn_images(record)

    @property
    def deadline(self) -> Instant | None:
        """When something is due though nothing happens."""
        if self._is_history:
            return None
        wakes = [self._notice_at, *self._wakes.values()]
        if self._returning.deadline is not None:
            wakes.append(self._returning.deadline)
        return min(wakes)

    @property
    def _is_history(self) -> bool:
        """Whether the chain is being read up to where it stood at the start."""
        return self._ledger.at < self._history_until

    def may(self, peer: str, sha256: str, direction: str, size: int) -> bool:  # noqa: ARG002
        """Whether a peer may "fetch" or "push" a file: the other verifier may fetch evidence."""
        other = self._means.other
        place = self._means.whereabouts.verifier(other) if other else None
        return direction == "fetch" and place is not None and place.peer == peer

    def handle(self, event: VerifierEvent, now: Instant) -> Sequence[VerifierEffect]:
        """See `Party`."""
        touched = self._apply(event, now)
        if self._is_history:
            return []
        effects: list[VerifierEffect] = []
        for batch in sorted(touched):
            effects += self._review(batch, now)
        if isinstance(event, ChainAdvanced | DeadlinePassed):
            review = Review(now)
            self._returning.review(review)
            effects += review.effects
        if now >= self._notice_at:
            self._notice_at = now + instant(self._means.patience.notice_s)
            effects.append(self._notice(now))
        return self._groups.grouped(effects)

    # Facts: each names the batches that it is about.

    def _apply(self, event: VerifierEvent, now: Instant) -> set[BatchId]:
        match event:
            case DeadlinePassed():
                return {batch for batch, at in self._wakes.items() if at <= now}
            case AskHeard(advert=advert):
                self._means.whereabouts.hear_advert(advert, now)
                return set()
            case VerifierHeard(notice=notice):
                self._means.whereabouts.hear_notice(notice, now)
                return set()
            case AuditMessageReceived():
                return self._receive(event, now)
            case ReplayDone():
                return self._replayed(event)
            case _:
                return self._follow(event)

    def _follow(self, event: ChainEvent) -> set[BatchId]:
        self._ledger.apply(event)
        if isinstance(event, BatchCommitted):
            self._open.add((event.lease, event.batch_no))
        elif isinstance(event, TransactionFailed):
            self._groups.failed(event.call)
        elif isinstance(event, ChainReorganised):
            self._open |= {b.id for b in self._ledger.batches.values() if b.is_open}
        # Its block ends with ChainAdvanced, and nothing is acted upon before it is whole.
        return set(self._open) if isinstance(event, ChainAdvanced) else set()

    def _replayed(self, event: ReplayDone) -> set[BatchId]:
        batch = event.lease, event.batch_no
        if (audit := self._audit(batch, event.i)) is not None:
            audit.take_replay(event)
        if (opinion := self._opinions.get((batch, event.i))) is not None:
            opinion.take_replay(event)
        return {batch}

    def _receive(self, event: AuditMessageReceived, now: Instant) -> set[BatchId]:
        """What peers say is proved or signed by itself; what is not is dropped."""
        match event.message:
            case OutlineGiven(outline=outline):
                batch = outline.lease, outline.batch_no
                if (whole := self._audits.get(batch)) is not None:
                    whole.take_outline(outline)
            case EvidenceGiven(evidence=evidence):
                leaf = evidence.leaf
                batch = leaf.lease, leaf.batch_no
                if (audit := self._audit(batch, leaf.i)) is not None:
                    audit.take_evidence(evidence)
                if (opinion := self._opinions.get((batch, leaf.i))) is not None:
                    opinion.take_evidence(evidence)
            case EvidenceRefused() as refused:
                batch = refused.lease, refused.batch_no
                if (whole := self._audits.get(batch)) is not None:
                    whole.take_refusal(refused.i, refused.rejection)
            case OpinionAsked() as asked:
                batch = self._ask(asked, now)
            case OpinionGiven(verdict=verdict):
                said = verdict.payload
                lease = LeaseKey(provider=said.provider, index=said.index, seq=said.seq)
                batch = lease, said.batch_no
                if (audit := self._audit(batch, said.i)) is not None:
                    audit.take_opinion(verdict, now)
            case OutlineAsked() | EvidenceAsked():
                return set()  # a verifier commits to nothing
        return {batch}

    def _ask(self, asked: OpinionAsked, now: Instant) -> BatchId:
        leaf = asked.evidence.leaf
        key = leaf.lease, leaf.batch_no
        batch = self._ledger.batches.get(key)
        if batch is None or not batch.is_open:
            return key
        if check_question(asked, batch, self._means, now) is None:
            self._opinion(batch, leaf.i).ask(asked)
        return key

    def _opinion(self, batch: BatchOnChain, i: int) -> Opinion:
        return self._opinions.setdefault((batch.id, i), Opinion(batch, i, self._means))

    def _audit(self, batch: BatchId, i: int) -> Audit | None:
        audit = self._audits.get(batch)
        return audit.audits.get(i) if audit else None

    # What is to be done.

    def _review(self, key: BatchId, now: Instant) -> Sequence[VerifierEffect]:
        batch = self._ledger.batches.get(key)
        audit = self._audits.get(key)
        if key not in self._open:
            return []
        if batch is None or (audit is not None and not audit.is_of(batch)):
            self._forget(key)
            audit = None
        if batch is None:
            self._open.discard(key)
            return []
        if audit is None:
            images = self._images.get(batch.lease.provider, frozenset())
            audit = self._audits[key] = BatchAudit(batch, self._means, images)
        review = Review(now)
        audit.review(batch, review)
        self._review_opinions(batch, audit, review)
        is_live = batch.is_open or audit.is_pursued(batch)
        if is_live and review.wake is not None:
            self._wakes[key] = review.wake
        else:
            self._wakes.pop(key, None)
        if not is_live:
            self._close(batch, audit)
        return review.effects

    def _review_opinions(self, batch: BatchOnChain, audit: BatchAudit, review: Review) -> None:
        if not self._means.is_turn(batch):
            for i in set(batch.accused) - set(audit.audits):
                self._opinion(batch, i)
        for (key, _), opinion in self._opinions.items():
            if key == batch.id:
                opinion.review(batch, review)

    def _close(self, batch: BatchOnChain, audit: BatchAudit) -> None:
        if batch.state is BatchState.FINAL and audit.record is not None:
            self._learn_images(audit.record)
        self._open.discard(batch.id)
        self._groups.forget(batch.id)
        self._forget(batch.id)

    def _learn_images(self, record: AuditRecord) -> None:
        """A provider passed with these images."""
        if record.outline is None or record.results is None or record.results.payload.incomparable:
            return
        provider = record.lease.provider
        passed = {segment.image for segment in record.outline.segments}
        self._images[provider] = self._images.get(provider, frozenset()) | passed

    def _forget(self, key: BatchId) -> None:
        self._audits.pop(key, None)
        self._wakes.pop(key, None)
        for opinion in [each for each in self._opinions if each[0] == key]:
            del self._opinions[opinion]

    def _notice(self, now: Instant) -> PublishVerifier:
        body = VerifierNotice(
            verifier=self._means.key.address,
            peer=self._means.peer,
            addresses=self._means.addresses,
            at=unix_seconds(now),
        )
        return PublishVerifier(notice=self._means.state(body, now))
