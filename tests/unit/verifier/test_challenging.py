"""What a node does not show is asked for on chain; draws and ends go out in groups."""

from __future__ import annotations

from cloud_gpu.protocol.calls import (
    ChallengeLeaf,
    ConvictSilence,
    FinaliseBatches,
    RevealPreimages,
)
from cloud_gpu.protocol.chain_events import TransactionFailed
from tests.unit.verifier.builders import Batch, Work
from tests.unit.verifier.story import (
    RIGHT,
    Story,
    challenged,
    incomparable,
    one,
    opened_leaf,
    silenced,
)


def test_a_node_that_never_outlines_its_batch_is_paid_nothing_of_it() -> None:
    batch = Batch("accused", [Work(number=i + 1) for i in range(4)])
    story = Story().commit(batch).draw(batch).wait(92)
    assert not story.called(ChallengeLeaf)
    asked = story.wait(95).called(ChallengeLeaf)
    assert {call.j for call in asked} == set(range(asked[0].m))
    assert not story.endings  # the chain has not answered yet
    points = range(asked[0].m)
    story.chain(*(challenged(batch, j, asked[0].m, 95, 115) for j in points))
    assert not story.wait(115).called(ConvictSilence)
    assert {call.j for call in story.wait(117).called(ConvictSilence)} == set(points)
    assert not story.endings
    story.chain(*(silenced(batch, j, 117) for j in points))
    assert incomparable(story)[0] == 0b1111


def test_a_node_that_answers_on_chain_but_outlines_nothing_is_not_paid_either() -> None:
    batch = Batch("accused", [Work(number=i + 1) for i in range(4)])
    story = Story().commit(batch).draw(batch).wait(95)
    m = story.called(ChallengeLeaf)[0].m
    story.chain(*(challenged(batch, j, m, 95, 115) for j in range(m)))
    story.chain(*(opened_leaf(batch, j, 96) for j in range(m)))
    assert not story.called(ConvictSilence)
    assert incomparable(story)[0] == 0b1111


def test_an_outline_that_comes_after_the_challenge_is_audited_as_ever() -> None:
    batch = one()
    story = Story().commit(batch).draw(batch).wait(95)
    (asked, *_) = story.called(ChallengeLeaf)
    assert (asked.j, asked.m) == (0, 1)
    story.chain(challenged(batch, 0, 1, 95, 115)).outline(batch).wait(97)
    story.chain(opened_leaf(batch, 0, 97)).show(batch).replayed(batch, RIGHT)
    assert incomparable(story) == [0]


def test_a_segment_that_stayed_silent_on_chain_is_not_charged_again() -> None:
    batch = one()
    story = Story().commit(batch).draw(batch).outline(batch).wait(120)
    (asked, *_) = story.called(ChallengeLeaf)
    story.chain(challenged(batch, asked.j, asked.m, 120, 140)).wait(141)
    assert story.called(ConvictSilence)
    story.chain(silenced(batch, asked.j, 141))
    assert incomparable(story) == [0]


# Groups.


def test_draws_that_are_due_together_go_out_together_and_one_that_failed_alone() -> None:
    story = Story()
    batches = [Batch("accused", [Work()], seq=seq) for seq in range(1, 8)]
    for batch in batches:
        story.commit(batch, at=60)
    story.wait(62)
    (group,) = story.called(RevealPreimages)
    assert [draw.lease.seq for draw in group.draws] == [1, 3, 5, 7]
    story.forget().chain(TransactionFailed(call=group, error="out of gas")).wait(75)
    assert [len(call.draws) for call in story.called(RevealPreimages)] == [1, 1, 1, 1]


def test_a_group_has_ten_batches_at_most() -> None:
    story = Story()
    for seq in range(1, 24):
        story.commit(Batch("accused", [Work()], seq=seq), at=60)
    story.wait(62)
    assert [len(call.draws) for call in story.called(RevealPreimages)] == [10, 2]


def test_ends_that_are_due_together_go_out_together() -> None:
    story = Story()
    for seq in range(1, 5):
        story.commit(Batch("accused", [Work()], seq=seq), at=60)
    story.wait(660)
    (group, *_) = story.called(FinaliseBatches)
    assert [ending.lease.seq for ending in group.endings] == [1, 2, 3, 4]
