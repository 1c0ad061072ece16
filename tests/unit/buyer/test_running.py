"""A running lease: vouchers, jobs, a node that falls silent."""

import pytest

from cloud_gpu.protocol import messages as said
from cloud_gpu.protocol.calls import StopLease
from cloud_gpu.protocol.chain_events import ChainAdvanced
from cloud_gpu.protocol.effects import PushInputs
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import InputsNotPushed, InputsPushed, JobWanted, KillWanted
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import JobState
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.notices import JobDone, JobOutput, JobRefused, LeaseFailing
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.units import TokenAmount
from tests.unit.buyer.builders import (
    CAP,
    DURATION,
    LEASE,
    NODE,
    RHYTHM,
    STRANGER,
    T0,
    Bench,
    job,
    refusal,
)

INTERVAL_S = RHYTHM.voucher_interval_s
SILENCE_S = RHYTHM.node_silence // 1000


def kinds(bench: Bench) -> list[str]:
    return [type(effect).__name__ for effect in bench.effects]


# Vouchers.


def test_each_half_interval_the_next_whole_one_is_promised() -> None:
    bench = Bench().running()
    amounts = []
    for _ in range(4):
        bench.pass_s(INTERVAL_S / 2)
        amounts += [m.voucher.payload.amount for m in bench.sent(said.VoucherGiven)]
        bench.acknowledge()
    halves = [n * INTERVAL_S // 2 for n in (1, 2, 3, 4)]
    assert amounts == [accrued(CAP, half + INTERVAL_S, DURATION) for half in halves]


def test_a_node_that_is_not_heard_is_promised_nothing_more() -> None:
    bench = Bench().running()
    bench.pass_s(3 * INTERVAL_S)
    last = bench.buyer.tab.promised if bench.buyer.tab else None
    bench.pass_s(2 * INTERVAL_S)
    assert bench.sent(said.VoucherGiven)
    assert {m.voucher.payload.amount for m in bench.sent(said.VoucherGiven)} == {last}
    assert last is not None
    assert last <= accrued(CAP, 3 * INTERVAL_S, DURATION)


def test_a_node_that_comes_back_is_paid_up_to_now() -> None:
    bench = Bench().running()
    bench.pass_s(4 * INTERVAL_S)
    bench.acknowledge(TokenAmount(0))
    bench.pass_s(1)
    amounts = [m.voucher.payload.amount for m in bench.sent(said.VoucherGiven)]
    elapsed = bench.now // 1000 - T0
    assert amounts[-1] == accrued(CAP, elapsed + INTERVAL_S, DURATION)


def test_who_slept_past_a_voucher_signs_it_as_soon_as_the_node_answers() -> None:
    bench = Bench().running()
    bench.acknowledge()
    bench.now += 2 * INTERVAL_S * 1000  # a suspended machine has no deadlines
    bench.pass_s(1)
    (repeated,) = {m.voucher.payload.amount for m in bench.sent(said.VoucherGiven)}
    assert repeated == accrued(CAP, INTERVAL_S, DURATION)
    bench.acknowledge()
    (amount,) = [m.voucher.payload.amount for m in bench.sent(said.VoucherGiven)]
    assert amount >= accrued(CAP, 3 * INTERVAL_S, DURATION)


def test_a_chain_that_runs_ahead_of_this_clock_is_followed_at_once() -> None:
    bench = Bench().running()
    bench.acknowledge()
    bench.block += 1
    bench.give(ChainAdvanced(block=bench.block, at=T0 + 2 * INTERVAL_S))
    (amount,) = [m.voucher.payload.amount for m in bench.sent(said.VoucherGiven)]
    assert amount == accrued(CAP, 3 * INTERVAL_S, DURATION)
    bench.give(ChainAdvanced(block=bench.block + 1, at=T0 + 2 * INTERVAL_S))
    assert bench.sent(said.VoucherGiven) == [], "before it was acknowledged or is due again"


def test_an_acknowledgement_of_more_than_was_promised_is_not_believed() -> None:
    bench = Bench().running()
    bench.pass_s(INTERVAL_S)
    bench.acknowledge(CAP)
    bench.pass_s(1)
    assert bench.sent(said.VoucherGiven)


def test_nothing_is_promised_beyond_the_cap() -> None:
    bench = Bench().running()
    for _ in range(DURATION // INTERVAL_S - 1):
        bench.pass_s(INTERVAL_S)
        bench.acknowledge()
    assert bench.buyer.tab is not None
    assert bench.buyer.tab.promised == CAP


def test_an_idle_node_is_still_asked_whether_it_is_there() -> None:
    bench = Bench().running()
    for _ in range(DURATION // INTERVAL_S - 2):
        bench.pass_s(INTERVAL_S)
        bench.acknowledge()
    bench.pass_s(SILENCE_S // 3 + 1)
    assert bench.sent(said.VoucherGiven), "its answer is what tells that it lives"


def test_a_node_that_is_silent_for_too_long_is_stopped() -> None:
    bench = Bench().running()
    bench.with_job()
    bench.pass_s(SILENCE_S - 1)
    assert bench.calls() == []
    bench.pass_s(2)
    assert bench.calls() == [StopLease(lease=LEASE)]
    assert "silent" in bench.notices(LeaseFailing)[0].detail
    assert "silent" in bench.notices(JobRefused)[0].detail


def test_a_stranger_does_not_count_as_the_node() -> None:
    bench = Bench().running()
    called = []
    for _ in range(SILENCE_S + 1):
        bench.pass_s(1)
        called += bench.calls()
        bench.hear(
            said.VoucherAcknowledged(lease=LEASE, amount=CAP, paused=False), PeerId("stranger")
        )
    assert called == [StopLease(lease=LEASE)]


@pytest.mark.parametrize("reason", [RejectReason.NOT_THE_BUYER, RejectReason.UNKNOWN_LEASE])
def test_a_node_that_restarted_is_introduced_to_our_peer_again(reason: RejectReason) -> None:
    bench = Bench().running()
    bench.hear(said.Declined(lease=LEASE, rejection=refusal(reason)))
    assert len(bench.sent(said.OpenSession)) == 1
    bench.hear(said.Declined(lease=LEASE, rejection=refusal(reason)))
    assert bench.sent(said.OpenSession) == [], "not in answer to each refusal"
    bench.pass_s(1)
    bench.hear(said.Declined(lease=LEASE, rejection=refusal(reason)))
    assert len(bench.sent(said.OpenSession)) == 1


# Jobs.


def test_inputs_are_brought_before_the_job_is_asked_for() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    assert bench.effects == [PushInputs(peer=NODE, spec=spec)]
    bench.give(InputsPushed(job=spec.id))
    (submitted,) = bench.sent(said.JobSubmitted)
    assert submitted.spec.body == spec


def test_a_job_wanted_twice_is_one_job() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    assert bench.give(JobWanted(spec=spec)) == []


def test_a_job_is_asked_for_until_the_node_knows_it_then_asked_about() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    bench.pass_s(2)
    assert len(bench.sent(said.JobSubmitted)) == 2
    bench.hear(said.JobReported(lease=LEASE, job=spec.id, state=JobState.RUNNING))
    bench.pass_s(2)
    assert bench.sent(said.JobSubmitted) == []
    assert len(bench.sent(said.JobAsked)) == 2


def test_inputs_that_do_not_arrive_are_tried_again_a_few_times() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    pushes = 0
    for _ in range(20):
        bench.give(InputsNotPushed(job=spec.id, detail="disk full"))
        if bench.notices(JobRefused):
            break
        bench.pass_s(6)
        pushes += kinds(bench).count("PushInputs")
        bench.acknowledge()
    assert pushes == 4
    assert "disk full" in bench.notices(JobRefused)[0].detail


def printed(spec_id: object, offset: int, chunk: bytes, stream: str = "stdout") -> said.JobPrinted:
    return said.JobPrinted(
        lease=LEASE,
        job=spec_id,  # type: ignore[arg-type]
        stream=stream,
        offset=offset,
        chunk=chunk,
    )


def test_output_is_told_once_and_in_order_whatever_comes_when() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    told = b""
    for offset, chunk in [
        (0, b"abc"),
        (0, b"abc"),
        (5, b"fg"),
        (2, b"cde"),
        (5, b"fg"),
        (1, b"bc"),
    ]:
        bench.hear(printed(spec.id, offset, chunk))
        told += b"".join(notice.chunk for notice in bench.notices(JobOutput))
    assert told == b"abcdefg"


def test_output_that_was_missed_is_asked_for_from_where_it_is_missing() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    bench.hear(printed(spec.id, 0, b"abc"))
    bench.hear(printed(spec.id, 10, b"z"))
    bench.pass_s(0.3)
    (asked,) = bench.sent(said.JobAsked)
    assert (asked.stdout_from, asked.stderr_from) == (3, 0)


def test_output_on_a_stream_that_does_not_exist_is_dropped() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    bench.hear(printed(spec.id, 0, b"x", stream="stdfoo"))
    assert bench.notices(JobOutput) == []


def test_a_signed_result_ends_the_job_once() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    bench.hear(bench.result(spec, exit_code=3))
    assert bench.notices(JobDone)[0].result.body.exit_code == 3
    bench.hear(bench.result(spec))
    assert bench.notices(JobDone) == []
    bench.pass_s(2)
    assert bench.sent(said.JobAsked) == []


def test_a_result_that_the_node_did_not_sign_is_not_taken() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    bench.hear(bench.result(spec, signer=STRANGER))
    assert bench.notices(JobDone) == []


def test_a_result_of_a_job_that_was_never_asked_for_is_dropped() -> None:
    bench = Bench().running()
    bench.hear(bench.result(job(9)))
    assert bench.notices(JobDone) == []


def test_a_job_that_the_node_lost_is_handed_over_again_with_its_files() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    bench.hear(said.JobReported(lease=LEASE, job=spec.id, state=JobState.RUNNING))
    lost = refusal(RejectReason.UNKNOWN_JOB)
    bench.hear(said.Declined(lease=LEASE, rejection=lost, job=spec.id))
    assert PushInputs(peer=NODE, spec=spec) in bench.effects


def test_a_refused_job_is_told_with_the_nodes_reason() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    no = refusal(RejectReason.RUNTIME_UNAVAILABLE)
    bench.hear(said.Declined(lease=LEASE, rejection=no, job=spec.id))
    (told,) = bench.notices(JobRefused)
    assert told.rejection == no


def test_a_refusal_that_may_pass_is_borne_for_a_while() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    not_yet = said.Declined(lease=LEASE, rejection=refusal(RejectReason.WRONG_STATE), job=spec.id)
    for _ in range(29):
        bench.hear(not_yet)
        assert bench.notices(JobRefused) == []
        bench.pass_s(1)
    bench.pass_s(2)
    bench.hear(not_yet)
    assert len(bench.notices(JobRefused)) == 1


def test_a_kill_is_said_until_the_result_comes() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    bench.hear(said.JobReported(lease=LEASE, job=spec.id, state=JobState.RUNNING))
    bench.give(KillWanted(job=spec.id))
    assert len(bench.sent(said.JobKilled)) == 1
    bench.pass_s(2)
    assert len(bench.sent(said.JobKilled)) == 2
    bench.hear(bench.result(spec))
    bench.pass_s(2)
    assert bench.sent(said.JobKilled) == []


def test_a_node_that_ends_its_work_interrupts_and_is_asked_to_close() -> None:
    bench = Bench().running()
    bench.with_job()
    bench.hear(
        said.LeaseEndedHere(lease=LEASE, reason=LeaseEndReason.HEALTH, detail="GPU fell off")
    )
    assert bench.notices(LeaseFailing)[0].reason is LeaseEndReason.HEALTH
    assert "GPU fell off" in bench.notices(JobRefused)[0].detail
    assert len(bench.sent(said.CloseAsked)) == 1


def test_the_leases_time_ends_it() -> None:
    bench = Bench().running()
    bench.with_job()
    for _ in range(DURATION):
        bench.pass_s(1)
        bench.acknowledge()
        if bench.sent(said.CloseAsked):
            break
    bench.pass_s(1)
    assert bench.now // 1000 >= T0 + DURATION
    assert not bench.buyer.is_running
