"""What a buyer's side may say, and what its jobs return."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud_gpu.protocol.effects import (
    KillJob,
    ReadOutput,
    Send,
    StartJob,
)
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import (
    ContainerReady,
    JobStarted,
    OutputRead,
    SendFailed,
)
from cloud_gpu.protocol.identity import NoDelegates, PeerId
from cloud_gpu.protocol.job import JobOutcome, JobState
from cloud_gpu.protocol.messages import (
    CloseAsked,
    Declined,
    JobAsked,
    JobFinished,
    JobKilled,
    JobPrinted,
    JobReported,
    JobSubmitted,
    Message,
    ReadyOffered,
)
from cloud_gpu.protocol.signing import Statement, verify_statement
from cloud_gpu.protocol.units import GpuSeconds
from cloud_gpu.protocol.values import Signature
from tests.unit.node.builders import (
    BUYER_PEER,
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
    spec,
    submit,
    voucher,
)

# Jobs.


def test_a_job_is_started_once_and_its_signed_result_pushed() -> None:
    story = Story().begin()
    story.say(submit(spec(), story.at))
    assert story.found(StartJob) == [StartJob(spec=spec())]
    story.say(submit(spec(), story.at))
    assert not story.found(StartJob)
    story.tell(JobStarted(lease=LEASE, job=spec().id))
    story.say(JobAsked(lease=LEASE, job=spec().id, stdout_from=7))
    assert story.said(JobReported)[0].state is JobState.RUNNING
    assert story.found(ReadOutput)[0].stdout_from == 7
    story.tell(exited(spec(), story.now, story.now + 1_500))
    (finished,) = story.said(JobFinished)
    body = finished.result.body
    assert (body.outcome, body.used) == (JobOutcome.EXITED, GpuSeconds(4)), "2 GPUs, begun seconds"
    assert (
        verify_statement(
            finished.result,
            DOMAIN,
            account=NODE.address,
            keys=NoDelegates(),
            role=None,
            at=story.at,
        )
        is None
    )
    story.say(JobAsked(lease=LEASE, job=spec().id))
    assert story.said(JobFinished) == [finished]
    story.say(submit(spec(), story.at))
    assert story.said(JobFinished) == [finished]


def test_output_goes_to_the_buyer_until_it_falls_silent() -> None:
    story = Story().begin()
    read = OutputRead(lease=LEASE, job=spec().id, stream="stdout", offset=3, chunk=b"abc")
    story.tell(read)
    (printed,) = story.said(JobPrinted)
    assert (printed.offset, printed.chunk) == (3, b"abc")
    story.tell(SendFailed(peer=BUYER_PEER, message=printed, detail="gone"))
    story.tell(read)
    assert not story.said(JobPrinted)
    story.say(open_session(story.at))
    story.tell(read)
    assert story.said(JobPrinted)


def test_a_kill_reaches_the_runtime_and_a_finished_job_is_reported() -> None:
    story = Story().begin()
    story.say(submit(spec(), story.at))
    story.say(JobKilled(lease=LEASE, job=spec().id))
    assert story.found(KillJob) == [KillJob(lease=LEASE, job=spec().id)]
    story.tell(exited(spec(), 0, 1, outcome=JobOutcome.KILLED))
    story.say(JobKilled(lease=LEASE, job=spec().id))
    assert story.said(JobFinished)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda at: submit(spec(), at, signer=key("thief")), RejectReason.KEY_NOT_AUTHORISED),
        (lambda at: submit(spec(), at - 10_000), RejectReason.EXPIRED),
        (lambda at: submit(spec(egress=("example.org",)), at), RejectReason.RUNTIME_UNAVAILABLE),
        (lambda at: submit(spec(0), at), RejectReason.STALE_SEQUENCE),
        (lambda _: unhashable(), RejectReason.MALFORMED),
        (lambda _: JobAsked(lease=LEASE, job=digest("none")), RejectReason.UNKNOWN_JOB),
    ],
)
def test_a_wrong_job_is_declined(make: Callable[[int], Message], reason: RejectReason) -> None:
    story = Story().begin()
    story.say(make(story.at))
    assert story.said(Declined)[0].rejection.reason is reason
    assert not story.found(StartJob)


def unhashable() -> JobSubmitted:
    """JSON carries such a seed; RFC 8785 does not, so that the job has no id."""
    body = spec(seed=2**60)
    return JobSubmitted(
        spec=Statement(body=body, nonce=1, expiry=T0 + 600, signature=Signature(bytes(65)))
    )


def test_one_number_is_one_job() -> None:
    story = Story().begin()
    story.say(submit(spec(), story.at))
    story.say(submit(spec(command=("false",)), story.at))
    assert story.said(Declined)[0].rejection.reason is RejectReason.STALE_SEQUENCE


# Who may speak.


def test_a_stranger_is_declined_whatever_it_says() -> None:
    story = Story().begin()
    for message in (voucher(3), accept(T0), submit(spec(), story.at), CloseAsked(lease=LEASE)):
        story.say(message, peer=PeerId("stranger"))
        assert story.said(Declined)[0].rejection.reason is RejectReason.NOT_THE_BUYER
        assert {send.peer for send in story.found(Send)} == {PeerId("stranger")}


@pytest.mark.parametrize(
    "message",
    [
        open_session(T0, signer=key("thief")),
        open_session(T0, peer=PeerId("another")),
        open_session(T0, node=PeerId("another-node")),
        open_session(T0 - 10_000),
    ],
)
def test_a_session_needs_the_buyers_signed_word_for_these_two_peers(message: object) -> None:
    story = Story().start().open()
    story.tell(ContainerReady(lease=LEASE, report=report()))
    story.say(message)  # type: ignore[arg-type]
    assert story.said(Declined)
    assert not story.said(ReadyOffered)


def test_only_the_buyers_peer_may_push_inputs_and_fetch_outputs() -> None:
    story = Story().begin()
    output = "a" * 64
    job = spec()
    story.say(submit(job, story.at))
    from cloud_gpu.protocol.job import FileRef

    files = (FileRef(path="out", sha256=output, size=1),)
    story.tell(exited(job, 0, 1, outputs=files))
    provider = story.provider
    assert provider.may_push(BUYER_PEER, 10**6)
    assert not provider.may_push(BUYER_PEER, 10**13), "more than the machine's disk"
    assert not provider.may_push(PeerId("stranger"), 1)
    assert provider.may_fetch(BUYER_PEER, output)
    assert not provider.may_fetch(BUYER_PEER, "b" * 64)
    assert not provider.may_fetch(PeerId("stranger"), output)
