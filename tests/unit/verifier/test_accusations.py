"""A difference before two verifiers, the accusation, and the end of a batch."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.audit import BatchState, VerdictResult
from cloud_gpu.protocol.audit_messages import (
    EvidenceAsked,
    OpinionAsked,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    ContestSegment,
    ConvictSegment,
)
from cloud_gpu.protocol.chain_events import (
    ChainReorganised,
)
from cloud_gpu.protocol.effects import Replay
from cloud_gpu.protocol.job import ResultContent
from tests.unit.verifier.builders import (
    FIRST,
    SECOND,
    T0,
    Batch,
    Work,
    address,
    key,
    node_key,
    verdict_of,
)
from tests.unit.verifier.story import (
    OTHER,
    RIGHT,
    THIRD,
    Story,
    accused,
    contested,
    convicted,
    finalised,
    incomparable,
    one,
)

# The second opinion, and the accusation.


def test_a_confirmed_difference_is_put_before_the_other_verifier() -> None:
    batch = one()
    story = Story().until_opinion(batch)
    (asked,) = story.said(OpinionAsked)
    assert asked.verdict == verdict_of(batch, 0, FIRST, replayed=OTHER)
    assert asked.evidence == batch.evidence(0)
    assert asked.replayed == OTHER
    assert asked.auditors == (address("auditor-a"), address("auditor-b"))
    assert not story.called(AccuseSegment)


def test_the_question_is_repeated_until_answered() -> None:
    batch = one()
    story = Story().until_opinion(batch).wait(90)
    assert len(story.said(OpinionAsked)) >= 3


def test_two_equal_verdicts_accuse() -> None:
    batch = one()
    theirs = verdict_of(batch, 0, SECOND, replayed=OTHER)
    story = Story().until_opinion(batch).opinion(theirs)
    (call,) = story.called(AccuseSegment)
    assert (call.leaf, call.proof) == (batch.leaves[0], batch.tree.proof(0))
    assert (call.first, call.second) == (verdict_of(batch, 0, FIRST, replayed=OTHER), theirs)
    assert not story.endings


@pytest.mark.parametrize(
    ("result", "replayed"),
    [
        (VerdictResult.MATCH, RIGHT),
        (VerdictResult.INCOMPARABLE, OTHER),
        (VerdictResult.MISMATCH, THIRD),
    ],
)
def test_a_verifier_alone_cannot_accuse(result: VerdictResult, replayed: ResultContent) -> None:
    batch = one()
    theirs = verdict_of(batch, 0, SECOND, result, replayed)
    story = Story().until_opinion(batch).opinion(theirs)
    assert not story.called(AccuseSegment)
    assert incomparable(story) == [1]


def test_nobody_else_can_give_the_second_verdict() -> None:
    batch = one()
    story = Story().until_opinion(batch)
    for signer in (FIRST, key("stranger"), node_key("accused")):
        story.opinion(verdict_of(batch, 0, signer, replayed=OTHER))
    assert not story.called(AccuseSegment)
    assert not story.endings


def test_without_an_opinion_in_time_nobody_is_convicted() -> None:
    batch = one()
    story = Story().until_opinion(batch).wait(63 + 239)
    assert not story.endings
    assert incomparable(story.wait(63 + 240))[0] == 1


def accusing(batch: Batch) -> Story:
    story = Story().until_opinion(batch).opinion(verdict_of(batch, 0, SECOND, replayed=OTHER))
    story.at += 1
    return story.chain(accused(batch, 0, story.at, story.at + 10))


def test_a_difference_that_the_hard_cap_overtakes_is_inconclusive_and_not_paid() -> None:
    batch = one()
    story = Story().commit(batch).wait(400).draw(batch).outline(batch).show(batch)
    for auditor in ("auditor-a", "auditor-b"):
        story.replayed(batch, OTHER, auditor)
    assert not story.wait(609).endings
    assert incomparable(story.wait(610)) == [1]


def test_a_difference_that_nobody_repeated_before_the_hard_cap_is_inconclusive() -> None:
    batch = one()
    story = Story().commit(batch).wait(500).draw(batch).outline(batch).show(batch)
    story.replayed(batch, OTHER, "auditor-a")
    assert incomparable(story.wait(610)) == [1]


def test_what_nobody_ran_before_the_hard_cap_is_nobodys_fault() -> None:
    batch = one()
    story = Story().commit(batch).wait(500).draw(batch).outline(batch).show(batch)
    assert not story.wait(659).endings
    assert incomparable(story.wait(660)) == [None]


def test_conviction_waits_for_the_challenge_window() -> None:
    batch = one()
    story = accusing(batch)
    until = story.at + 10
    assert not story.wait(until).called(ConvictSegment)
    (call,) = story.wait(until + 1).called(ConvictSegment)
    assert (call.lease, call.batch_no, call.opening.i) == (batch.lease, 0, 0)
    assert not story.endings


def test_after_a_conviction_the_rest_is_finalised() -> None:
    batch = Batch("accused", [Work(image="a"), Work(number=2, image="b")])
    story = Story().commit(batch).draw(batch).outline(batch).show(batch, 0).show(batch, 1)
    story.replayed(batch, RIGHT, "auditor-a", i=1)
    for auditor in ("auditor-a", "auditor-b"):
        story.replayed(batch, OTHER, auditor, i=0)
    story.opinion(verdict_of(batch, 0, SECOND, replayed=OTHER))
    assert story.called(AccuseSegment)
    story.chain(accused(batch, 0, story.at, story.at + 10)).wait(story.at + 11)
    assert not story.endings
    story.chain(convicted(batch, 0, story.at))
    assert incomparable(story) == [0]


def test_a_contested_accusation_is_inconclusive() -> None:
    batch = one()
    story = accusing(batch)
    story.chain(contested(batch, 0, story.at))
    assert incomparable(story) == [1]


def test_an_accusation_that_ones_own_run_contradicts_is_contested() -> None:
    """Somebody holds this verifier's key, or the contract was given what it never signed."""
    batch = Batch("accused", [Work(image="a"), Work(number=2, image="b")])
    story = Story().commit(batch).draw(batch).outline(batch).show(batch, 0)
    story.replayed(batch, RIGHT, i=0)
    story.chain(accused(batch, 0, story.at, story.at + 10))
    (call,) = story.called(ContestSegment)
    assert call.verdict == verdict_of(batch, 0, FIRST, VerdictResult.MATCH, RIGHT)
    assert not story.wait(story.at + 11).called(ConvictSegment)
    # Who was not there to contest it in time cannot keep the batch from its end.
    assert not story.wait(659).called(ConvictSegment)
    assert story.wait(660).called(ConvictSegment)


# The end, restarts and reorganisations.


def test_past_the_hard_cap_it_ends_without_results() -> None:
    batch = one()
    story = Story().commit(batch).wait(660)
    assert incomparable(story) == [None]


def test_the_other_verifier_ends_it_too() -> None:
    batch = one()
    assert incomparable(Story(SECOND).commit(batch).wait(660)) == [None]


def test_a_restarted_verifier_acts_on_nothing_that_is_history() -> None:
    batch = one()
    story = Story(history_until=T0 + 500)
    story.commit(batch).wait(400)
    assert not story.effects
    story.at = 450
    story.chain(finalised(batch, BatchState.FINAL, 450)).wait(501)
    assert not story.draws


def test_a_restarted_verifier_sees_its_accusation_through() -> None:
    batch = one()
    story = Story(history_until=T0 + 80)
    story.commit(batch).draw(batch).chain(accused(batch, 0, 70, 78)).wait(80)
    story.outline(batch).wait(81)
    assert story.called(ConvictSegment)
    assert not story.found(Replay)


def test_an_accusation_of_a_verifier_that_died_is_seen_through_though_the_node_vanished() -> None:
    batch = one()
    story = Story(SECOND).commit(batch, at=60).draw(batch)
    story.chain(accused(batch, 0, 70, 80)).wait(359)
    assert not story.called(ConvictSegment)
    (call, *_) = story.wait(360).called(ConvictSegment)
    assert (call.lease, call.batch_no, call.opening.i) == (batch.lease, 0, 0)
    story.chain(convicted(batch, 0, 361)).wait(420)
    assert incomparable(story)[0] == 0


def test_a_convicted_segment_is_not_charged_twice_to_a_silent_node() -> None:
    batch = Batch("accused", [Work(), Work(number=2)])
    story = Story().commit(batch).draw(batch).chain(accused(batch, 1, 70, 78))
    story.at = 79
    story.chain(convicted(batch, 1, 79)).wait(120)
    story.endure(batch)
    assert incomparable(story)[0] == 0b01


def test_a_batch_in_a_replaced_block_is_forgotten() -> None:
    batch = one()
    story = Story().commit(batch, at=60)
    story.tell(ChainReorganised(block=59)).forget().wait(70)
    assert not story.draws


def test_another_seed_after_a_reorganisation_is_another_draw() -> None:
    works = [Work(number=i + 1, used=30) for i in range(60)]
    batch = Batch("accused", works)
    story = Story().commit(batch).draw(batch, "one").outline(batch)
    before = {message.request.body.i for message in story.said(EvidenceAsked)}
    story.tell(ChainReorganised(block=63)).forget()
    story.chain(batch.drawn("another", at=T0 + story.at)).outline(batch)
    after = {message.request.body.i for message in story.said(EvidenceAsked)}
    assert before == after == set(range(60))  # a new provider: all of them
    assert not story.endings


def test_trust_lowers_the_number_of_audits() -> None:
    story = Story()
    for seq in range(1, 31):
        past = Batch("accused", [Work()], seq=seq)
        story.commit(past, at=60).chain(finalised(past, BatchState.FINAL, 60)).forget()
    batch = Batch("accused", [Work(number=i + 1) for i in range(10)], seq=99)
    story.commit(batch).draw(batch).outline(batch)
    asked = {message.request.body.i for message in story.said(EvidenceAsked)}
    assert 0 in asked  # no record says that it passed with this image
    assert len(asked) <= 2  # a new provider's would be ten


# After an end without results.


def test_what_two_verifiers_agreed_on_is_accused_though_the_hard_cap_was_faster() -> None:
    batch = one()
    story = Story().until_opinion(batch).opinion(verdict_of(batch, 0, SECOND, replayed=OTHER))
    assert story.called(AccuseSegment)
    story.at = 661
    story.chain(finalised(batch, BatchState.FINAL_UNVERIFIED, 661)).forget().wait(800)
    assert story.called(AccuseSegment)
    story.chain(accused(batch, 0, 800, 810)).forget().wait(811)
    (convict,) = story.called(ConvictSegment)
    assert convict.opening == batch.outline.openings([0])[0]
    story.chain(convicted(batch, 0, 811)).forget().wait(1_000)
    assert not story.effects


def test_a_late_accusation_ends_with_its_window() -> None:
    batch = one()
    story = Story().until_opinion(batch).opinion(verdict_of(batch, 0, SECOND, replayed=OTHER))
    story.at = 661
    story.chain(finalised(batch, BatchState.FINAL_UNVERIFIED, 661))
    story.wait(1_261).forget().wait(2_000)
    assert not story.called(AccuseSegment)
