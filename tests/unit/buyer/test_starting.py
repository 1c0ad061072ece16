"""From a funded lease to a running one: what is checked before the meter starts."""

from typing import Any

import pytest

from cloud_gpu.buyer import Phase
from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol import messages as said
from cloud_gpu.protocol.calls import Begin, ExpireLease, RefundUnstarted
from cloud_gpu.protocol.effects import Connect
from cloud_gpu.protocol.hardware import Isolation
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.notices import LeaseFailing, LeaseOver, LeaseUsable
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest
from cloud_gpu.testing.world import DEPLOYMENT, profile_of
from tests.unit.buyer.builders import (
    ADDRESS,
    CAP,
    DURATION,
    LEASE,
    NODE,
    OWN,
    PROVIDER,
    RHYTHM,
    STRANGER,
    T0,
    Bench,
    advert,
)

START_S = DEPLOYMENT.windows.start


def test_the_node_of_the_matched_ask_is_connected_and_asked() -> None:
    bench = Bench().funded()
    assert Connect(peer=NODE, addresses=(ADDRESS,)) in bench.effects
    (opening,) = bench.sent(said.OpenSession)
    access = opening.access.body
    assert (access.lease, access.node, access.buyer_peer) == (LEASE, NODE, OWN)


def test_the_node_is_asked_again_until_it_is_ready() -> None:
    bench = Bench().funded()
    bench.hear(said.Preparing(lease=LEASE, detail="pulling"))
    bench.pass_s(3)
    assert len(bench.sent(said.OpenSession)) == 3, "soon at first, then less and less often"
    bench.pass_s(10)
    assert len(bench.sent(said.OpenSession)) == 5


def test_without_an_advert_the_market_is_asked_where_the_node_is() -> None:
    bench = Bench().placed()
    bench.give(bench.receipt(), bench.opened())
    bench.pass_s(1)
    assert "AskAboutBid" in [type(e).__name__ for e in bench.effects]
    bench.give(bench.report(BidState.OPENED, adverts=(advert(),)))
    assert len(bench.sent(said.OpenSession)) == 1


def test_an_ask_listed_before_the_bid_serves_when_the_market_falls_silent() -> None:
    from cloud_gpu.protocol.events import LeaseWanted

    bench = Bench()
    bench.give(LeaseWanted(bids=bench.orders, adverts=(advert(),)))
    bench.give(bench.opened())
    assert len(bench.sent(said.OpenSession)) == 1


@pytest.mark.parametrize("lie", [{"signer": STRANGER}, {"binder": STRANGER}])
def test_an_advert_that_is_not_the_providers_leads_nowhere(lie: dict[str, Any]) -> None:
    bench = Bench().placed()
    bench.give(bench.opened())
    bench.give(bench.report(BidState.OPENED, adverts=(advert(**lie),)))
    assert bench.sent(said.OpenSession) == []
    bench.pass_s(START_S + 2)
    assert "not the provider's" in bench.notices(LeaseFailing)[0].detail


def test_a_ready_as_asked_is_accepted_and_the_first_interval_promised() -> None:
    bench = Bench().funded()
    bench.hear(bench.ready())
    (accept,), (voucher,) = bench.sent(said.AcceptGiven), bench.sent(said.VoucherGiven)
    assert accept.accept.payload.started_at == T0
    assert voucher.voucher.payload.amount == accrued(CAP, 2, DURATION)


@pytest.mark.parametrize(
    ("offer", "fault"),
    [
        (lambda b: b.ready(signer=STRANGER), "signed by"),
        (lambda b: b.ready(promised=Digest(b"\x01" * 32)), "runtime hash"),
        (lambda b: b.ready(profile_of("T4", 2)), "GPU class"),
        (lambda b: b.ready(profile_of("A100-SXM4-80GB", 1)), "GPUs: found 1"),
        (lambda b: b.ready(profile_of("A100-SXM4-80GB", 2, region="KP/AS")), "region"),
    ],
)
def test_a_ready_that_is_not_as_promised_is_never_accepted(offer: Any, fault: str) -> None:
    bench = Bench().funded()
    bench.hear(offer(bench))
    assert bench.sent(said.AcceptGiven) == bench.sent(said.VoucherGiven) == []
    bench.pass_s(START_S + 2)
    (told,) = bench.notices(LeaseFailing)
    assert fault in told.detail
    assert RefundUnstarted(lease=LEASE) in bench.calls()


def test_weaker_isolation_than_advertised_is_never_accepted() -> None:
    bench = Bench().placed()
    vm = profile_of("A100-SXM4-80GB", 2, isolation=Isolation.VM)
    bench.give(bench.report(BidState.MATCHED, adverts=(advert(vm),)), bench.opened())
    bench.hear(bench.ready())
    assert bench.sent(said.AcceptGiven) == []


def test_a_ready_of_another_lease_or_peer_is_not_heard() -> None:
    bench = Bench().funded()
    other = LeaseKey(provider=PROVIDER.address, index=0, seq=2)
    bench.hear(bench.ready(lease=other))
    bench.hear(bench.ready(), peer=PeerId("somebody"))
    assert bench.sent(said.AcceptGiven) == []


def test_accept_and_voucher_are_said_again_until_the_lease_begins() -> None:
    bench = Bench().accepted()
    bench.pass_s(2)
    assert len(bench.sent(said.AcceptGiven)) >= 2
    assert bench.sent(said.VoucherGiven)
    assert bench.sent(said.OpenSession) == []


def test_a_repeated_ready_is_not_accepted_twice() -> None:
    bench = Bench().accepted()
    assert bench.hear(bench.ready()) == []


def test_the_lease_is_usable_when_the_chain_says_that_it_began() -> None:
    bench = Bench().accepted()
    assert bench.notices(LeaseUsable) == []
    bench.give(chain.LeaseStarted(lease=LEASE, started_at=T0, at=T0))
    assert bench.notices(LeaseUsable)[0].lease == LEASE
    assert bench.buyer.is_running


def test_a_beginning_that_is_taken_back_is_asked_for_again() -> None:
    bench = Bench().running()
    bench.give(chain.ChainReorganised(block=bench.block - 1))
    bench.give(chain.ChainReorganised(block=bench.block - 2))
    assert bench.buyer.phase is Phase.PLACING  # its opening is gone, too


def test_a_beginning_alone_that_is_taken_back_is_asked_for_again() -> None:
    bench = Bench().accepted()
    bench.give(chain.ChainAdvanced(block=101, at=T0))
    bench.give(chain.LeaseStarted(lease=LEASE, started_at=T0, at=T0))
    bench.give(chain.ChainReorganised(block=101))
    assert not bench.buyer.is_running
    assert len(bench.sent(said.AcceptGiven)) == 1
    bench.give(chain.LeaseStarted(lease=LEASE, started_at=T0, at=T0))
    assert bench.buyer.is_running


def test_a_node_that_does_not_post_the_beginning_has_it_posted_for_it() -> None:
    bench = Bench().accepted()
    bench.pass_s(START_S // 2 - 1)
    assert bench.calls() == []
    bench.pass_s(2)
    (begin,) = bench.calls()
    assert isinstance(begin, Begin)
    assert begin.accept.payload.lease == LEASE


def test_what_never_began_is_called_back_after_the_start_deadline() -> None:
    bench = Bench().funded()
    bench.pass_s(START_S)
    assert RefundUnstarted(lease=LEASE) not in bench.calls()
    bench.pass_s(2)
    assert bench.calls() == [RefundUnstarted(lease=LEASE)]
    assert bench.notices(LeaseFailing)[0].reason is LeaseEndReason.PROVIDER_NO_SHOW
    bench.closed(0, LeaseEndReason.PROVIDER_NO_SHOW)
    (over,) = bench.notices(LeaseOver)
    assert (over.paid, over.refund) == (TokenAmount(0), CAP)
    assert bench.buyer.phase is Phase.OVER


def test_a_refund_that_does_not_arrive_is_asked_for_again() -> None:
    bench = Bench().funded()
    bench.pass_s(START_S + 2)
    bench.pass_s(16)
    assert bench.calls() == [RefundUnstarted(lease=LEASE)]


def test_a_ready_after_the_deadline_is_too_late() -> None:
    bench = Bench().funded()
    bench.pass_s(START_S + 2)
    bench.hear(bench.ready())
    assert bench.sent(said.AcceptGiven) == []


@pytest.mark.parametrize(
    "differs",
    [
        {"cap": CAP + CAP},
        {"duration": DURATION + 1},
        {"buyer": STRANGER.address},
    ],
)
def test_a_lease_outside_its_bid_is_never_accepted(differs: dict[str, Any]) -> None:
    bench = Bench().placed()
    bench.give(bench.report(BidState.MATCHED, adverts=(advert(),)))
    bench.give(bench.opened(**differs))
    bench.hear(bench.ready())
    assert bench.sent(said.AcceptGiven) == []


def test_a_lease_may_cost_less_than_its_limit() -> None:
    bench = Bench().placed()
    bench.give(bench.report(BidState.MATCHED, adverts=(advert(),)))
    bench.give(bench.opened(cap=TokenAmount(1)))
    bench.hear(bench.ready())
    assert len(bench.sent(said.AcceptGiven)) == 1


def test_a_provider_that_releases_it_at_once_ends_it() -> None:
    bench = Bench().funded()
    bench.closed(0, LeaseEndReason.RELEASED_UNSTARTED)
    assert bench.notices(LeaseOver)[0].refund == CAP


def test_the_meter_starts_at_the_chains_time_not_at_ours() -> None:
    bench = Bench()
    bench.now += 3_600_000  # our clock is an hour ahead
    bench.placed()
    bench.give(bench.report(BidState.MATCHED, adverts=(advert(),)))
    bench.give(bench.opened(opened_at=T0, start_deadline=T0 + START_S))
    bench.give(chain.ChainAdvanced(block=101, at=T0 + 1))
    bench.hear(bench.ready())
    (accept,) = bench.sent(said.AcceptGiven)
    assert accept.accept.payload.started_at == T0 + 1


def reopened() -> Bench:
    """A longer chain took the opening back, and has it with the beginning by our older Accept."""
    bench = Bench().accepted()
    again = bench.opened()
    bench.give(chain.ChainReorganised(block=bench.block))
    bench.give(again, chain.LeaseStarted(lease=LEASE, started_at=T0, at=T0))
    return bench


def test_a_lease_that_began_by_an_accept_of_before_runs_once_its_node_speaks() -> None:
    bench = reopened()
    assert not bench.notices(LeaseUsable)
    bench.hear(bench.ready())
    assert bench.notices(LeaseUsable)
    assert bench.buyer.is_running
    assert bench.buyer.tab is not None
    assert bench.buyer.tab.started_at == T0
    assert bench.sent(said.VoucherGiven)


def test_with_a_node_that_does_not_it_runs_out_and_the_money_comes_back() -> None:
    bench = reopened()
    expires_s = DURATION + DEPLOYMENT.windows.claim
    bench.pass_s(expires_s - 1)
    assert bench.calls() == []
    bench.pass_s(RHYTHM.chain_patience // 1000 + 10)
    assert bench.calls()[-1] == ExpireLease(lease=LEASE)
