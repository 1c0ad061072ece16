"""From the wish to end a lease to the chain's word: with the node, without it, and too late."""

from cloud_gpu.buyer import Phase
from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol import messages as said
from cloud_gpu.protocol.calls import CloseBatch, ExpireLease, StopLease
from cloud_gpu.protocol.events import CloseWanted
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.notices import JobRefused, LeaseFrozen, LeaseOver
from cloud_gpu.protocol.signing import recover
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.testing.world import BUYER, DEPLOYMENT
from tests.unit.buyer.builders import (
    CAP,
    DOMAIN,
    DURATION,
    LEASE,
    RHYTHM,
    STRANGER,
    T0,
    Bench,
)

PATIENCE_S = RHYTHM.close_patience // 1000
CHAIN_S = RHYTHM.chain_patience // 1000
CLAIM_S = DEPLOYMENT.windows.claim


def closing_bench() -> Bench:
    bench = Bench().running()
    bench.give(CloseWanted())
    return bench


def promised(bench: Bench) -> TokenAmount:
    assert bench.buyer.tab is not None
    return bench.buyer.tab.promised


def test_a_wish_to_close_asks_the_node_for_its_final() -> None:
    bench = closing_bench()
    assert len(bench.sent(said.CloseAsked)) == 1
    bench.pass_s(2)
    assert len(bench.sent(said.CloseAsked)) == 2
    assert bench.sent(said.VoucherGiven) == []


def test_unfinished_jobs_are_told_that_nothing_comes_any_more() -> None:
    bench = Bench().running()
    bench.with_job()
    bench.give(CloseWanted())
    assert "closed here" in bench.notices(JobRefused)[0].detail


def test_the_nodes_final_is_answered_by_ours_and_posted() -> None:
    bench = closing_bench()
    bench.hear(bench.final(promised(bench)))
    (call,) = bench.calls()
    assert isinstance(call, CloseBatch)
    (closing,) = call.closings
    assert closing.voucher.payload.amount == promised(bench)
    assert closing.buyer_final is not None
    digest = closing.buyer_final.payload.digest(DOMAIN)
    assert recover(digest, closing.buyer_final.signature) == BUYER.address


def test_a_final_of_less_is_welcome() -> None:
    bench = closing_bench()
    bench.hear(bench.final(TokenAmount(1)))
    assert bench.calls()[0].closings[0].voucher.payload.amount == TokenAmount(1)


def test_a_final_of_more_than_was_promised_is_never_signed() -> None:
    bench = closing_bench()
    bench.hear(bench.final(promised(bench) + TokenAmount(1)))
    assert bench.calls() == []
    bench.pass_s(PATIENCE_S + 1)
    assert bench.calls() == [StopLease(lease=LEASE)]


def test_a_final_by_a_stranger_is_not_taken() -> None:
    bench = closing_bench()
    bench.hear(bench.final(promised(bench), signer=STRANGER))
    assert bench.calls() == []


def test_a_final_that_comes_twice_is_posted_once() -> None:
    bench = closing_bench()
    final = bench.final(promised(bench))
    bench.hear(final)
    bench.hear(final)
    assert bench.calls() == []


def test_the_chains_word_ends_it() -> None:
    bench = closing_bench()
    bench.hear(bench.final(promised(bench)))
    bench.closed(5, LeaseEndReason.STOPPED)
    (over,) = bench.notices(LeaseOver)
    assert (over.paid, over.refund) == (TokenAmount(5), CAP - TokenAmount(5))
    assert bench.buyer.phase is Phase.OVER
    assert bench.buyer.deadline is None


def test_without_a_final_the_lease_is_stopped() -> None:
    bench = closing_bench()
    bench.pass_s(PATIENCE_S - 1)
    assert bench.calls() == []
    bench.pass_s(2)
    assert bench.calls() == [StopLease(lease=LEASE)]


def test_a_stop_that_does_not_arrive_is_sent_again() -> None:
    bench = closing_bench()
    bench.pass_s(PATIENCE_S + 1)
    bench.pass_s(CHAIN_S + 1)
    assert bench.calls() == [StopLease(lease=LEASE)]


def test_a_closing_that_the_contract_refuses_becomes_a_stop() -> None:
    bench = closing_bench()
    bench.hear(bench.final(promised(bench)))
    (call,) = bench.calls()
    bench.give(chain.TransactionFailed(call=call, error="LeaseBook_Something"))
    assert bench.calls() == [StopLease(lease=LEASE)]


def test_a_closing_that_is_not_mined_becomes_a_stop() -> None:
    bench = closing_bench()
    bench.hear(bench.final(promised(bench)))
    bench.pass_s(CHAIN_S + 1)
    assert bench.calls() == [StopLease(lease=LEASE)]


def stop(bench: Bench) -> None:
    bench.pass_s(PATIENCE_S + 1)
    at = bench.now // 1000
    bench.give(chain.LeaseStopped(lease=LEASE, ceiling=TokenAmount(7), at=at))


def test_a_stopped_lease_says_what_is_back_at_once() -> None:
    bench = closing_bench()
    stop(bench)
    (frozen,) = bench.notices(LeaseFrozen)
    assert (frozen.ceiling, frozen.refund) == (TokenAmount(7), CAP - TokenAmount(7))


def test_what_nobody_claims_is_expired_after_the_window() -> None:
    bench = closing_bench()
    stop(bench)
    bench.pass_s(CLAIM_S)
    assert bench.calls() == []
    bench.pass_s(3)
    assert bench.calls() == [ExpireLease(lease=LEASE)]


def test_a_provider_that_claims_in_the_window_ends_it() -> None:
    bench = closing_bench()
    stop(bench)
    bench.closed(3, LeaseEndReason.STOPPED)
    assert bench.notices(LeaseOver)[0].paid == TokenAmount(3)


def test_a_stop_that_a_longer_chain_takes_back_is_sent_again() -> None:
    bench = closing_bench()
    stop(bench)
    bench.give(chain.ChainReorganised(block=bench.block))
    assert bench.calls() == [StopLease(lease=LEASE)]


def test_an_end_that_a_longer_chain_takes_back_is_brought_about_again() -> None:
    bench = closing_bench()
    bench.pass_s(1)
    bench.hear(bench.final(promised(bench)))
    bench.closed(5, LeaseEndReason.STOPPED)
    bench.give(chain.ChainReorganised(block=bench.block))
    assert bench.buyer.phase is not Phase.OVER
    bench.pass_s(CHAIN_S + 1)
    assert bench.calls() == [StopLease(lease=LEASE)]


def test_a_stop_by_another_process_of_ours_is_followed() -> None:
    bench = Bench().running()
    bench.with_job()
    at = bench.now // 1000
    bench.give(chain.LeaseStopped(lease=LEASE, ceiling=TokenAmount(7), at=at))
    assert len(bench.notices(JobRefused)) == 1
    assert StopLease(lease=LEASE) not in bench.calls()[1:]
    bench.closed(7, LeaseEndReason.STOPPED)
    assert bench.buyer.phase is Phase.OVER


def test_closing_while_it_starts_ends_it_as_soon_as_it_began() -> None:
    bench = Bench().accepted()
    bench.give(CloseWanted())
    assert bench.calls() == []
    bench.give(chain.LeaseStarted(lease=LEASE, started_at=T0, at=T0))
    assert len(bench.sent(said.CloseAsked)) == 1


def test_after_its_time_a_silent_lease_is_expired_not_stopped() -> None:
    bench = Bench().running()
    for _ in range(DURATION):
        bench.pass_s(1)
        bench.acknowledge()
    found = []
    for _ in range(CLAIM_S + CHAIN_S + 5):
        bench.pass_s(1)
        found += bench.calls()
    assert found
    assert set(map(type, found)) == {ExpireLease}
