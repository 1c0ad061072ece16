"""One coordinator under test: facts are short to tell, its instructions are easy to find."""

from __future__ import annotations

from typing import TypeVar

from cloud_gpu.protocol.audit import BatchState, Compared, Verdict, VerdictResult
from cloud_gpu.protocol.audit_messages import (
    AuditMessage,
    EvidenceAsked,
    EvidenceGiven,
    OpinionAsked,
    OpinionGiven,
    OutlineAsked,
    OutlineGiven,
)
from cloud_gpu.protocol.calls import (
    ChallengeLeaf,
    ConvictSilence,
    Draw,
    Ending,
    FinaliseBatches,
    RevealPreimages,
)
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchFinalised,
    ChainEvent,
    LeafChallenged,
    LeafOpened,
    SegmentAccused,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.effects import Replay, SendAudit, Transact, VerifierEffect
from cloud_gpu.protocol.events import (
    AskHeard,
    AuditMessageReceived,
    DeadlinePassed,
    ReplayDone,
    VerifierEvent,
    VerifierHeard,
)
from cloud_gpu.protocol.identity import LocalKey, PeerId
from cloud_gpu.protocol.job import ResultContent
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from tests.unit.verifier.builders import (
    DEPLOYMENT,
    FIRST,
    SECOND,
    T0,
    Batch,
    Work,
    address,
    advert,
    block,
    content_of,
    digest,
    file,
    notice,
    opened,
    peer_of,
    verdict_of,
    world_events,
)
from verifier.coordinator import Coordinator
from verifier.draw import Preimages
from verifier.means import Patience

EffectT = TypeVar("EffectT", bound=VerifierEffect)
MessageT = TypeVar("MessageT", bound=AuditMessage)
CallT = TypeVar("CallT")

PROVIDERS = ("accused", "auditor-a", "auditor-b", "auditor-c")

RIGHT = content_of(file("out/a.txt", b"right"))
OTHER = content_of(file("out/a.txt", b"other"))
THIRD = content_of(file("out/a.txt", b"third"))
FOURTH = content_of(file("out/a.txt", b"fourth"))

PATIENCE = Patience(
    evidence_s=30,
    replay_slack_s=20,
    opinion_slack_s=40,
    takeover_s=300,
    hard_cap_s=600,
    notice_s=100_000,
)


def preimages(signer: LocalKey) -> Preimages:
    return Preimages(digest(f"preimages of {signer.address}"), 16)


class Story:
    """A coordinator, its time (seconds since T0, which is also the block) and what it has said."""

    def __init__(
        self,
        signer: LocalKey = FIRST,
        *,
        providers: tuple[str, ...] = PROVIDERS,
        history_until: int = 0,
    ) -> None:
        self.signer = signer
        self.party = Coordinator(
            deployment=DEPLOYMENT,
            key=signer,
            peer=peer_of("me"),
            addresses=("/memory/me",),
            preimages=preimages(signer),
            history_until=history_until,
            patience=PATIENCE,
        )
        self.at = 0
        self.effects: list[VerifierEffect] = []
        for event in world_events(*providers):
            self.tell(event)
        for name in providers:
            self.tell(AskHeard(advert=advert(name)))
        other = SECOND if signer is FIRST else FIRST
        self.tell(VerifierHeard(notice=notice(other, "other")))

    def tell(self, *events: VerifierEvent) -> Story:
        """Facts, one after the other, now."""
        for event in events:
            self.effects += self.party.handle(event, (T0 + self.at) * 1_000)
        return self

    def wait(self, at: int) -> Story:
        """Time passes until `at`: every deadline on the way, and a block at the end."""
        while (deadline := self.party.deadline) is not None and deadline <= (T0 + at) * 1_000:
            self.at = max(self.at, -(-deadline // 1_000) - T0)
            before = self.party.deadline
            self.tell(DeadlinePassed())
            assert self.party.deadline != before, "a deadline that passed must move"
        self.at = at
        return self.tell(block(at))

    def chain(self, *events: ChainEvent) -> Story:
        """Facts of the block that comes now."""
        return self.tell(*events, block(self.at))

    def say(self, message: AuditMessage, peer: PeerId | None = None) -> Story:
        return self.tell(AuditMessageReceived(peer=peer or peer_of("accused"), message=message))

    # Finding what it did.

    def found(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def said(self, kind: type[MessageT]) -> list[MessageT]:
        return [e.message for e in self.found(SendAudit) if isinstance(e.message, kind)]

    def called(self, kind: type[CallT]) -> list[CallT]:
        return [e.call for e in self.found(Transact) if isinstance(e.call, kind)]

    @property
    def draws(self) -> list[Draw]:
        return [draw for call in self.called(RevealPreimages) for draw in call.draws]

    @property
    def endings(self) -> list[Ending]:
        return [ending for call in self.called(FinaliseBatches) for ending in call.endings]

    def forget(self) -> Story:
        """Only what comes from now on counts."""
        self.effects.clear()
        return self

    def endure(self, batch: Batch) -> Story:
        """The chain takes every challenge; nobody answers one, and the silence is convicted."""
        asked = {call.j: call.m for call in self.called(ChallengeLeaf)}
        assert asked, "nothing was asked for on chain"
        until = self.at + 20
        self.chain(*(challenged(batch, j, m, self.at, until) for j, m in asked.items()))
        self.wait(until + 1)
        assert {call.j for call in self.called(ConvictSilence)} == set(asked)
        return self.chain(*(silenced(batch, j, self.at) for j in asked))

    # The usual course.

    def commit(self, batch: Batch, at: int = 60) -> Story:
        """The lease was opened, and the batch is committed."""
        self.at = at
        return self.chain(opened(batch.lease), batch.committed(at=T0 + at, block=at))

    def draw(self, batch: Batch, seed: str = "seed") -> Story:
        self.wait(self.at + 3)
        return self.chain(batch.drawn(seed, at=T0 + self.at))

    def outline(self, batch: Batch) -> Story:
        assert self.said(OutlineAsked), "the outline was not asked for"
        return self.say(OutlineGiven(outline=batch.outline))

    def show(self, batch: Batch, i: int = 0) -> Story:
        asked = [m.request.body.i for m in self.said(EvidenceAsked)]
        assert i in asked, f"evidence of {i} was not asked for, only of {asked}"
        return self.say(EvidenceGiven(evidence=batch.evidence(i)))

    def replayed(
        self,
        batch: Batch,
        content: ResultContent | None,
        auditor: str = "auditor-a",
        i: int = 0,
        compared: tuple[Compared, ...] | None = None,
    ) -> Story:
        """A re-execution gave this; what it is compared with is what was asked for."""
        if compared is None and content is not None:
            asked = self.found(Replay)[-1]
            others = (asked.evidence.result.body.content, *asked.against)
            compared = tuple(bytes_of(content, other) for other in others)
        return self.tell(
            ReplayDone(
                lease=batch.lease,
                batch_no=batch.batch_no,
                i=i,
                auditor=address(auditor) if content else None,
                result=content.digest if content else None,
                content=content,
                compared=compared or (),
            )
        )

    def opinion(self, verdict: Signed[Verdict]) -> Story:
        return self.say(OpinionGiven(verdict=verdict), peer_of("other"))

    def until_replay(self, batch: Batch) -> Story:
        """A batch of one segment whose only evidence was shown."""
        return self.commit(batch).draw(batch).outline(batch).show(batch)

    def until_opinion(self, batch: Batch) -> Story:
        """Two auditors agree that it is something else."""
        self.until_replay(batch).replayed(batch, OTHER, "auditor-a")
        return self.replayed(batch, OTHER, "auditor-b")


def bytes_of(content: ResultContent, other: ResultContent) -> Compared:
    """What the comparator `bytes` says."""
    is_same = content.digest == other.digest
    verdict = VerdictResult.MATCH if is_same else VerdictResult.MISMATCH
    return Compared(other=other, verdict=verdict, score=0, version="bytes/1")


def question(
    batch: Batch, i: int = 0, signer: LocalKey = FIRST, replayed: ResultContent = OTHER
) -> OpinionAsked:
    """What the other verifier asks about a segment."""
    return OpinionAsked(
        verdict=verdict_of(batch, i, signer, replayed=replayed),
        evidence=batch.evidence(i),
        replayed=replayed,
        auditors=(address("auditor-a"),),
    )


def accused(batch: Batch, i: int, at: int, until: int) -> SegmentAccused:
    (opening,) = batch.outline.openings([i])
    return SegmentAccused(
        lease=batch.lease,
        batch_no=batch.batch_no,
        until=T0 + until,
        opening=opening,
        at=T0 + at,
    )


def finalised(batch: Batch, state: BatchState, at: int) -> BatchFinalised:
    return BatchFinalised(
        lease=batch.lease,
        batch_no=batch.batch_no,
        state=state,
        provider=batch.value,
        market=ZERO_TOKENS,
        audits=ZERO_TOKENS,
        buyer=ZERO_TOKENS,
        burnt=ZERO_TOKENS,
        at=T0 + at,
    )


def one() -> Batch:
    """A batch of one segment, the first of its image: always audited."""
    return Batch("accused", [Work()])


def incomparable(story: Story) -> list[int | None]:
    return [
        ending.results.payload.incomparable if ending.results else None for ending in story.endings
    ]


def convicted(batch: Batch, i: int, at: int) -> SegmentConvicted:
    amount = TokenAmount(1)
    return SegmentConvicted(
        lease=batch.lease,
        batch_no=0,
        i=i,
        refund=amount,
        fine=amount,
        bounty=ZERO_TOKENS,
        at=T0 + at,
    )


def challenged(batch: Batch, j: int, m: int, at: int, until: int) -> LeafChallenged:
    return LeafChallenged(lease=batch.lease, batch_no=0, j=j, m=m, until=T0 + until, at=T0 + at)


def opened_leaf(batch: Batch, j: int, at: int) -> LeafOpened:
    nothing = digest("not looked at")
    return LeafOpened(
        lease=batch.lease,
        batch_no=0,
        j=j,
        i=0,
        job=nothing,
        result=nothing,
        salt=nothing,
        at=T0 + at,
    )


def silenced(batch: Batch, j: int, at: int) -> SilenceConvicted:
    return SilenceConvicted(
        lease=batch.lease,
        batch_no=0,
        j=j,
        refund=TokenAmount(1),
        fine=TokenAmount(20),
        at=T0 + at,
    )


def contested(batch: Batch, i: int, at: int) -> AccusationContested:
    return AccusationContested(lease=batch.lease, batch_no=0, i=i, refund=ZERO_TOKENS, at=T0 + at)
