"""Published rounds: complete, small, and the same from the same journal."""

from __future__ import annotations

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.events import BidWithdrawn
from cloud_gpu.protocol.merkle import leads_to
from cloud_gpu.protocol.rounds import Lane, PlacedBid, PublishedRound, Taken
from cloud_gpu.protocol.ties import subject_of_ask, tie_of
from market.lanes.round_lists import ROOTS, RoundLists, tree_of
from tests.support.published import journal_of, published
from tests.unit.market.builders import (
    MARKET_KEY,
    RULES,
    Desk,
    advert,
    machine,
    opened,
    order,
    price,
)


def test_a_round_says_who_took_part_what_was_free_and_what_came_of_it(desk: Desk) -> None:
    cheap, dear, wanted, poor = advert("ada"), advert("eve", at="1.40"), order("bob"), order("ann")
    desk.hear(cheap, dear)
    desk.submit(wanted, poor)
    desk.end_round()
    (found,) = published(journal_of(desk))
    facts, body = found.header.body.facts, found.body
    assert (facts.number, facts.lane, facts.batch) == (1, Lane.ON_DEMAND, 1)
    assert (facts.inbox_from, facts.inbox_to) == (1, 2)
    assert {row.order for row in body.orders if isinstance(row, PlacedBid)} == {wanted, poor}
    by_price = sorted(body.asks, key=lambda row: row.advert.body.ask.payload.min_price_per_hour)
    assert [row.advert for row in by_price] == [cheap, dear]
    (fill,) = body.fills
    assert isinstance(fill, Taken)
    assert (fill.ask, fill.bid) == (cheap.body.ask.payload.id, wanted.bid.payload.id)
    assert [row.order for row in body.unmatched] == [poor.bid.payload.id]
    assert body.unmatched[0].reason == "unknown-account"
    assert [(each.inbox, each.kind, each.refused) for each in body.arrivals] == [
        (1, "bid", ""),
        (2, "bid", ""),
    ]
    assert body.rules == to_json(RULES).decode()
    assert from_json(to_json(found), PublishedRound) == found


def test_the_lists_behind_the_roots_follow_from_the_bodies(desk: Desk) -> None:
    desk.hear(advert("ada"), advert("eve", at="1.40"))
    desk.submit(order("bob"), order("dan", limit="0.50"))
    desk.end_round()
    desk.submit(order("dan", limit="0.60", nonce=7))
    desk.end_round()
    rounds, lists = published(journal_of(desk)), RoundLists()
    assert len(rounds) == 2
    for each in rounds:
        lists.apply(each.body)
        assert lists.roots == each.header.body.facts.roots
    tree = tree_of(lists.entries("orders"))
    for place, entry in enumerate(lists.entries("orders")):
        assert leads_to(rounds[-1].header.body.facts.roots.orders, entry, tree.path(place))
    assert set(ROOTS) == set(rounds[0].header.body.facts.roots.__struct_fields__)


def test_only_what_changed_is_said_again_and_why_an_order_is_gone(desk: Desk) -> None:
    desk.hear(advert("ada"), advert("eve", at="1.40"))
    desk.submit(filled := order("bob"), order("dan", limit="0.50"))
    desk.end_round()
    desk.mine(opened(filled.bid.payload, machine("ada"), price(1), at_s=desk.now // 1000))
    desk.submit(gone := order("dan", limit="0.55", nonce=3))
    desk.tell(BidWithdrawn(bid=gone.bid.payload.id, inbox=4))
    desk.submit(new := order("dan", limit="0.60", nonce=7))
    desk.end_round()
    body = published(journal_of(desk))[1].body
    assert [row.key for row in body.orders] == [str(new.bid.payload.id)], "not the one that stays"
    assert {(each.order, each.why) for each in body.orders_gone} == {
        (filled.bid.payload.id, "opened"),
        (gone.bid.payload.id, "cancelled"),
    }
    assert body.asks == ()
    assert body.asks_gone == (str(advert("ada").body.ask.payload.id),)
    assert body.rules == ""


def test_a_renewed_ask_keeps_a_tie_key_that_anybody_can_compute(desk: Desk) -> None:
    desk.hear(advert("ada"))
    desk.submit(order("bob", limit="0.50"))
    desk.end_round()
    desk.hear(
        renewed := advert("ada", announced=2, start_by=advert("ada").body.ask.payload.start_by + 9)
    )
    desk.submit(order("bob", limit="0.60", nonce=4))
    desk.end_round()
    first, second = published(journal_of(desk))
    (before,), (after,) = first.body.asks, second.body.asks
    assert after.advert == renewed
    assert (before.batch, before.tie) == (after.batch, after.tie)
    (batch,) = (each for each in first.body.batches if each.batch == after.batch)
    assert after.tie == tie_of(batch.seed, subject_of_ask(renewed.body.ask.payload))


def test_two_runs_of_one_journal_publish_the_same_bytes(desk: Desk) -> None:
    desk.hear(advert("ada"))
    desk.submit(order("bob"))
    desk.end_round()
    journal = journal_of(desk)
    assert to_json(published(journal)) == to_json(published(journal))
    assert published(journal)[0].header.body.facts.market == MARKET_KEY.address
