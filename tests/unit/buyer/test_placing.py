"""From signed bids to a funded lease, or to the reason why none came."""

import pytest

from cloud_gpu.buyer import Phase
from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol.calls import CancelOne
from cloud_gpu.protocol.effects import AskAboutBid, SubmitBid
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import (
    BidRefused,
    CloseWanted,
    JobWanted,
    LeaseWanted,
    MarketSilent,
)
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.notices import BidPlaced, LeaseFunded, LeaseNotOpened
from cloud_gpu.protocol.receipts import AHEAD_S_MAX
from cloud_gpu.protocol.values import Digest
from cloud_gpu.testing.world import BUYER
from tests.unit.buyer.builders import CAP, PRICE, STRANGER, T0, Bench, job, refusal


def kinds(bench: Bench) -> list[str]:
    return [type(effect).__name__ for effect in bench.effects]


def test_a_wanted_lease_is_bid_for() -> None:
    bench = Bench()
    bench.give(LeaseWanted(bids=bench.orders))
    assert bench.notices(BidPlaced)[0].bid == bench.bid
    assert [e.order for e in bench.effects if isinstance(e, SubmitBid)] == list(bench.orders)
    assert bench.buyer.phase is Phase.PLACING


def test_a_lease_wanted_twice_is_wanted_once() -> None:
    bench = Bench().placed()
    assert bench.give(LeaseWanted(bids=bench.orders)) == []


def test_a_bid_is_submitted_again_until_its_receipt_comes() -> None:
    bench = Bench().placed()
    bench.pass_s(2)
    assert kinds(bench).count("SubmitBid") >= 3
    bench.give(bench.receipt())
    bench.pass_s(2)
    assert "SubmitBid" not in kinds(bench)
    assert AskAboutBid(bid=bench.bid) in bench.effects


def test_a_receipt_by_a_stranger_counts_for_nothing() -> None:
    bench = Bench().placed()
    bench.give(bench.receipt(signer=STRANGER))
    bench.pass_s(1)
    assert "SubmitBid" in kinds(bench)


def test_a_receipt_dated_ahead_of_this_machine_counts_for_nothing() -> None:
    bench = Bench().placed()
    bench.give(bench.receipt(ahead_s=AHEAD_S_MAX + 1))
    bench.pass_s(1)
    assert "SubmitBid" in kinds(bench)
    bench.give(bench.receipt(ahead_s=AHEAD_S_MAX - 1))
    bench.pass_s(1)
    assert "SubmitBid" not in kinds(bench)


def test_a_bid_that_the_market_forgot_is_submitted_again() -> None:
    bench = Bench().placed()
    bench.give(bench.receipt())
    bench.give(BidRefused(bid=bench.bid, rejection=refusal(RejectReason.UNKNOWN_ORDER)))
    bench.pass_s(1)
    assert "SubmitBid" in kinds(bench)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (RejectReason.KEY_NOT_AUTHORISED, "rejected"),
        (RejectReason.CASH_TOO_LOW, "funds"),
        (RejectReason.NO_MATCH, "no-match"),
    ],
)
def test_a_refusal_of_every_bid_ends_it_with_the_markets_word(
    reason: RejectReason, kind: str
) -> None:
    bench = Bench().placed()
    bench.give(BidRefused(bid=bench.bid, rejection=refusal(reason)))
    (told,) = bench.notices(LeaseNotOpened)
    assert (told.kind, told.rejection) == (kind, refusal(reason))
    assert bench.buyer.phase is Phase.OVER
    assert bench.buyer.deadline is None


def test_a_busy_market_is_asked_again() -> None:
    bench = Bench().placed()
    bench.give(BidRefused(bid=bench.bid, rejection=refusal(RejectReason.RATE_LIMITED)))
    assert bench.notices(LeaseNotOpened) == []
    bench.pass_s(1)
    assert "SubmitBid" in kinds(bench)


def test_a_bid_that_expires_unmatched_says_what_was_in_the_way() -> None:
    bench = Bench(start_timeout=10).placed()
    bench.give(bench.receipt())
    blocked = refusal(RejectReason.PRICE_OUTSIDE_LIMITS)
    bench.give(bench.report(BidState.PENDING, rejection=blocked))
    bench.pass_s(10)
    assert bench.notices(LeaseNotOpened) == []
    bench.pass_s(2)
    (told,) = bench.notices(LeaseNotOpened)
    assert (told.kind, told.rejection) == ("no-match", blocked)


def test_a_market_that_stays_silent_is_named_when_the_bids_have_expired() -> None:
    bench = Bench(start_timeout=10).placed()
    bench.give(MarketSilent(detail="connection refused"))
    bench.pass_s(12)
    (told,) = bench.notices(LeaseNotOpened)
    assert (told.kind, told.detail) == ("market-silent", "connection refused")


def test_a_chain_that_tells_nothing_is_given_up_some_time_after_the_bids_end() -> None:
    bench = Bench(start_timeout=10).placed()
    bench.pass_s(39, blocks=False)
    assert bench.notices(LeaseNotOpened) == []
    bench.pass_s(3, blocks=False)
    assert len(bench.notices(LeaseNotOpened)) == 1


def test_an_opening_on_chain_counts_though_the_market_is_silent() -> None:
    bench = Bench().placed()
    bench.give(MarketSilent(detail="down"))
    bench.give(bench.opened())
    (told,) = bench.notices(LeaseFunded)
    assert (told.cap, told.price) == (CAP, PRICE)
    assert bench.buyer.phase is Phase.HOLDING


def test_an_opening_by_another_bid_is_not_ours() -> None:
    bench = Bench().placed()
    opened = bench.opened()
    bench.give(
        chain.LeaseOpened(
            terms=opened.terms, bid=Digest(b"\x09" * 32), at=T0, transaction=opened.transaction
        )
    )
    assert bench.buyer.phase is Phase.PLACING


def test_giving_up_voids_the_nonce_on_chain_and_waits_for_it() -> None:
    bench = Bench().placed()
    bench.give(CloseWanted())
    assert bench.calls() == [CancelOne(nonce=3)]
    assert bench.buyer.phase is Phase.PLACING
    bench.give(chain.BidsCancelled(account=BUYER.address, nonce=3, below=False))
    assert bench.notices(LeaseNotOpened)[0].kind == "cancelled"


@pytest.mark.parametrize(
    ("nonce", "below", "over"), [(4, True, True), (3, True, False), (2, False, False)]
)
def test_only_a_cancellation_that_reaches_the_nonce_ends_it(
    nonce: int, below: bool, over: bool
) -> None:
    bench = Bench().placed()
    bench.give(chain.BidsCancelled(account=BUYER.address, nonce=nonce, below=below))
    assert (bench.buyer.phase is Phase.OVER) is over


def test_a_cancellation_that_loses_the_race_leaves_a_lease_to_end() -> None:
    bench = Bench().placed()
    bench.give(CloseWanted())
    bench.give(bench.opened())
    assert bench.buyer.phase is Phase.HOLDING


def test_closing_what_was_never_wanted_is_over_at_once() -> None:
    bench = Bench()
    assert bench.give(CloseWanted()) == []
    assert bench.buyer.phase is Phase.OVER


def test_a_job_without_a_lease_is_refused() -> None:
    bench = Bench().placed()
    bench.give(JobWanted(spec=job()))
    assert kinds(bench) == ["Tell"]


def test_an_opening_that_a_longer_chain_takes_back_is_waited_for_again() -> None:
    bench = Bench().placed()
    bench.give(bench.opened())
    bench.give(chain.ChainReorganised(block=bench.block - 1))
    assert bench.buyer.phase is Phase.PLACING
    bench.give(bench.opened())
    assert len(bench.notices(LeaseFunded)) == 1


def test_an_opening_in_a_block_that_stays_is_not_taken_back() -> None:
    bench = Bench().placed()
    bench.give(bench.opened())
    bench.give(chain.ChainAdvanced(block=bench.block + 1, at=T0 + 1))
    bench.give(chain.ChainReorganised(block=bench.block + 1))
    assert bench.buyer.phase is Phase.HOLDING
