"""A verified lease of the node's, its jobs, its batch on chain, and verifiers who ask."""

from __future__ import annotations

from msgspec.structs import replace

from cloud_gpu.protocol.audit_messages import (
    AuditMessage,
    EvidenceAsked,
    EvidenceRequest,
    OutlineAsked,
    OutlineRequest,
)
from cloud_gpu.protocol.calls import CommitBatch
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchDrawn,
    LeaseOpened,
    LeaseStarted,
)
from cloud_gpu.protocol.deployment import AuditWindows
from cloud_gpu.protocol.effects import SendAudit
from cloud_gpu.protocol.events import AuditMessageReceived, ContainerReady
from cloud_gpu.protocol.identity import LocalKey, PeerId
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseFlags
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from tests.unit.node import builders
from tests.unit.node.builders import (
    DOMAIN,
    LEASE,
    T0,
    Story,
    accept,
    digest,
    exited,
    key,
    open_session,
    report,
    spec,
    submit,
    terms,
    voucher,
)

VERIFIER, OTHER = key("verifier"), key("other verifier")
PEER = PeerId("verifier-peer")
WINDOWS = AuditWindows(commit=600, challenge=60, hard_cap=1_200, late_slash=600, answer=60)
DEPLOYMENT = replace(
    builders.DEPLOYMENT,
    verification=Address(b"\x0d" * 20),
    verifiers=(VERIFIER.address, OTHER.address),
    audit=WINDOWS,
)
INPUT = FileRef(path="in", sha256="1" * 64, size=1)
OUTPUT = FileRef(path="out", sha256="2" * 64, size=1)


def begun(flags: int = LeaseFlags.VERIFIED) -> Story:
    """An active lease, paid for an hour."""
    story = Story().start()
    opened = replace(terms(LEASE, story.at), flags=flags)
    story.mine(LeaseOpened(terms=opened, bid=digest("bid"), at=T0, transaction=digest("t")))
    story.tell(ContainerReady(lease=LEASE, report=report()))
    story.say(open_session(story.at))
    story.say(voucher(60))
    story.say(accept(story.at))
    story.mine(LeaseStarted(lease=LEASE, started_at=T0, at=story.at))
    return story


def job(number: int) -> JobSpec:
    return spec(number=number, inputs=(INPUT,))


def done(story: Story, *numbers: int, outcome: JobOutcome = JobOutcome.EXITED) -> Story:
    """Jobs taken, run for ten seconds and ended."""
    for number in numbers:
        story.say(submit(job(number), story.at))
        at = story.now
        ended = exited(job(number), at, at + 10_000, outputs=(OUTPUT,), outcome=outcome)
        story.tell(ended)
    return story


def committed(story: Story, batch_no: int = 0) -> BatchCommitted:
    """The chain took what the node posted last."""
    call = next(c for c in story.calls(CommitBatch) if c.commit.payload.batch_no == batch_no)
    body = call.commit.payload
    return BatchCommitted(
        lease=LEASE,
        batch_no=body.batch_no,
        root=body.root,
        n=body.n,
        value=TokenAmount(1),
        locked=TokenAmount(1),
        at=story.at,
        block=story.block,
    )


def closed(story: Story) -> Story:
    story.close(LeaseEndReason.STOPPED)
    return story


def drawn(story: Story) -> Story:
    """Closed, committed and drawn."""
    closed(story)
    story.mine(committed(story))
    story.mine(BatchDrawn(lease=LEASE, batch_no=0, seed=digest("seed"), at=story.at))
    return story


def ask_outline(story: Story, signer: LocalKey = VERIFIER, batch_no: int = 0) -> OutlineAsked:
    body = OutlineRequest(verifier=signer.address, lease=LEASE, batch_no=batch_no)
    return OutlineAsked(request=state(body, DOMAIN, signer, nonce=1, expiry=story.at + 60))


def ask_evidence(story: Story, i: int, signer: LocalKey = VERIFIER) -> EvidenceAsked:
    body = EvidenceRequest(verifier=signer.address, lease=LEASE, batch_no=0, i=i)
    return EvidenceAsked(request=state(body, DOMAIN, signer, nonce=1, expiry=story.at + 60))


def answer(story: Story, message: AuditMessage) -> AuditMessage:
    story.tell(AuditMessageReceived(peer=PEER, message=message))
    (sent,) = [effect for effect in story.effects if isinstance(effect, SendAudit)]
    assert sent.peer == PEER
    return sent.message


def committed_root(n: int) -> BatchCommitted:
    return BatchCommitted(
        lease=LEASE,
        batch_no=0,
        root=digest("root"),
        n=n,
        value=TokenAmount(1),
        locked=TokenAmount(1),
        at=T0,
        block=1,
    )
