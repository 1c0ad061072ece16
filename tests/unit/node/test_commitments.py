"""A verified lease on the node is committed to when it has closed."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.audit import Sibling, draw_point, prove, segment_at
from cloud_gpu.protocol.audit_messages import EvidenceGiven, OutlineGiven
from cloud_gpu.protocol.calls import CommitBatch, OpenLeaf, SettleBatch
from cloud_gpu.protocol.chain_events import LeafChallenged, LeafOpened
from cloud_gpu.protocol.effects import ProviderEffect
from cloud_gpu.protocol.job import JobOutcome
from cloud_gpu.protocol.orders import AskFlags
from cloud_gpu.protocol.signing import recover
from node.settings import parse_settings
from tests.unit.node.builders import (
    LEASE,
    NODE,
    Story,
    digest,
    exited,
    restarted,
    submit,
)
from tests.unit.node.verified import (
    DEPLOYMENT,
    WINDOWS,
    answer,
    ask_evidence,
    ask_outline,
    begun,
    closed,
    committed,
    committed_root,
    done,
    drawn,
    job,
)

pytestmark = pytest.mark.usefixtures("verified_deployment")


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


# Challenges.


def challenged(story: Story, j: int, m: int = 2) -> LeafChallenged:
    until = story.at + WINDOWS.answer
    return LeafChallenged(lease=LEASE, batch_no=0, j=j, m=m, until=until, at=story.at)


def test_a_leaf_that_is_asked_for_on_chain_is_shown_there_until_the_chain_has_it() -> None:
    story = drawn(done(begun(), 1, 2))
    given = answer(story, ask_outline(story))
    assert isinstance(given, OutlineGiven)
    story.mine(challenged(story, 1))
    (call,) = story.calls(OpenLeaf)
    seed = digest("seed")
    i = segment_at(draw_point(seed, 1), given.outline.weights)
    assert (call.j, call.leaf.i) == (1, i)
    hashed = call.leaf.hash(DEPLOYMENT.chain_id, DEPLOYMENT.verification)
    sibling = Sibling(hash=hashed, weight=call.leaf.weight)
    assert prove(given.outline.root, 2, i, sibling, call.proof) is not None
    assert [c for c in calls(story.wait(20)) if isinstance(c, OpenLeaf)]
    leaf = call.leaf
    story.mine(
        LeafOpened(
            lease=LEASE,
            batch_no=0,
            j=1,
            i=i,
            job=leaf.job,
            result=leaf.result,
            salt=leaf.salt,
            at=story.at,
        )
    )
    assert not [c for c in calls(story.wait(20)) if isinstance(c, OpenLeaf)]


def test_nothing_is_shown_on_chain_when_the_time_is_over() -> None:
    story = drawn(done(begun(), 1))
    story.mine(challenged(story, 0, 1))
    story.wait(WINDOWS.answer + 1)
    assert not [c for c in calls(story.wait(100)) if isinstance(c, OpenLeaf)]
