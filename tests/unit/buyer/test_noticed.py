"""A provider's notice, for its buyer: told in time, results to the last, no call of its own."""

from __future__ import annotations

import pytest

from cloud_gpu.buyer import Phase
from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol import messages as said
from cloud_gpu.protocol.job import JobOutcome, JobState
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseFlags
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.notices import JobDone, JobRefused, LeaseFailing, LeaseNoticed, LeaseOver
from tests.unit.buyer.builders import LEASE, RHYTHM, T0, Bench, advert

NOTICE_S = 600
GIVEN = chain.NoticeGiven(lease=LEASE, releasable_at=T0 + NOTICE_S, at=T0)
ENDED = said.LeaseEndedHere(lease=LEASE, reason=LeaseEndReason.NOTICE, detail="it has run out")
CHAIN_S = RHYTHM.chain_patience // 1000


def running(flags: int = LeaseFlags.INTERRUPTIBLE) -> Bench:
    bench = Bench().placed()
    bench.give(bench.receipt(), bench.report(BidState.MATCHED, adverts=(advert(),)))
    bench.give(bench.opened(flags=flags))
    bench.hear(bench.ready())
    bench.give(chain.LeaseStarted(lease=LEASE, started_at=T0, at=T0))
    bench.acknowledge()
    return bench


def test_its_user_is_told_from_when_it_may_end_and_pays_on_until_then() -> None:
    bench = running()
    bench.give(GIVEN)
    assert bench.notices(LeaseNoticed) == [LeaseNoticed(lease=LEASE, releasable_at=T0 + NOTICE_S)]
    bench.pass_s(RHYTHM.voucher_interval_s)
    assert bench.sent(said.VoucherGiven)
    assert bench.buyer.is_running


def test_a_longer_chain_takes_it_back() -> None:
    bench = running()
    bench.give(chain.ChainAdvanced(block=bench.block + 1, at=T0))
    bench.give(GIVEN)
    bench.give(chain.ChainReorganised(block=bench.block + 1))
    assert bench.notices(LeaseNoticed) == [LeaseNoticed(lease=LEASE, releasable_at=0)]


def test_a_firm_lease_cannot_be_noticed() -> None:
    bench = running(flags=0)
    assert bench.give(GIVEN) == []


def test_when_it_has_run_nothing_is_posted_and_the_last_results_still_come() -> None:
    bench = running()
    spec = bench.with_job()
    bench.hear(said.JobReported(lease=LEASE, job=spec.id, state=JobState.RUNNING))
    bench.give(GIVEN)
    bench.hear(ENDED)
    assert [each.reason for each in bench.notices(LeaseFailing)] == [LeaseEndReason.NOTICE]
    assert not bench.notices(JobRefused)
    bench.hear(bench.result(spec, outcome=JobOutcome.KILLED))
    assert bench.notices(JobDone)
    bench.pass_s(CHAIN_S - 1)
    assert bench.calls() == []
    assert not bench.sent(said.CloseAsked)
    bench.closed(5, LeaseEndReason.NOTICE)
    (over,) = bench.notices(LeaseOver)
    assert over.reason is LeaseEndReason.NOTICE
    assert bench.buyer.phase is Phase.OVER


def test_a_node_that_does_not_release_it_is_asked_and_then_stopped() -> None:
    bench = running()
    spec = bench.with_job()
    bench.give(GIVEN)
    bench.hear(ENDED)
    bench.pass_s(CHAIN_S + 1)
    assert bench.sent(said.CloseAsked)
    assert [each.job for each in bench.notices(JobRefused)] == [spec.id]
    bench.pass_s(RHYTHM.close_patience // 1000 + 1)
    assert bench.calls()


@pytest.mark.parametrize("flags", [LeaseFlags.INTERRUPTIBLE, LeaseFlags(0)])
def test_a_node_that_says_so_without_notice_is_asked_at_once(flags: LeaseFlags) -> None:
    bench = running(flags)
    bench.hear(ENDED)
    assert bench.sent(said.CloseAsked)
