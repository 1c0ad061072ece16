"""Gangs from bid to leases: one transaction, all machines held, all of them free again or let."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.chain_events import ChainReorganised, EntrySkipped
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import BidFlags, Scope, SignedBid, Terms
from cloud_gpu.protocol.units import BasisPoints
from tests.unit.market.builders import (
    NOW_S,
    RULES,
    Desk,
    advert,
    gangs,
    joined,
    machine,
    opened,
    order,
    pairs,
    price,
    provider,
)


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.mine(*provider("ada", 4), *joined("bob", 100), *joined("dan", 100))
    found.hear(*(advert("ada", n, at=f"1.{n}") for n in range(4)))
    return found


def wanted(count: int, *, buyer: str = "bob", nonce: int = 0, limit: str = "1.50") -> SignedBid:
    return order(buyer, count=count, nonce=nonce, limit=limit, flags=int(BidFlags.PAY_AS_ASK))


def open_all(desk: Desk, bid: SignedBid, count: int) -> None:
    desk.mine(*(opened(bid.bid.payload, machine("ada", n), price(f"1.{n}")) for n in range(count)))


def test_a_gang_is_one_transaction_and_holds_its_machines(desk: Desk) -> None:
    bid, single = wanted(3), order("dan", limit="1.40", nonce=1)
    desk.submit(bid, single)
    effects = desk.end_round()
    (call,) = gangs(effects)
    assert [ask.payload.index for ask in call.asks] == [0, 1, 2]
    assert call.price == price("1.2")
    assert len(pairs(effects)) == 4, "the fourth machine went to the other bid"
    report = desk.report(bid)
    assert (report.state, len(report.adverts)) == (BidState.MATCHED, 3)
    assert report.explanation is not None
    assert report.explanation.price.startswith(
        "Each of 3 machines is paid what it asks, 1.00 to 1.20"
    )


def test_a_gang_that_opened_is_reported_with_all_its_leases(desk: Desk) -> None:
    bid = wanted(3)
    desk.submit(bid)
    desk.end_round()
    open_all(desk, bid, 3)
    report = desk.report(bid)
    assert report.state is BidState.OPENED
    assert [lease.index for lease in report.leases] == [0, 1, 2]
    assert len(report.adverts) == 3
    assert desk.market.status().openings == 0


def test_a_gang_that_is_refused_frees_every_machine_and_is_matched_without_the_bad_one(
    desk: Desk,
) -> None:
    bid = wanted(3)
    desk.submit(bid)
    (call,) = gangs(desk.end_round())
    stale = Rejection(reason=RejectReason.STALE_SEQUENCE, field="ask.seq", found="x", needed="y")
    desk.mine(EntrySkipped(call=call, position=1, rejection=stale))
    (again,) = gangs(desk.end_round())
    assert [ask.payload.index for ask in again.asks] == [0, 2, 3]


def test_a_gang_without_an_answer_is_given_up_whole(desk: Desk) -> None:
    bid = wanted(4)
    desk.submit(bid)
    desk.end_round()
    desk.pass_time(RULES.settle_ms)
    desk.mine()
    report = desk.report(bid)
    assert (report.state, report.leases) == (BidState.PENDING, ())
    assert len(desk.market.adverts()) == 4


def test_a_reorganisation_takes_a_gang_back_and_holds_its_machines_again(desk: Desk) -> None:
    bid = wanted(2)
    desk.submit(bid)
    desk.end_round()
    kept = desk.block
    open_all(desk, bid, 2)
    desk.tell(ChainReorganised(block=kept))
    report = desk.report(bid)
    assert (report.state, len(report.adverts)) == (BidState.MATCHED, 2)
    assert {each.body.ask.payload.index for each in desk.market.adverts()} == {2, 3}
    open_all(desk, bid, 2)
    assert [lease.index for lease in desk.report(bid).leases] == [0, 1]


def test_the_smaller_count_is_taken_when_the_greater_is_not_there(desk: Desk) -> None:
    many, few = wanted(5), wanted(4)
    desk.submit(many, few)
    (call,) = gangs(desk.end_round())
    assert call.bid.payload.count == 4
    open_all(desk, few, 4)
    assert desk.report(many).state is BidState.CANCELLED


def test_a_gang_that_is_too_large_is_told_how_many_there_are(desk: Desk) -> None:
    bid = wanted(5)
    desk.submit(bid)
    desk.end_round()
    report = desk.report(bid)
    assert report.rejection is not None
    assert (report.rejection.field, report.rejection.needed) == ("bid.count", "5")
    assert report.rejection.found == "4 fitting GPUs that are free"
    assert "4 GPUs" in report.rejection.next


def test_a_bid_waits_for_its_start_window(desk: Desk) -> None:
    later = order("bob", wanting=Terms(start_from=NOW_S + 60))
    desk.submit(later)
    desk.end_round()
    assert desk.report(later).state is BidState.PENDING
    desk.mine()
    desk.pass_time(59_000)
    desk.mine()
    desk.pass_time(2_000)
    assert desk.report(later).state is BidState.MATCHED


def test_a_gang_that_talks_much_takes_dearer_machines_that_are_nearer() -> None:
    desk = Desk()
    desk.mine(*provider("ada", 2), *provider("eve", 2), *joined("bob", 100))
    offered = [advert("ada", n, at="1.00", host=f"far{n}") for n in range(2)]
    offered += [advert("eve", n, at="1.10") for n in range(2)]
    desk.hear(*offered)
    terms = Terms(scope=Scope.ANY, communication=BasisPoints(4_000))
    bids = [
        order("bob", count=2, nonce=1, flags=int(BidFlags.PAY_AS_ASK), wanting=terms),
        wanted(2, nonce=2, limit="1.40"),
    ]
    desk.submit(*bids)
    near, far = gangs(desk.end_round())
    assert {ask.payload.provider for ask in near.asks} == {machine("eve").provider}
    assert {ask.payload.provider for ask in far.asks} == {machine("ada").provider}
