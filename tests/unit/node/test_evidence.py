"""What a drawn batch's node shows, to verifiers alone, and for how long."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.audit import BatchState, Sibling, prove
from cloud_gpu.protocol.audit_messages import (
    EvidenceAsked,
    EvidenceGiven,
    EvidenceRefused,
    OutlineGiven,
)
from cloud_gpu.protocol.chain_events import (
    BatchFinalised,
)
from cloud_gpu.protocol.effects import SendAudit
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import AuditMessageReceived
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from node.provider import Provider
from tests.unit.node import builders
from tests.unit.node.builders import (
    CLAIM,
    LEASE,
    T0,
    key,
    restarted,
)
from tests.unit.node.verified import (
    DEPLOYMENT,
    INPUT,
    OTHER,
    OUTPUT,
    PEER,
    VERIFIER,
    WINDOWS,
    answer,
    ask_evidence,
    ask_outline,
    begun,
    closed,
    committed,
    done,
    drawn,
)

pytestmark = pytest.mark.usefixtures("verified_deployment")


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
