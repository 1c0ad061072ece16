"""A lease's life on the node, from the opening to the end: a fact in, effects out."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.calls import (
    Begin,
    CloseBatch,
    ExpireLease,
    PostReady,
    RefundUnstarted,
    SettleBatch,
)
from cloud_gpu.protocol.chain_events import (
    LeaseOpened,
    LeaseReady,
    LeaseStarted,
)
from cloud_gpu.protocol.effects import (
    KillJob,
    PauseContainer,
    PrepareContainer,
    RemoveContainer,
    ResumeContainer,
    StartJob,
    Transact,
)
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import (
    ContainerFailed,
    ContainerReady,
)
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.job import JobOutcome, JobState
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.messages import (
    CloseAsked,
    Declined,
    FinalOffered,
    JobAsked,
    JobFinished,
    JobReported,
    LeaseEndedHere,
    Preparing,
    ReadyOffered,
    VoucherAcknowledged,
)
from cloud_gpu.protocol.signing import Verified, verify
from cloud_gpu.protocol.units import TokenAmount
from tests.unit.node.builders import (
    CAP,
    CLAIM,
    DOMAIN,
    DURATION,
    INTERVAL,
    LEASE,
    NODE,
    START,
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
    voucher_of,
)

# From funded to begun.


def test_an_opened_lease_is_prepared() -> None:
    story = Story().start().open()
    assert story.found(PrepareContainer) == [PrepareContainer(lease=LEASE)]


def test_a_lease_of_another_provider_is_nothing_to_us() -> None:
    story = Story().start()
    other = LeaseKey(provider=key("other").address, index=0, seq=1)
    story.mine(
        LeaseOpened(terms=terms(other), bid=digest("b"), at=story.at, transaction=digest("t"))
    )
    assert not story.found(PrepareContainer)
    assert story.provider.adverts


def test_a_session_is_told_to_wait_until_ready() -> None:
    story = Story().start()
    story.say(open_session(story.at))
    assert story.said(Preparing), "the buyer may see the opening before we do"
    story.open()
    story.say(open_session(story.at))
    assert story.said(Preparing)
    story.tell(ContainerReady(lease=LEASE, report=report()))
    (offered,) = story.said(ReadyOffered)
    assert offered.ready.payload.runtime_hash == report().digest
    checked = verify(offered.ready, DOMAIN, account=NODE.address, keys=NoDelegates(), at=story.at)
    assert isinstance(checked, Verified)
    story.say(open_session(story.at))
    assert story.said(ReadyOffered) == [offered], "the second answer equals the first"


def test_an_accept_is_begun_at_once() -> None:
    story = Story().prepare()
    story.say(accept(story.at))
    (begin,) = story.calls(Begin)
    assert begin.accept == accept(story.at).accept
    assert story.said(VoucherAcknowledged)
    story.say(accept(story.at))
    assert not story.calls(Begin), "it is on its way"


def test_begin_is_repeated_until_it_is_on_chain() -> None:
    story = Story().accept()
    story.wait(16)
    assert story.calls(Begin)
    story.mine(LeaseStarted(lease=LEASE, started_at=T0, at=story.at))
    story.say(voucher(10))
    story.wait(120)
    assert not story.calls(Begin)


def test_work_waits_for_the_first_voucher() -> None:
    story = Story().prepare()
    story.say(accept(story.at))
    story.say(submit(spec(), story.at))
    assert story.said(JobReported) == [
        JobReported(lease=LEASE, job=spec().id, state=JobState.RECEIVED)
    ]
    assert not story.found(StartJob)
    story.say(voucher(1))
    assert story.found(StartJob) == [StartJob(spec=spec())]


def test_work_goes_on_three_minutes_unconfirmed_and_pauses_then() -> None:
    story = Story().accept()
    story.say(voucher(10))
    story.wait(179)
    assert not story.found(PauseContainer)
    story.wait(2)
    assert story.found(PauseContainer)
    story.mine(LeaseStarted(lease=LEASE, started_at=T0, at=story.at))
    assert story.found(ResumeContainer)


def test_without_an_accept_the_ready_is_posted_before_the_deadline() -> None:
    story = Story().prepare()
    story.wait(START - 121)
    assert not story.calls(PostReady)
    story.wait(2)
    assert story.calls(PostReady)
    story.mine(LeaseReady(lease=LEASE, at=story.at))
    assert not [t for t in story.wait(100) if isinstance(t, Transact)]


def test_a_lease_that_did_not_begin_is_refunded_after_the_deadline() -> None:
    story = Story().prepare()
    story.wait(START + 3)
    assert story.calls(RefundUnstarted) == [RefundUnstarted(lease=LEASE)]
    assert story.found(RemoveContainer)
    (ended,) = story.said(LeaseEndedHere)
    assert ended.reason is LeaseEndReason.RELEASED_UNSTARTED
    story.say(accept(story.at))
    assert story.said(Declined)


def test_a_container_that_failed_is_prepared_again_and_the_buyer_told() -> None:
    story = Story().start().open()
    story.say(open_session(story.at))
    story.tell(ContainerFailed(lease=LEASE, detail="disk full"))
    (waiting,) = story.said(Preparing)
    assert "disk full" in waiting.detail
    story.wait(6)
    assert story.found(PrepareContainer)


# Vouchers.


def test_a_voucher_late_by_one_interval_pauses_work_and_payment_resumes_it() -> None:
    story = Story().begin()
    story.wait(2 * INTERVAL - 1)
    assert not story.found(PauseContainer), "one interval is paid, the next is under way"
    story.wait(1)
    assert story.found(PauseContainer) == [PauseContainer(lease=LEASE)]
    (told,) = story.said(VoucherAcknowledged)
    assert told.paused
    story.say(voucher(3))
    assert story.found(ResumeContainer) == [ResumeContainer(lease=LEASE)]
    assert story.said(VoucherAcknowledged)[-1].paused is False


def test_three_missed_vouchers_end_the_work_and_what_was_earned_is_redeemed() -> None:
    story = Story().begin()
    story.say(submit(spec(), story.at))
    story.wait(4 * INTERVAL)
    assert story.found(KillJob) == [KillJob(lease=LEASE, job=spec().id)]
    (ended,) = story.said(LeaseEndedHere)
    assert ended.reason is LeaseEndReason.NO_VOUCHERS
    assert not story.found(RemoveContainer), "the killed job's result is still to come"
    story.tell(exited(spec(), 0, 1, outcome=JobOutcome.KILLED))
    assert story.found(RemoveContainer)
    assert story.said(JobFinished)
    story.say(voucher(9))
    assert story.said(VoucherAcknowledged)
    story.say(submit(spec(2), story.at))
    assert story.said(Declined)


def test_what_a_lease_without_vouchers_earned_is_settled() -> None:
    story = Story().begin()
    story.wait(4 * INTERVAL + 1)
    (settle,) = story.calls(SettleBatch)
    assert settle.vouchers == (voucher(1).voucher,)


def test_vouchers_one_interval_ahead_are_never_paused() -> None:
    story = Story().begin()
    for interval in range(2, DURATION // INTERVAL):
        story.wait(INTERVAL)
        assert not story.found(PauseContainer)
        story.say(voucher(interval))
        assert story.said(VoucherAcknowledged)[0].amount == voucher(interval).voucher.payload.amount


def test_the_newest_voucher_replaces_the_rest_and_an_older_one_changes_nothing() -> None:
    story = Story().begin()
    story.say(voucher(5))
    story.say(voucher(3))
    assert story.said(VoucherAcknowledged)[0].amount == TokenAmount(300_000)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (voucher_of(CAP + TokenAmount(1)), RejectReason.CAP_OUT_OF_RANGE),
        (voucher(2, signer=key("thief")), RejectReason.KEY_NOT_AUTHORISED),
    ],
)
def test_a_wrong_voucher_is_declined(message: object, reason: RejectReason) -> None:
    story = Story().begin()
    story.say(message)  # type: ignore[arg-type]
    assert story.said(Declined)[0].rejection.reason is reason
    story.say(voucher(1))
    assert story.said(VoucherAcknowledged)[0].amount == TokenAmount(60_000)


# Ends.


def test_a_close_is_answered_by_the_final_at_the_newest_voucher_and_work_ends() -> None:
    story = Story().begin()
    story.say(voucher(4))
    story.say(submit(spec(), story.at))
    story.say(CloseAsked(lease=LEASE))
    (offered,) = story.said(FinalOffered)
    assert offered.final.payload.amount == TokenAmount(240_000)
    assert story.found(KillJob)
    story.say(CloseAsked(lease=LEASE))
    assert story.said(FinalOffered) == [offered]
    assert not story.calls(CloseBatch), "before its end only the buyer may close it"


def test_a_stopped_lease_is_closed_with_the_best_voucher() -> None:
    story = Story().begin()
    story.wait(90)
    story.stop()
    (close,) = story.calls(CloseBatch)
    assert close.closings[0].voucher == voucher(1).voucher
    assert close.closings[0].final.payload.amount == TokenAmount(60_000)
    assert story.found(RemoveContainer)
    story.wait(20)
    assert story.calls(CloseBatch), "until it is on chain"
    story.close(LeaseEndReason.STOPPED)
    assert not [t for t in story.wait(3_600) if isinstance(t, Transact)]


def test_at_the_end_of_time_the_lease_is_closed() -> None:
    story = Story().begin()
    story.say(voucher_of(CAP))
    story.wait(DURATION - 1)
    assert not story.calls(CloseBatch)
    story.wait(4)
    assert story.calls(CloseBatch)
    assert story.said(LeaseEndedHere)[0].reason is LeaseEndReason.END_OF_TIME


def test_a_lease_that_nobody_paid_for_expires_after_the_claim_window() -> None:
    story = Story().prepare()
    story.say(accept(story.at))
    story.mine(LeaseStarted(lease=LEASE, started_at=T0, at=story.at))
    story.wait(DURATION + CLAIM - 5)
    assert not story.calls(ExpireLease)
    story.wait(10)
    assert story.calls(ExpireLease) == [ExpireLease(lease=LEASE)]


def test_results_can_be_asked_for_until_claims_end() -> None:
    story = Story().begin()
    story.say(submit(spec(), story.at))
    story.tell(exited(spec(), 0, 1))
    story.close()
    story.wait(CLAIM - 1)
    story.say(JobAsked(lease=LEASE, job=spec().id))
    assert story.said(JobFinished)
    story.wait(2)
    story.say(JobAsked(lease=LEASE, job=spec().id))
    assert story.said(Declined)[0].rejection.reason is RejectReason.UNKNOWN_LEASE
