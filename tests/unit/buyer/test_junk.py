"""Whatever others say, in any order and at any time: a buyer answers or ignores, never raises."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol import limits
from cloud_gpu.protocol import messages as said
from cloud_gpu.protocol.calls import StopLease
from cloud_gpu.protocol.effects import Send, Tell
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import (
    BidRefused,
    BuyerEvent,
    CloseWanted,
    DeadlinePassed,
    InputsNotPushed,
    InputsPushed,
    JobWanted,
    KillWanted,
    LeaseWanted,
    MarketSilent,
    MessageReceived,
    SendFailed,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import FileRef, JobState
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.notices import JobOutput, JobRefused
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.testing.world import BUYER, profile_of
from tests.unit.buyer.builders import (
    CAP,
    DURATION,
    LEASE,
    NODE,
    NODE_KEY,
    PROVIDER,
    RHYTHM,
    STRANGER,
    T0,
    Bench,
    advert,
    job,
    refusal,
)

OTHER = LeaseKey(provider=PROVIDER.address, index=0, seq=2)
B = Bench()
JOBS = [job(n) for n in (1, 2)]
AMOUNTS = [TokenAmount(n) for n in (0, 1, CAP.value, 2**48 - 1)]


def messages() -> list[said.Message]:
    found: list[said.Message] = [
        B.ready(),
        B.ready(signer=STRANGER),
        B.ready(profile_of("T4", 1)),
        B.ready(lease=OTHER),
        said.Preparing(lease=LEASE, detail="x" * 1_000),
        said.CloseAsked(lease=LEASE),  # what only a buyer says
        said.LeaseEndedHere(lease=LEASE, reason=LeaseEndReason.HEALTH, detail=""),
        said.LeaseEndedHere(lease=OTHER, reason=LeaseEndReason.HEALTH, detail=""),
    ]
    for amount in AMOUNTS:
        found.append(said.VoucherAcknowledged(lease=LEASE, amount=amount, paused=True))
        found += [B.final(amount), B.final(amount, signer=STRANGER), B.final(amount, lease=OTHER)]
    for reason in RejectReason:
        found.append(said.Declined(lease=LEASE, rejection=refusal(reason)))
        found.append(said.Declined(lease=LEASE, rejection=refusal(reason), job=JOBS[0].id))
    for spec in [*JOBS, job(9)]:
        found += [B.result(spec), B.result(spec, signer=STRANGER), B.result(spec, lease=OTHER)]
        found += [said.JobReported(lease=LEASE, job=spec.id, state=s) for s in JobState]
        for stream, offset in (("stdout", 0), ("stdout", 2), ("stderr", -5), ("x", 10**15)):
            chunk = said.JobPrinted(
                lease=LEASE, job=spec.id, stream=stream, offset=offset, chunk=b"abc"
            )
            found.append(chunk)
    return found


def facts() -> list[BuyerEvent]:
    lease: dict[str, Any] = {"lease": LEASE, "at": T0}
    found: list[BuyerEvent] = [
        DeadlinePassed(),
        CloseWanted(),
        LeaseWanted(bids=B.orders),
        LeaseWanted(bids=B.orders, adverts=(advert(), advert(signer=STRANGER))),
        B.receipt(),
        B.receipt(signer=STRANGER),
        B.opened(),
        B.opened(cap=CAP + CAP),
        MarketSilent(detail="down"),
        chain.LeaseStarted(started_at=T0, **lease),
        chain.LeaseStopped(ceiling=TokenAmount(5), **lease),
        chain.LeaseClosed(reason=LeaseEndReason.STOPPED, paid=TokenAmount(5), **lease),
        chain.BidsCancelled(account=BUYER.address, nonce=3, below=False),
        chain.TransactionFailed(call=StopLease(lease=LEASE), error="x"),
        chain.ChainReorganised(block=99),
        chain.ChainReorganised(block=10**6),
        chain.ChainAdvanced(block=101, at=T0 + 1),
        chain.ChainAdvanced(block=102, at=T0 + 10**6),
        SendFailed(peer=NODE, message=said.CloseAsked(lease=LEASE), detail="gone"),
    ]
    found += [B.report(state, adverts=(advert(),)) for state in BidState]
    found += [BidRefused(bid=B.bid, rejection=refusal(reason)) for reason in RejectReason]
    for spec in JOBS:
        found += [JobWanted(spec=spec), KillWanted(job=spec.id), InputsPushed(job=spec.id)]
        found.append(InputsNotPushed(job=spec.id, detail="no"))
    for message in messages():
        found.append(MessageReceived(peer=NODE, message=message))
    found.append(MessageReceived(peer=PeerId("somebody"), message=B.ready()))
    return found


FACTS = facts()
STAGES: list[Any] = [Bench, Bench.placed, Bench.funded, Bench.accepted, Bench.running]


@settings(max_examples=300)
@given(
    stage=st.integers(0, len(STAGES) - 1),
    story=st.lists(st.tuples(st.sampled_from(FACTS), st.integers(0, 20_000)), max_size=25),
)
def test_no_story_breaks_it_or_makes_it_promise_too_much(
    stage: int, story: list[tuple[BuyerEvent, int]]
) -> None:
    bench: Bench = STAGES[stage]() if stage == 0 else STAGES[stage](Bench())
    newest = TokenAmount(0)
    for event, passes_ms in story:
        bench.now += passes_ms
        bench.give(event)
        for effect in bench.effects:
            if isinstance(effect, Send) and isinstance(effect.message, said.VoucherGiven):
                amount = effect.message.voucher.payload.amount
                assert newest <= amount <= CAP + CAP
                newest = amount
        deadline = bench.buyer.deadline
        if deadline is not None and deadline <= bench.now:
            bench.give(DeadlinePassed())
            moved = bench.buyer.deadline
            assert moved is None or moved > bench.now, "it would be woken for ever"


@settings(max_examples=200)
@given(
    story=st.lists(
        st.tuples(st.sampled_from(messages()), st.integers(0, 3_000)), min_size=1, max_size=40
    )
)
def test_nothing_a_node_says_makes_it_promise_more_than_an_interval_ahead(
    story: list[tuple[said.Message, int]],
) -> None:
    bench = Bench().running()
    for message, passes_ms in story:
        bench.pass_s(passes_ms / 1000)
        bench.hear(message)
        tab = bench.buyer.tab
        assert tab is not None
        elapsed = bench.now // 1000 - T0
        ahead = accrued(CAP, elapsed + RHYTHM.voucher_interval_s, DURATION)
        assert tab.promised <= ahead
        assert all(not isinstance(call, StopLease) or call.lease == LEASE for call in bench.calls())


def test_a_node_that_prints_without_end_is_cut() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    told, chunk = 0, b"x" * limits.LOG_CHUNK_BYTES_MAX
    for number in range(limits.JOB_LOG_BYTES_MAX // len(chunk) + 5):
        bench.hear(
            said.JobPrinted(
                lease=LEASE, job=spec.id, stream="stdout", offset=number * len(chunk), chunk=chunk
            )
        )
        told += sum(
            len(e.notice.chunk)
            for e in bench.effects
            if isinstance(e, Tell) and isinstance(e.notice, JobOutput)
        )
    assert told == limits.JOB_LOG_BYTES_MAX


def test_a_result_with_more_output_than_a_job_may_print_is_refused() -> None:
    bench = Bench().running()
    spec = bench.with_job()
    bench.give(InputsPushed(job=spec.id))
    huge = FileRef(path="stdout", sha256="0" * 64, size=limits.JOB_LOG_BYTES_MAX + 1)
    bench.hear(bench.result(spec, signer=NODE_KEY, stdout=huge))
    assert "more than a job may print" in bench.notices(JobRefused)[0].detail
