"""Block auctions audited by strangers: cleared again from the record, and what a cheat changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.auctions import AuctionReport, LossReason
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import PublishRound, ReportAuction
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.rounds import (
    Gone,
    Lane,
    PlacedBid,
    ProductCondition,
    PublishedRound,
    RoundBody,
    RoundHeader,
    Taken,
    Unmatched,
)
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest, keccak256
from market.receipts import header_signer
from tests.support.published import audited, journal_of, published, resealed
from tests.unit.market.builders import (
    MARKET_KEY,
    NOW_S,
    SEALED,
    Desk,
    advert,
    joined,
    order,
    price,
    skip,
)
from tests.unit.market.test_block_auctions import BLOCKS, WINDOW_S, block, desk

__all__ = ["desk"]

MARKET = MARKET_KEY.address
ASKS = (
    advert("ada", 0, at="1.00"),
    advert("ada", 1, at="1.10"),
    advert("eve", 0, at="1.20"),
    advert("eve", 1, at="1.30"),
)
GANG = block("dan", "2.00", duration=7_200, count=2, nonce=1)
HOUR, TWO_HOURS = block("bob", "1.50"), block("bob", "1.45", duration=7_200)
LONG = block("dan", "1.35", duration=18_000, nonce=2)
SHORT = block("dan", "1.40", nonce=3)
LOW = block("bob", "1.31", nonce=4)
POOR = block("ann", "9.00")
HOPELESS = block("bob", "0.50", nonce=5)
AT_ONCE = order("dan", limit="0.50", nonce=9)
ALL = (GANG, HOUR, TWO_HOURS, LONG, SHORT, LOW, POOR, HOPELESS)
REASONS = {
    HOUR: LossReason.ALTERNATIVE,
    SHORT: LossReason.PARADOXICAL,
    LOW: LossReason.PRICE,
    POOR: LossReason.CASH,
    HOPELESS: LossReason.INFEASIBLE,
}


def id_of(signed: SignedBid | SignedAdvert) -> Digest:
    found = signed.bid.payload.id if isinstance(signed, SignedBid) else signed.body.ask.payload.id
    return Digest(found.raw)


def auction_of(desk: Desk) -> Desk:
    """A round of lane A, then an auction in which every kind of loss occurs."""
    desk.mine(*joined("ann", 1))
    desk.hear(*ASKS)
    desk.submit(*ALL, AT_ONCE)
    desk.end_round()
    desk.mine()
    desk.pass_time(WINDOW_S * 1_000)
    return desk


@pytest.fixture
def rounds(desk: Desk) -> list[PublishedRound]:
    return published(journal_of(auction_of(desk), BLOCKS))


def test_an_auction_is_published_whole_and_a_stranger_clears_it_again(desk: Desk) -> None:
    rounds = published(journal_of(auction_of(desk), BLOCKS))
    assert [each.header.body.facts.lane for each in rounds] == [Lane.ON_DEMAND, Lane.BLOCK]
    assert resealed(rounds) == rounds
    found, auditor = audited(rounds)
    assert found is None, str(found)
    assert (auditor.audited.rounds, auditor.audited.matches) == (2, 4)
    body = rounds[1].body
    assert {row.order for row in body.orders if isinstance(row, PlacedBid)} == set(ALL)
    assert {row.order: row.reason for row in body.unmatched} == {
        id_of(bid): why.value for bid, why in REASONS.items()
    }
    assert {row.price for row in body.fills if isinstance(row, Taken)} == {price("1.35")}
    (told,) = [each.report for each in desk.effects if isinstance(each, ReportAuction)]
    assert is_what_was_told(told, body)


def is_what_was_told(told: AuctionReport, body: RoundBody) -> bool:
    """The report, which nobody signs, says no other than the round."""
    fills = {
        (fill.bid, ask, fill.price)
        for one in told.classes
        for fill in one.fills
        for ask in fill.asks
    }
    taken = {(row.bid, row.ask, row.price) for row in body.fills if isinstance(row, Taken)}
    losses = {(loss.bid, loss.why.value) for loss in told.losses}
    return fills == taken and losses == {(row.order, row.reason) for row in body.unmatched}


def test_before_its_auction_a_round_says_of_a_block_that_it_came_and_nothing_else(
    desk: Desk,
) -> None:
    auction_of(desk)
    (first, _) = [each for each in desk.effects if isinstance(each, PublishRound)]
    assert [row.key for row in first.body.orders] == [str(id_of(AT_ONCE))]
    assert first.body.orders_gone == ()
    assert [each.kind for each in first.body.arrivals] == [*["block"] * len(ALL), "bid"]
    for bid in ALL:
        assert str(bid.bid.signature).encode() not in to_json(first)


def test_losers_stay_published_until_they_leave_and_the_next_auction_follows(desk: Desk) -> None:
    auction_of(desk)
    skip(desk, RejectReason.MACHINE_NOT_FREE, "ask.index")
    desk.submit(block("dan", "3.00", nonce=7), later := block("bob", wanting=AFTER, nonce=8))
    desk.mine()
    desk.pass_time(WINDOW_S * 1_000)
    desk.mine()
    desk.pass_time(WINDOW_S * 1_000)
    rounds = published(journal_of(desk, BLOCKS))
    found, auditor = audited(rounds)
    assert found is None, str(found)
    auctions = [each.body for each in rounds if each.header.body.facts.lane is Lane.BLOCK]
    assert len(auctions) == 3
    assert id_of(LOW) not in {id_of_row(row) for row in auctions[1].orders}
    assert str(id_of(LOW)) in auditor.blocks.lists.orders.rows
    assert Gone(order=id_of(later), why="waiting") in auctions[1].orders_gone
    assert id_of(later) in {id_of_row(row) for row in auctions[2].orders}


AFTER = replace(SEALED, start_from=NOW_S + 2 * WINDOW_S + 5)


def id_of_row(row: object) -> Digest:
    assert isinstance(row, PlacedBid)
    return Digest(row.order.bid.payload.id.raw)


def test_one_round_means_one_auction_in_the_record_too(desk: Desk) -> None:
    desk.submit(once := block(wanting=replace(SEALED, one_round=True)), LOW)
    for _ in range(2):
        desk.mine()
        desk.pass_time(WINDOW_S * 1_000)
    assert desk.report(once).state is BidState.EXPIRED
    rounds = published(journal_of(desk, BLOCKS))
    assert rounds[1].body.orders_gone == (Gone(order=id_of(once), why="expired"),)
    assert audited(rounds)[0] is None


# Cheats.


def with_fills(body: RoundBody, fills: Sequence[object]) -> RoundBody:
    rows = [row for row in fills if isinstance(row, Taken)]
    return replace(body, fills=tuple(sorted(rows, key=lambda row: row.key)))


def another_winner(body: RoundBody) -> RoundBody:
    """SHORT gets what LONG should have."""
    changed = [
        replace(row, bid=id_of(SHORT)) if isinstance(row, Taken) and row.bid == id_of(LONG) else row
        for row in body.fills
    ]
    lost = [row for row in body.unmatched if row.order != id_of(SHORT)]
    lost.append(Unmatched(order=id_of(LONG), reason="price"))
    return replace(with_fills(body, changed), unmatched=tuple(lost))


def another_price(body: RoundBody) -> RoundBody:
    """Within all limits, below what the rule gives; cash is locked to suit."""
    return priced(body, "1.32")


def priced(body: RoundBody, at: str) -> RoundBody:
    changed = []
    for row in body.fills:
        assert isinstance(row, Taken)
        amount = row.locked.value * price(at).value // row.price.value
        changed.append(replace(row, price=price(at), locked=type(row.locked)(amount)))
    return with_fills(body, changed)


def a_bid_left_out(body: RoundBody) -> RoundBody:
    orders = tuple(row for row in body.orders if row.key != str(id_of(SHORT)))
    unmatched = tuple(row for row in body.unmatched if row.order != id_of(SHORT))
    return replace(body, orders=orders, unmatched=unmatched)


def a_bid_said_to_wait(body: RoundBody) -> RoundBody:
    """SHORT is kept out by a word, and the matches stay what they were with it."""
    gone = Gone(order=id_of(SHORT), why="waiting")
    return replace(a_bid_left_out(body), orders_gone=(*body.orders_gone, gone))


def a_bid_put_in(body: RoundBody) -> RoundBody:
    (like, *_) = body.orders
    assert isinstance(like, PlacedBid)
    return replace(body, orders=(*body.orders, replace(like, order=block("dan", "1.34", nonce=6))))


def a_bid_of_lane_a(body: RoundBody) -> RoundBody:
    (like, *_) = body.orders
    assert isinstance(like, PlacedBid)
    mine = replace(like, order=AT_ONCE)
    return replace(body, orders=(*body.orders, mine))


def an_ask_left_out(body: RoundBody) -> RoundBody:
    return replace(body, asks=tuple(row for row in body.asks if row.key != str(id_of(ASKS[0]))))


def another_reason(body: RoundBody) -> RoundBody:
    changed = (
        replace(row, reason="price") if row.reason == "paradoxical" else row
        for row in body.unmatched
    )
    return replace(body, unmatched=tuple(changed))


def a_product_unsaid(body: RoundBody) -> RoundBody:
    rest = tuple(row for row in body.conditions if not isinstance(row, ProductCondition))
    return replace(body, conditions=rest)


def luckier(body: RoundBody) -> RoundBody:
    return replace(body, orders=tuple(replace(each, tie=ZERO_DIGEST) for each in body.orders))


@pytest.mark.parametrize(
    ("cheat", "field"),
    [
        (another_winner, "fills 0x"),
        (another_price, "fills 0x"),
        (a_bid_left_out, "orders 0x"),
        (a_bid_said_to_wait, "fills 0x"),
        (a_bid_put_in, "orders 0x"),
        (a_bid_of_lane_a, "orders 0x"),
        (an_ask_left_out, "fills 0x"),
        (another_reason, "unmatched 0x"),
        (a_product_unsaid, "conditions product 1"),
        (luckier, "orders 0x"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_cheat_is_named_with_its_round_and_field(
    rounds: list[PublishedRound], cheat: Callable[[RoundBody], RoundBody], field: str
) -> None:
    found, _ = audited(resealed(rounds, lambda place, body: cheat(body) if place else body))
    assert found is not None
    assert found.number == 2
    assert found.field.startswith(field), str(found)
    assert found.found != found.needed


def test_a_search_with_another_seed_is_found(rounds: list[PublishedRound]) -> None:
    said = rounds[1].header.body
    other = replace(said.facts, seed=keccak256(b"luck"))
    header = RoundHeader(facts=other, before=said.before, journal_head=said.journal_head)
    again = PublishedRound(header=header_signer(MARKET_KEY)(header), body=rounds[1].body)
    found, _ = audited([rounds[0], again])
    assert found is not None
    assert (found.number, found.field) == (2, "facts.seed")


def test_two_auctions_in_one_window_are_found(desk: Desk) -> None:
    desk.submit(LOW)
    for _ in range(2):
        desk.mine()
        desk.pass_time(WINDOW_S * 1_000)
        desk.submit(HOPELESS)
    rounds = published(journal_of(desk, BLOCKS))
    assert [each.header.body.facts.lane for each in rounds] == [Lane.BLOCK] * 2
    assert audited(rounds)[0] is None
    at = rounds[0].header.body.facts.at
    found, _ = audited(resealed(rounds, facts={"at": at + 1}))
    assert found is not None
    assert (found.number, found.field) == (2, "facts.at")


def test_a_block_that_is_published_in_a_round_of_lane_a_is_found(
    rounds: list[PublishedRound],
) -> None:
    (placed,) = (row for row in rounds[1].body.orders if row.key == str(id_of(LOW)))

    def leak(place: int, body: RoundBody) -> RoundBody:
        return body if place else replace(body, orders=(*body.orders, placed))

    found, _ = audited(resealed(rounds, leak))
    assert found is not None
    assert (found.number, found.field) == (1, f"orders {id_of(LOW)}.terms.block")
