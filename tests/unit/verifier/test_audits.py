"""A batch of one's own turn: drawn, shown, repeated. Every stage, and how each ends in time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.audit_messages import (
    EvidenceAsked,
    EvidenceGiven,
    EvidenceRefused,
    OpinionAsked,
    OutlineAsked,
    OutlineGiven,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    ChallengeLeaf,
    FallbackSeed,
)
from cloud_gpu.protocol.effects import PublishRecord, Replay
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.job import JobOutcome, ResultContent
from cloud_gpu.protocol.signing import verify_statement
from cloud_gpu.protocol.values import ZERO_DIGEST
from tests.unit.verifier.builders import (
    DEPLOYMENT,
    FIRST,
    SECOND,
    T0,
    Batch,
    Work,
    address,
    peer_of,
)
from tests.unit.verifier.story import (
    FOURTH,
    OTHER,
    PROVIDERS,
    RIGHT,
    THIRD,
    Story,
    challenged,
    convicted,
    finalised,
    incomparable,
    one,
    opened_leaf,
    preimages,
)
from verifier.audit import AUDIT_TABLE, Stage, Step
from verifier.ledger import Ledger

# The table.


def test_every_stage_can_be_decided_and_is_reached() -> None:
    for stage in Stage:
        assert stage is Stage.DECIDED or AUDIT_TABLE[stage, Step.DECIDE] is Stage.DECIDED
    reached = {Stage.EVIDENCE}
    for (before, _), after in AUDIT_TABLE.items():
        assert before in reached, f"{before} is not reached before its steps are listed"
        reached.add(after)
    assert reached == set(Stage)


# The draw.


def test_the_preimage_is_revealed_two_blocks_after_the_commitment() -> None:
    story = Story().commit(one(), at=60)
    assert not story.draws
    assert not story.wait(61).draws
    reveals = story.wait(62).draws
    assert [call.preimage for call in reveals] == [preimages(FIRST).at(0)]


def test_verifiers_take_turns_by_commitment_and_each_has_its_own_chain() -> None:
    first, second = Story(FIRST), Story(SECOND)
    batches = [Batch("accused", [Work()], seq=seq) for seq in range(1, 5)]
    for story in (first, second):
        for batch in batches:
            story.commit(batch, at=60)
        story.wait(63)
    assert [(c.lease, c.preimage) for c in first.draws] == [
        (batches[0].lease, preimages(FIRST).at(0)),
        (batches[2].lease, preimages(FIRST).at(1)),
    ]
    assert [(c.lease, c.preimage) for c in second.draws] == [
        (batches[1].lease, preimages(SECOND).at(0)),
        (batches[3].lease, preimages(SECOND).at(1)),
    ]


def test_a_reveal_that_did_not_arrive_is_repeated() -> None:
    story = Story().commit(one(), at=60).wait(62).wait(100)
    assert 2 <= len(story.draws) <= 5


def test_after_257_blocks_the_seed_comes_from_the_chain_alone() -> None:
    story = Story().commit(one(), at=60).wait(316)
    assert not story.called(FallbackSeed)
    assert story.wait(317).called(FallbackSeed)


def test_the_other_verifier_leaves_a_batch_that_is_not_its_turn_alone() -> None:
    batch = one()
    story = Story(SECOND).commit(batch).draw(batch).wait(200)
    assert not story.draws
    assert not story.said(OutlineAsked)


def test_the_other_verifier_takes_over_at_half_the_hard_cap() -> None:
    batch = one()
    story = Story(SECOND).commit(batch).draw(batch).wait(359)
    assert not story.said(OutlineAsked)
    assert story.wait(360).said(OutlineAsked)


# Evidence.


def test_questions_are_signed_by_the_verifier_and_repeated_until_answered() -> None:
    batch = one()
    story = Story().commit(batch).draw(batch).wait(70)
    asked = story.said(OutlineAsked)
    assert len(asked) >= 2
    rejection = verify_statement(
        asked[0].request,
        DEPLOYMENT.domain,
        account=FIRST.address,
        keys=Ledger(),
        role=KeyRole.NODE,
        at=T0 + 65,
    )
    assert rejection is None
    story.outline(batch).forget().wait(90)
    assert not story.said(OutlineAsked)
    assert story.said(EvidenceAsked)


def test_a_false_outline_is_not_taken() -> None:
    batch, other = one(), Batch("accused", [Work(number=2)])
    story = Story().commit(batch).draw(batch).say(OutlineGiven(outline=other.outline))
    assert not story.said(EvidenceAsked)
    assert story.outline(batch).said(EvidenceAsked)


def test_a_node_that_nobody_ever_heard_of_is_not_blamed() -> None:
    """Its adverts did not reach this verifier: that is no silence of the node's."""
    batch = Batch("unheard", [Work()])
    story = Story(providers=("auditor-a",)).commit(batch).draw(batch).wait(500)
    assert not story.endings
    assert incomparable(story.wait(700))[0] is None


def test_a_node_that_shows_no_evidence_costs_itself_that_segment() -> None:
    batch = Batch("accused", [Work(image="a"), Work(number=2, image="b")])
    story = Story().commit(batch).draw(batch).outline(batch)
    refusal = Rejection(reason=RejectReason.UNKNOWN_JOB)
    refused = EvidenceRefused(lease=batch.lease, batch_no=0, i=0, rejection=refusal)
    story.say(refused).show(batch, 1).replayed(batch, RIGHT, i=1).wait(120)
    # Only what lies under a point can be asked for on chain.
    asked = story.called(ChallengeLeaf)
    story.chain(*(challenged(batch, call.j, call.m, 120, 140) for call in asked[:1]))
    story.chain(*(opened_leaf(batch, call.j, 121) for call in asked[:1])).wait(125)
    assert incomparable(story)[0] == 0b01
    assert story.endings[0].openings == batch.outline.openings([0])
    assert not story.called(AccuseSegment)


def test_evidence_that_does_not_prove_itself_is_asked_for_again() -> None:
    batch = one()
    story = Story().commit(batch).draw(batch).outline(batch)
    evidence = batch.evidence(0)
    forged = replace(evidence, leaf=replace(evidence.leaf, salt=ZERO_DIGEST))
    assert not story.say(EvidenceGiven(evidence=forged)).found(Replay)
    assert story.show(batch).found(Replay)


# Re-executions.


def test_a_segment_is_repeated_by_somebody_else() -> None:
    batch = one()
    (replay,) = Story().until_replay(batch).found(Replay)
    assert replay.evidence == batch.evidence(0)
    assert replay.peer == peer_of("accused")
    assert replay.excluded == (address("accused"),)
    assert (replay.gpu_class, replay.gpus) == ("A100-SXM4-80GB", 1)
    assert replay.within_s == 3 * 60 + 20


def test_an_equal_result_passes_and_pays() -> None:
    batch = one()
    story = Story().until_replay(batch).replayed(batch, RIGHT)
    assert incomparable(story) == [0]
    record = story.found(PublishRecord)
    story.chain(finalised(batch, BatchState.FINAL, story.at))
    record = story.found(PublishRecord)
    assert record[-1].record.drawn == (0,)
    assert record[-1].record.evidence == (batch.evidence(0),)
    assert story.party.deadline is not None  # only the next notice
    assert not story.forget().wait(story.at + 60).effects


def test_where_no_other_provider_has_such_a_machine_nobody_is_waited_for() -> None:
    batch = one()
    story = Story(providers=("accused", "auditor-a")).until_replay(batch)
    assert len(story.found(Replay)) == 1
    story.replayed(batch, OTHER, "auditor-a")
    assert len(story.found(Replay)) == 1
    assert incomparable(story) == [1]

    alone = Story(providers=("accused",)).until_replay(batch)
    assert not alone.found(Replay)
    assert incomparable(alone.wait(700)) == [None] * len(incomparable(alone))


def test_a_difference_is_repeated_by_a_third() -> None:
    batch = one()
    story = Story().until_replay(batch).replayed(batch, OTHER, "auditor-a")
    second = story.found(Replay)[1]
    assert second.excluded == (address("accused"), address("auditor-a"))
    assert second.against == (OTHER,)
    assert not story.said(OpinionAsked)


@pytest.mark.parametrize(
    ("runs", "end"),
    [
        ((RIGHT,), "match"),
        ((OTHER, OTHER), OTHER),
        ((OTHER, RIGHT, RIGHT), "match"),
        ((OTHER, RIGHT, OTHER), "inconclusive"),  # reproduced once: never accused
        ((OTHER, RIGHT, THIRD), "inconclusive"),
        ((OTHER, RIGHT, None), "match"),
        ((OTHER, THIRD, THIRD), THIRD),
        ((OTHER, THIRD, OTHER), OTHER),
        ((OTHER, THIRD, RIGHT), "inconclusive"),
        ((OTHER, THIRD, FOURTH), "inconclusive"),
        ((OTHER, THIRD, None), "inconclusive"),
        ((OTHER, None), "inconclusive"),
    ],
)
def test_what_re_executions_say_together(
    runs: Sequence[ResultContent | None], end: str | ResultContent
) -> None:
    """None: three auditors failed. A content: what the other verifier is asked about."""
    batch = one()
    story = Story(providers=(*PROVIDERS, "d", "e", "f")).until_replay(batch)
    for auditor, content in zip(("auditor-a", "auditor-b", "auditor-c"), runs, strict=False):
        is_tie = auditor == "auditor-c"
        for _ in range(1 if content or is_tie else 3):
            story.replayed(batch, content, auditor).wait(story.at + 1)
    asked = [message.replayed for message in story.said(OpinionAsked)]
    if isinstance(end, ResultContent):
        assert asked[0] == end
        assert not story.endings
    else:
        assert not asked
        assert incomparable(story) == [0 if end == "match" else 1]


def test_what_the_accused_ran_itself_does_not_count() -> None:
    batch = one()
    story = Story().until_replay(batch).replayed(batch, RIGHT, "accused")
    assert not story.endings
    assert len(story.wait(story.at + 1).found(Replay)) == 2


def test_the_same_auditor_twice_does_not_count() -> None:
    batch = one()
    story = Story().until_replay(batch).replayed(batch, OTHER, "auditor-a")
    story.replayed(batch, OTHER, "auditor-a")
    assert not story.said(OpinionAsked)


def test_an_incomparable_result_convicts_nobody() -> None:
    batch = one()
    story = Story().until_replay(batch).replayed(batch, OTHER, compared=())
    assert incomparable(story) == [1]


def test_an_auditor_that_fails_is_replaced_twice() -> None:
    batch = one()
    story = Story().until_replay(batch)
    for _ in range(2):
        story.replayed(batch, None).wait(story.at + 1)
    assert len(story.found(Replay)) == 3
    story.replayed(batch, RIGHT, "auditor-c")
    assert incomparable(story) == [0]


def test_a_re_execution_that_never_ends_is_given_up_in_time() -> None:
    batch = one()
    story = Story().until_replay(batch).wait(280)
    assert len(story.found(Replay)) == 2  # 200 s each


def test_a_segment_that_nobody_can_repeat_is_paid_unverified_at_the_hard_cap() -> None:
    batch = one()
    story = Story().until_replay(batch)
    for _ in range(3):
        story.replayed(batch, None).wait(story.at + 1)
    assert len(story.found(Replay)) == 3
    assert not story.wait(600).endings
    assert incomparable(story.wait(660))[0] is None


def test_who_was_convicted_of_late_audits_nobody() -> None:
    past, batch = Batch("auditor-a", [Work()]), one()
    story = Story().commit(past)
    story.chain(past.drawn(at=T0 + 60), convicted(past, 0, 60))
    filler = Batch("auditor-b", [Work()])  # so that it is this verifier's turn again
    story.commit(filler).until_replay(batch)
    (replay,) = story.found(Replay)
    assert replay.excluded == (address("accused"), address("auditor-a"))


@pytest.mark.parametrize(
    "work",
    [
        Work(comparison="none"),
        Work(comparison="image"),
        Work(outcome=JobOutcome.KILLED),
        Work(outcome=JobOutcome.TIMED_OUT),
    ],
)
def test_what_cannot_be_compared_is_the_buyers_to_accept(work: Work) -> None:
    batch = Batch("accused", [work])
    story = Story().commit(batch).draw(batch).outline(batch).show(batch)
    assert not story.found(Replay)
    assert incomparable(story) == [0]
