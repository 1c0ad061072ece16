"""A verified lease on the node: committed when it has closed, shown to verifiers once drawn."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.audit import BatchState, Sibling, prove
from cloud_gpu.protocol.audit_messages import (
    AuditMessage,
    EvidenceAsked,
    EvidenceGiven,
    EvidenceRefused,
    EvidenceRequest,
    OutlineAsked,
    OutlineGiven,
    OutlineRequest,
)
from cloud_gpu.protocol.calls import CommitBatch, SettleBatch
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    LeaseOpened,
    LeaseStarted,
)
from cloud_gpu.protocol.deployment import AuditWindows
from cloud_gpu.protocol.effects import ProviderEffect, SendAudit
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import AuditMessageReceived, ContainerReady
from cloud_gpu.protocol.identity import LocalKey, PeerId
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseFlags
from cloud_gpu.protocol.orders import AskFlags
from cloud_gpu.protocol.signing import recover, state
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import Address
from node.provider import Provider
from node.settings import parse_settings
from tests.unit.node import builders
from tests.unit.node.builders import (
    CLAIM,
    DOMAIN,
    LEASE,
    NODE,
    T0,
    Story,
    accept,
    digest,
    exited,
    key,
    open_session,
    report,
    restarted,
    spec,
    submit,
    terms,
    voucher,
)

VERIFIER, OTHER = key("verifier"), key("other verifier")
PEER = PeerId("verifier-peer")
WINDOWS = AuditWindows(commit=600, challenge=60, hard_cap=1_200, late_slash=600)
DEPLOYMENT = replace(
    builders.DEPLOYMENT,
    verification=Address(b"\x0d" * 20),
    verifiers=(VERIFIER.address, OTHER.address),
    audit=WINDOWS,
)
INPUT = FileRef(path="in", sha256="1" * 64, size=1)
OUTPUT = FileRef(path="out", sha256="2" * 64, size=1)


@pytest.fixture(autouse=True)
def _deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "DEPLOYMENT", DEPLOYMENT)


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


# Asking.


def test_a_machine_is_offered_for_verified_leases_only_where_its_owner_says_so() -> None:
    text = """
        deployment = "d"
        rpc = "r"
        keystore = "k"
        password_file = "p"
        binding = "b"
        data_folder = "f"
        provider = "0x1111111111111111111111111111111111111111"
        matcher = "0x2222222222222222222222222222222222222222"
        [[machines]]
        index = 0
        gpu_class = "A100"
        price = "1.20"
        [[machines]]
        index = 1
        gpu_class = "A100"
        price = "1.20"
        verified = true
    """
    policies = parse_settings(text, {}).policies()
    assert [policies[index].flags for index in (0, 1)] == [0, AskFlags.VERIFIED]


# Committing.


def test_a_closed_verified_lease_is_committed_to() -> None:
    story = closed(done(begun(), 1, 2))
    (call,) = story.calls(CommitBatch)
    body = call.commit.payload
    assert (body.provider, body.index, body.seq, body.batch_no, body.n) == (
        LEASE.provider,
        0,
        1,
        0,
        2,
    )
    signer = recover(body.digest(DEPLOYMENT.verification_domain), call.commit.signature)
    assert signer == NODE.address


def test_a_lease_that_is_not_verified_is_not() -> None:
    assert not closed(done(begun(flags=0), 1)).calls(CommitBatch)


def test_a_lease_without_jobs_has_nothing_to_commit_to() -> None:
    story = closed(begun())
    assert not story.calls(CommitBatch)
    assert not [e for e in story.wait(100) if isinstance(e, CommitBatch)]


def test_it_waits_for_results_of_killed_jobs_but_not_for_ever() -> None:
    story = done(begun(), 1)
    story.say(submit(job(2), story.at))
    assert not closed(story).calls(CommitBatch)
    at = story.now
    story.tell(exited(job(2), at, at + 1, outcome=JobOutcome.KILLED))
    assert story.calls(CommitBatch)[0].commit.payload.n == 2

    story = done(begun(), 1)
    story.say(submit(job(2), story.at))
    closed(story)
    story.wait(16)
    assert story.calls(CommitBatch)[0].commit.payload.n == 1
    story.tell(exited(job(2), at, at + 1, outcome=JobOutcome.KILLED))  # too late for any batch
    story.mine(committed_root(1))
    assert not [e for e in story.wait(60) if isinstance(e, CommitBatch)]


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


def test_a_hundred_results_are_committed_to_while_the_lease_goes_on() -> None:
    story = done(begun(), *range(1, 101))
    (call,) = story.calls(CommitBatch)
    assert (call.commit.payload.batch_no, call.commit.payload.n) == (0, 100)
    assert story.calls(SettleBatch)  # the contract takes no batch of nothing
    story.mine(committed(story))
    closed(done(story, 101))
    (call,) = story.calls(CommitBatch)
    assert (call.commit.payload.batch_no, call.commit.payload.n) == (1, 1)


def test_a_commitment_is_repeated_until_it_is_on_chain_or_too_late() -> None:
    story = closed(done(begun(), 1))
    first = story.calls(CommitBatch)
    repeats = [c for c in calls(story.wait(60)) if isinstance(c, CommitBatch)]
    assert 2 <= len(repeats) <= 12
    assert set(map(repr, repeats)) == set(map(repr, first))
    story.mine(committed_root(1))
    assert not [c for c in calls(story.wait(60)) if isinstance(c, CommitBatch)]

    late = closed(done(begun(), 1))
    late.wait(WINDOWS.commit + 1)
    assert not [c for c in calls(late.wait(100)) if isinstance(c, CommitBatch)]


def calls(effects: list[ProviderEffect]) -> list[object]:
    return [getattr(effect, "call", None) for effect in effects]


def test_the_same_root_after_a_restart() -> None:
    story = closed(done(begun(), 1, 2))
    before = story.calls(CommitBatch)[0].commit.payload
    again = restarted(story)
    again.wait(30)
    assert again.calls(CommitBatch)[0].commit.payload == before


def test_salts_differ_by_lease_and_job_and_nobody_else_knows_them() -> None:
    story = drawn(done(begun(), 1, 2))
    salts = set()
    for i in range(2):
        given = answer(story, ask_evidence(story, i))
        assert isinstance(given, EvidenceGiven)
        salts.add(given.evidence.leaf.salt)
    assert len(salts) == 2


# Showing.


def test_a_verifier_gets_the_outline_and_every_leaf_of_a_drawn_batch() -> None:
    story = drawn(done(begun(), 1, 2, 3))
    outlined = answer(story, ask_outline(story))
    assert isinstance(outlined, OutlineGiven)
    root = outlined.outline.root
    assert root == story.provider._ledger.batches[LEASE, 0].root
    for i in range(3):
        given = answer(story, ask_evidence(story, i, OTHER))
        assert isinstance(given, EvidenceGiven)
        leaf = given.evidence.leaf
        sibling = Sibling(
            hash=leaf.hash(DEPLOYMENT.chain_id, DEPLOYMENT.verification), weight=leaf.weight
        )
        assert prove(root, 3, i, sibling, given.evidence.proof) is not None
        assert given.evidence.spec.body.number == i + 1
        assert given.evidence.result.body.job == given.evidence.spec.body.id


def test_nothing_is_shown_before_the_draw() -> None:
    story = closed(done(begun(), 1))
    for events in ((), (committed(story),)):
        story.mine(*events)
        refused = answer(story, ask_outline(story))
        assert isinstance(refused, EvidenceRefused)
        assert refused.rejection.reason is RejectReason.WRONG_STATE


def test_nobody_but_verifiers_sees_anything() -> None:
    story = drawn(done(begun(), 1))
    refused = answer(story, ask_outline(story, key("stranger")))
    assert isinstance(refused, EvidenceRefused)
    assert refused.rejection.reason is RejectReason.KEY_NOT_AUTHORISED
    request = ask_evidence(story, 0, key("stranger")).request
    forged = replace(request, body=replace(request.body, verifier=VERIFIER.address))
    refused = answer(story, EvidenceAsked(request=forged))
    assert isinstance(refused, EvidenceRefused)
    assert refused.rejection.reason is RejectReason.KEY_NOT_AUTHORISED
    assert not story.provider.may_fetch(PEER, OUTPUT.sha256)


@pytest.mark.parametrize("i", [-2, 1, 10**9])
def test_a_segment_that_is_not_there_is_refused(i: int) -> None:
    story = drawn(done(begun(), 1))
    assert isinstance(answer(story, ask_evidence(story, i)), EvidenceRefused)


def test_a_batch_that_is_not_there_is_refused() -> None:
    story = drawn(done(begun(), 1))
    assert isinstance(answer(story, ask_outline(story, batch_no=1)), EvidenceRefused)


def test_an_expired_request_is_refused() -> None:
    story = drawn(done(begun(), 1))
    request = ask_outline(story)
    story.wait(61)
    assert isinstance(answer(story, request), EvidenceRefused)


def test_a_verifier_may_fetch_the_files_of_what_it_was_shown_also_after_a_restart() -> None:
    story = drawn(done(begun(), 1))
    assert not story.provider.may_fetch(PEER, INPUT.sha256)
    answer(story, ask_evidence(story, 0))
    for file in (INPUT, OUTPUT, builders.EMPTY):
        assert story.provider.may_fetch(PEER, file.sha256)
    assert not story.provider.may_fetch(PeerId("another"), OUTPUT.sha256)
    assert restarted(story).provider.may_fetch(PEER, OUTPUT.sha256)


def test_repeats_do_not_fill_the_journal() -> None:
    story = drawn(done(begun(), 1))
    answer(story, ask_evidence(story, 0))
    size = len(story.journal)
    for _ in range(5):
        answer(story, ask_evidence(story, 0))
        answer(story, ask_outline(story))
        answer(story, ask_evidence(story, 7))
    assert len(story.journal) == size


def test_what_is_not_a_question_has_no_answer() -> None:
    story = drawn(done(begun(), 1))
    given = answer(story, ask_outline(story))
    story.tell(AuditMessageReceived(peer=PEER, message=given))
    assert not story.found(SendAudit)


# Keeping.


def finalised() -> BatchFinalised:
    return BatchFinalised(
        lease=LEASE,
        batch_no=0,
        state=BatchState.FINAL,
        provider=TokenAmount(1),
        market=ZERO_TOKENS,
        audits=ZERO_TOKENS,
        buyer=ZERO_TOKENS,
        burnt=ZERO_TOKENS,
        at=T0,
    )


def keeps(provider: Provider) -> bool:
    return provider.keeps_file(OUTPUT.sha256)


def test_everything_is_kept_until_the_batch_ended() -> None:
    story = drawn(done(begun(), 1))
    story.wait(CLAIM + 10)  # a plain lease would be forgotten by now
    # commit + hard cap + challenge is shorter than the claim window here: nobody can ask any more
    assert not keeps(story.provider)

    long = drawn(done(begun(), 1))
    long.wait(WINDOWS.commit)
    assert keeps(long.provider)
    assert isinstance(answer(long, ask_outline(long)), OutlineGiven)


def test_a_long_audit_outlives_the_claim_window(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(DEPLOYMENT, audit=replace(WINDOWS, hard_cap=10 * CLAIM))
    monkeypatch.setattr(builders, "DEPLOYMENT", slow)
    story = drawn(done(begun(), 1))
    story.wait(2 * CLAIM)
    assert keeps(story.provider)
    assert isinstance(answer(story, ask_outline(story)), OutlineGiven)
    story.mine(finalised())
    assert not keeps(story.provider)
