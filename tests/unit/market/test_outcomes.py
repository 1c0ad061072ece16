"""What the chain makes of a market's openings: refused, lost, late, replaced."""

from __future__ import annotations

from cloud_gpu.protocol.chain_events import (
    ChainReorganised,
    EntrySkipped,
    TransactionFailed,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import BidWithdrawn
from cloud_gpu.protocol.match import BidState
from tests.unit.market.builders import (
    NOW_S,
    RULES,
    Desk,
    advert,
    batches,
    joined,
    machine,
    match_one,
    opened,
    order,
    pairs,
    price,
    skip,
)


def test_a_skip_for_the_asks_fault_frees_the_bid_for_the_next_ask(desk: Desk) -> None:
    bad, good, wanted = advert("ada", at="1.00"), advert("eve", at="1.10"), order("bob")
    desk.hear(bad, good)
    desk.submit(wanted)
    desk.end_round()
    skip(desk, RejectReason.BOND_TOO_LOW, "ask.index")
    assert pairs(desk.end_round()) == [(wanted.bid.payload.id, good.body.ask.payload.id)]
    again = desk.market.examine(bad, desk.now)
    assert again is not None
    assert again.reason is RejectReason.DUPLICATE


def test_a_skip_for_the_bids_fault_rejects_it_and_frees_the_machine(desk: Desk) -> None:
    desk.hear(advert("ada"))
    poor, other = order("bob"), order("dan")
    desk.submit(poor)
    desk.end_round()
    skip(desk, RejectReason.CASH_TOO_LOW, "bid.buyer")
    report = desk.report(poor)
    assert report.state is BidState.REJECTED
    assert report.rejection is not None
    assert report.rejection.reason is RejectReason.CASH_TOO_LOW
    desk.submit(other)
    assert [bid for bid, _ in pairs(desk.end_round())] == [other.bid.payload.id]


def test_a_refusal_of_an_older_transaction_does_not_touch_the_newer_one(desk: Desk) -> None:
    _, wanted = match_one(desk)
    (given_up,) = batches(desk.effects)
    desk.pass_time(RULES.settle_ms)
    desk.mine()
    desk.hear(advert("ada", start_by=NOW_S + 900, announced=2))
    desk.pass_time(3_000)
    assert desk.report(wanted).state is BidState.MATCHED
    rejection = Rejection(reason=RejectReason.CASH_TOO_LOW, field="bid.buyer")
    assert batches(desk.effects)[-1] != given_up
    desk.mine(EntrySkipped(call=given_up, position=0, rejection=rejection))
    assert desk.report(wanted).state is BidState.MATCHED


def test_a_failed_transaction_is_tried_again_later_each_time_and_then_given_up(desk: Desk) -> None:
    _, wanted = match_one(desk)
    waits = []
    while desk.report(wanted).state is BidState.MATCHED:
        (batch,) = batches(desk.effects)[-1:]
        before, count = desk.now, len(batches(desk.effects))
        desk.mine(TransactionFailed(call=batch, error="LeaseBook_OpeningsPaused(until=5)"))
        while len(batches(desk.effects)) == count and desk.market.deadline is not None:
            desk.end_round()
            desk.mine()
            if desk.report(wanted).state is BidState.REJECTED:
                break
        waits.append(desk.now - before)
    assert len(waits) == RULES.openings_max
    assert waits[:-1] == sorted(waits[:-1])
    why = desk.report(wanted).rejection
    assert why is not None
    assert why.found.startswith("LeaseBook_OpeningsPaused")


def test_an_opening_that_nobody_answers_is_given_up_and_matched_again(desk: Desk) -> None:
    _, wanted = match_one(desk)
    desk.pass_time(RULES.settle_ms)
    assert desk.report(wanted).state is BidState.PENDING
    desk.mine()
    desk.pass_time(3_000)
    assert desk.report(wanted).state is BidState.MATCHED


def test_the_chains_word_counts_also_when_it_comes_after_the_bid_was_given_up(desk: Desk) -> None:
    wanted = order("bob", start_by=NOW_S + 30)
    desk.hear(advert("ada"))
    desk.submit(wanted)
    desk.end_round()
    desk.pass_time(RULES.settle_ms + 1_000)
    assert desk.report(wanted).state is BidState.EXPIRED
    desk.mine(opened(wanted.bid.payload, machine("ada"), price(1)))
    assert desk.report(wanted).state is BidState.OPENED


def test_a_late_opening_is_not_reported_at_the_price_of_a_newer_ask(desk: Desk) -> None:
    _, wanted = match_one(desk)
    desk.pass_time(RULES.settle_ms)
    desk.mine()
    dearer = advert("ada", at="9.00", start_by=NOW_S + 900, announced=2)
    desk.hear(dearer)
    desk.mine(opened(wanted.bid.payload, machine("ada"), price(1)))
    report = desk.report(wanted)
    assert (report.state, report.price, report.adverts) == (BidState.OPENED, None, (dearer,))


def test_a_withdrawn_bid_is_forgotten_unless_its_opening_is_on_its_way(desk: Desk) -> None:
    waiting, on_its_way = order("bob", nonce=1, limit="0.10"), order("dan")
    desk.hear(advert("ada"))
    desk.submit(waiting, on_its_way)
    desk.end_round()
    desk.tell(BidWithdrawn(bid=waiting.bid.payload.id, inbox=7))
    desk.tell(BidWithdrawn(bid=on_its_way.bid.payload.id, inbox=8))
    assert desk.report(waiting).state is BidState.CANCELLED
    assert desk.report(on_its_way).state is BidState.MATCHED
    skip(desk, RejectReason.MACHINE_NOT_FREE, "ask.index")
    assert desk.report(on_its_way).state is BidState.CANCELLED
    assert desk.market.status().inbox == 8


def test_a_reorganisation_takes_an_opened_lease_back_until_it_is_mined_again(desk: Desk) -> None:
    _, wanted = match_one(desk)
    before = desk.block
    lease = opened(wanted.bid.payload, machine("ada"), price(1))
    desk.mine(lease)
    assert desk.report(wanted).state is BidState.OPENED
    desk.tell(ChainReorganised(block=before))
    assert desk.report(wanted).state is BidState.MATCHED
    assert desk.market.status().openings == 1
    desk.mine(lease)
    assert desk.report(wanted).state is BidState.OPENED


def test_a_reorganisation_of_later_blocks_leaves_an_opened_lease_alone(desk: Desk) -> None:
    _, wanted = match_one(desk)
    desk.mine(opened(wanted.bid.payload, machine("ada"), price(1)))
    desk.mine(*joined("late", 1))
    desk.tell(ChainReorganised(block=desk.block - 1))
    assert desk.report(wanted).state is BidState.OPENED
    assert desk.market.status().openings == 0
