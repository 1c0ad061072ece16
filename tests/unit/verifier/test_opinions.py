"""The second verifier forms its own view of what the first one sees, and contests what is wrong."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.audit import VerdictResult
from cloud_gpu.protocol.audit_messages import (
    EvidenceAsked,
    EvidenceGiven,
    OpinionAsked,
    OpinionGiven,
)
from cloud_gpu.protocol.calls import AccuseSegment, ContestSegment, ConvictSegment
from cloud_gpu.protocol.effects import Connect, Replay
from cloud_gpu.protocol.job import JobOutcome, ResultContent
from cloud_gpu.protocol.values import ZERO_DIGEST
from tests.unit.verifier.builders import (
    FIRST,
    SECOND,
    Batch,
    Work,
    address,
    content_of,
    digest,
    file,
    key,
    peer_of,
    verdict_of,
)
from tests.unit.verifier.story import OTHER, RIGHT, THIRD, Story, accused, bytes_of, question


def one() -> Batch:
    return Batch("accused", [Work()])


def asked(batch: Batch) -> Story:
    """The second verifier was asked about a drawn batch of the first one's turn."""
    story = Story(SECOND).commit(batch).draw(batch)
    return story.say(question(batch), peer_of("other"))


def test_it_asks_the_node_itself_before_it_repeats_anything() -> None:
    batch = one()
    story = asked(batch)
    (request,) = [message.request.body for message in story.said(EvidenceAsked)]
    assert (request.verifier, request.i) == (SECOND.address, 0)
    assert not story.found(Replay)
    (replay,) = story.show(batch).found(Replay)
    assert replay.against == (OTHER,)
    assert replay.also_peer == peer_of("other")


def test_a_node_that_falls_silent_cannot_escape() -> None:
    batch = one()
    story = asked(batch).wait(92)
    assert not story.found(Replay)
    (replay,) = story.wait(95).found(Replay)
    assert replay.evidence == batch.evidence(0)
    assert (replay.peer, replay.also_peer) == (peer_of("accused"), peer_of("other"))


def test_the_first_ones_auditors_are_left_out_while_others_are_left() -> None:
    batch = one()
    (replay,) = asked(batch).show(batch).found(Replay)
    assert replay.excluded == (address("accused"), address("auditor-a"))
    story = Story(SECOND, providers=("accused", "auditor-a", "auditor-b")).commit(batch).draw(batch)
    story.say(question(batch), peer_of("other")).show(batch)
    assert story.found(Replay)[0].excluded == (address("accused"),)


@pytest.mark.parametrize(
    ("content", "result", "said"),
    [
        (OTHER, VerdictResult.MISMATCH, OTHER),
        (RIGHT, VerdictResult.MATCH, RIGHT),
        (THIRD, VerdictResult.INCOMPARABLE, THIRD),
    ],
)
def test_it_says_what_its_own_run_gave(
    content: ResultContent, result: VerdictResult, said: ResultContent
) -> None:
    batch = one()
    story = asked(batch).show(batch).replayed(batch, content, "auditor-b")
    (given,) = story.said(OpinionGiven)
    assert given.verdict == verdict_of(batch, 0, SECOND, result, said)
    assert not story.called(AccuseSegment)


def test_a_mismatch_within_tolerance_is_said_in_the_first_ones_words() -> None:
    """Two honest runs of a tolerant class differ in their last bits; the verdicts must not."""
    batch = one()
    close = content_of(file("out/a.txt", b"other, almost"))
    story = asked(batch).show(batch)
    compared = (
        bytes_of(close, RIGHT),
        replace(bytes_of(close, OTHER), verdict=VerdictResult.MATCH),
    )
    story.replayed(batch, close, "auditor-b", compared=compared)
    (given,) = story.said(OpinionGiven)
    assert given.verdict == verdict_of(batch, 0, SECOND, replayed=OTHER)


def test_a_question_asked_again_has_the_same_answer_and_no_second_run() -> None:
    batch = one()
    story = asked(batch).show(batch).replayed(batch, OTHER, "auditor-b")
    story.say(question(batch), peer_of("other")).say(question(batch), peer_of("other"))
    answers = story.said(OpinionGiven)
    assert len(answers) == 3
    assert len(set(map(repr, answers))) == 1
    assert len(story.found(Replay)) == 1


def test_without_an_auditor_it_cannot_tell() -> None:
    batch = one()
    story = asked(batch).show(batch)
    for _ in range(3):
        story.replayed(batch, None).wait(story.at + 1)
    (given,) = story.said(OpinionGiven)
    assert given.verdict.payload.result is VerdictResult.INCOMPARABLE
    assert given.verdict.payload.result_digest == ZERO_DIGEST


def test_the_node_may_show_nothing_that_does_not_prove_itself() -> None:
    batch = one()
    evidence = batch.evidence(0)
    forged = replace(evidence, leaf=replace(evidence.leaf, salt=ZERO_DIGEST))
    story = asked(batch).say(EvidenceGiven(evidence=forged))
    assert not story.found(Replay)


def altered(batch: Batch, what: str) -> OpinionAsked:
    """A question that must not cost a re-execution."""
    honest = question(batch)
    evidence = batch.evidence(0)
    return {
        "a stranger's": question(batch, signer=key("stranger")),
        "one's own": question(batch, signer=SECOND),
        "a match": replace(honest, verdict=verdict_of(batch, 0, FIRST, VerdictResult.MATCH, OTHER)),
        "another replay": replace(honest, replayed=THIRD),
        "another segment": replace(honest, verdict=verdict_of(batch, 1, FIRST, replayed=OTHER)),
        "a forged leaf": replace(
            honest, evidence=replace(evidence, leaf=replace(evidence.leaf, salt=digest("x")))
        ),
        "a forged proof": replace(honest, evidence=replace(evidence, proof=())),
    }[what]


@pytest.mark.parametrize(
    "what",
    [
        "a stranger's",
        "one's own",
        "a match",
        "another replay",
        "another segment",
        "a forged leaf",
        "a forged proof",
    ],
)
def test_a_question_that_does_not_prove_itself_costs_nothing(what: str) -> None:
    batch = Batch("accused", [Work(), Work(number=2)])
    story = Story(SECOND).commit(batch).draw(batch)
    story.say(altered(batch, what), peer_of("other")).wait(200)
    assert not story.found(Replay)
    assert not story.said(EvidenceAsked)


def test_a_question_before_the_draw_costs_nothing() -> None:
    batch = one()
    story = Story(SECOND).commit(batch).say(question(batch), peer_of("other")).wait(200)
    assert not story.found(Connect)


def test_a_question_about_an_unknown_batch_costs_nothing() -> None:
    story = Story(SECOND).say(question(one()), peer_of("other"))
    assert not story.found(Connect)


def test_a_class_that_nobody_compares_is_not_repeated() -> None:
    for work in (Work(comparison="none"), Work(outcome=JobOutcome.KILLED)):
        batch = Batch("accused", [work])
        story = Story(SECOND).commit(batch).draw(batch)
        story.say(question(batch), peer_of("other")).show(batch)
        assert not story.found(Replay)
        assert story.said(OpinionGiven)[0].verdict.payload.result is VerdictResult.INCOMPARABLE


# Accusations.


def test_an_accusation_it_was_never_asked_about_is_looked_into_and_contested() -> None:
    batch = one()
    story = Story(SECOND).commit(batch).draw(batch)
    story.chain(accused(batch, 0, 70, 200)).show(batch).replayed(batch, RIGHT, "auditor-b")
    (call,) = story.called(ContestSegment)
    assert call.verdict == verdict_of(batch, 0, SECOND, VerdictResult.MATCH, RIGHT)
    assert not story.said(OpinionGiven)
    assert not story.wait(201).called(ConvictSegment)


def test_an_accusation_that_is_right_is_left_alone() -> None:
    batch = one()
    story = Story(SECOND).commit(batch).draw(batch)
    story.chain(accused(batch, 0, 70, 200)).show(batch).replayed(batch, OTHER, "auditor-b")
    assert not story.wait(190).called(ContestSegment)


def test_it_contests_although_it_was_asked_when_its_run_says_otherwise() -> None:
    batch = one()
    story = asked(batch).show(batch).replayed(batch, RIGHT, "auditor-b")
    story.chain(accused(batch, 0, story.at, story.at + 100))
    assert story.called(ContestSegment)
