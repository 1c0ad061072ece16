"""A stranger's audit: an honest market passes, and what a cheat changed is named first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.events import BidWithdrawn
from cloud_gpu.protocol.receipts import AHEAD_S_MAX
from cloud_gpu.protocol.rounds import (
    AccountCondition,
    Gone,
    PlacedBid,
    PublishedRound,
    RoundBody,
    Taken,
    Unmatched,
)
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from market.audit.auditing import INBOX_PATIENCE_MS
from market.lanes.round_lists import RoundLists
from tests.support.published import audited, journal_of, published, receipt_of, resealed
from tests.unit.market.builders import (
    NOW,
    Desk,
    advert,
    key,
    machine,
    opened,
    order,
    price,
)

CHEAP, DEAR = advert("ada", at="1.00"), advert("eve", at="1.40")
HIGH, LOW, LATER = order("bob", limit="1.80"), order("dan", limit="1.20"), order("dan", nonce=5)


@pytest.fixture
def rounds(desk: Desk) -> list[PublishedRound]:
    """Two rounds: a high bid takes the cheap ask, a low one waits; a later one takes the dear."""
    desk.hear(CHEAP, DEAR)
    desk.submit(HIGH, LOW)
    desk.end_round()
    desk.mine(opened(HIGH.bid.payload, machine("ada"), price(1), at_s=desk.now // 1000))
    desk.submit(LATER)
    desk.end_round()
    return published(journal_of(desk))


def test_an_honest_market_passes_and_the_audit_says_where_it_ends(
    rounds: list[PublishedRound],
) -> None:
    found, auditor = audited(rounds)
    assert found is None
    end = auditor.audited
    assert (end.rounds, end.orders, end.matches) == (2, 3, 2)
    assert end.head == rounds[-1].header.body.id
    assert end.journal == rounds[-1].header.body.facts.journal_to


def test_what_follows_from_a_body_is_what_the_header_must_say(rounds: list[PublishedRound]) -> None:
    assert resealed(rounds) == rounds


def id_of(signed: object) -> Digest:
    return Digest(signed.bid.payload.id.raw)  # type: ignore[attr-defined]


def given_to_the_low_one(body: RoundBody) -> RoundBody:
    (fill,) = body.fills
    assert isinstance(fill, Taken)
    lost = Unmatched(order=id_of(HIGH), reason="no-match")
    return replace(body, fills=(replace(fill, bid=id_of(LOW)),), unmatched=(lost,))


def dearer(body: RoundBody) -> RoundBody:
    (fill,) = body.fills
    assert isinstance(fill, Taken)
    return replace(body, fills=(replace(fill, price=Price(fill.price.value + 1000)),))


def twice(body: RoundBody) -> RoundBody:
    (fill,) = body.fills
    assert isinstance(fill, Taken)
    return replace(body, fills=(fill, replace(fill, bid=id_of(LOW))))


def dropped(body: RoundBody) -> RoundBody:
    return replace(body, fills=())


def luckier(body: RoundBody) -> RoundBody:
    return replace(body, orders=tuple(replace(each, tie=ZERO_DIGEST) for each in body.orders))


def older(body: RoundBody) -> RoundBody:
    return replace(body, orders=tuple(replace(each, batch=NOW - 9000) for each in body.orders))


def forged(body: RoundBody) -> RoundBody:
    (first, *rest) = body.orders
    assert isinstance(first, PlacedBid)
    bid = replace(first.order.bid, signature=LATER.bid.signature)
    return replace(body, orders=(replace(first, order=replace(first.order, bid=bid)), *rest))


def poorer(body: RoundBody) -> RoundBody:
    poor = [each for each in body.conditions if isinstance(each, AccountCondition)]
    rest = [each for each in body.conditions if not isinstance(each, AccountCondition)]
    return replace(body, conditions=(*rest, *(replace(each, cash=0, left=0) for each in poor)))


def left_out(body: RoundBody) -> RoundBody:
    return replace(body, orders=body.orders[1:], unmatched=())


def unread(body: RoundBody) -> RoundBody:
    return replace(body, arrivals=body.arrivals[1:])


def cheaper_to_lock(body: RoundBody) -> RoundBody:
    (fill,) = body.fills
    assert isinstance(fill, Taken)
    return replace(body, fills=(replace(fill, locked=TokenAmount(1)),))


@pytest.mark.parametrize(
    ("cheat", "field"),
    [
        (given_to_the_low_one, "fills 0x"),
        (dearer, "fills 0x"),
        (cheaper_to_lock, "fills 0x"),
        (twice, "fills"),
        (dropped, "fills 0x"),
        (luckier, "orders 0x"),
        (older, "orders 0x"),
        (forged, "orders 0x"),
        (poorer, "fills 0x"),
        (left_out, "orders 0x"),
        (unread, "arrivals"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_cheat_is_named_with_its_round_and_field(
    rounds: list[PublishedRound], cheat: Callable[[RoundBody], RoundBody], field: str
) -> None:
    cheated = resealed(rounds, lambda place, body: body if place else cheat(body))
    found, _ = audited(cheated)
    assert found is not None
    assert found.number == 1
    assert found.field.startswith(field)
    assert found.found != found.needed


def test_an_order_that_waits_cannot_leave_without_a_word_that_can_be(
    rounds: list[PublishedRound],
) -> None:
    def silently(place: int, body: RoundBody) -> RoundBody:
        gone = (*body.orders_gone, Gone(order=id_of(LOW), why="matched"))
        return replace(body, orders_gone=gone) if place else body

    found, _ = audited(resealed(rounds, silently))
    assert found is not None
    assert (found.number, found.field) == (2, f"orders_gone {id_of(LOW)}")


def test_a_body_that_the_signed_roots_do_not_cover_is_found(rounds: list[PublishedRound]) -> None:
    changed = replace(rounds[0], body=poorer(rounds[0].body))
    found, _ = audited([changed, *rounds[1:]])
    assert found is not None
    assert (found.number, found.field) == (1, "roots.conditions")


def test_rounds_of_another_key_are_found(rounds: list[PublishedRound]) -> None:
    found, _ = audited(resealed(rounds, signer=key("mallory")))
    assert found is not None
    assert (found.number, found.field) == (1, "header.signature")


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_round_is_found(rounds: list[PublishedRound], missing: int) -> None:
    """The last one only by whoever holds its header."""
    left = [each for place, each in enumerate(rounds) if place != missing]
    held = [rounds[-1].header]
    found, _ = audited(left, held=held)
    assert found is not None
    assert found.field == ("facts.number" if missing == 0 else "header")
    if missing:
        assert "the log was cut" in found.needed
        assert audited(left)[0] is None


def test_a_header_that_is_held_shows_a_history_written_anew(rounds: list[PublishedRound]) -> None:
    anew = resealed(rounds, lambda _, body: body, facts={"owners_min": 9})
    found, _ = audited(anew, held=[rounds[0].header])
    assert found is not None
    assert (found.number, found.field) == (1, "header")


def test_of_two_headers_of_one_round_none_hides_the_other(rounds: list[PublishedRound]) -> None:
    honest = rounds[0].header
    other = resealed(rounds, lambda _, body: body, facts={"owners_min": 9})[0].header
    for both in ([honest, other], [other, honest]):
        found, _ = audited(rounds, held=both)
        assert found is not None
        assert (found.number, found.field) == (1, "header")


def test_receipts_are_looked_up(rounds: list[PublishedRound]) -> None:
    mine, other = receipt_of(id_of(HIGH), 1), receipt_of(id_of(LATER), 2)
    found, auditor = audited(rounds, receipts=[mine])
    assert found is None
    assert auditor.audited.receipts == 1
    found, _ = audited(rounds, receipts=[mine, other])
    assert found is not None
    assert (found.number, found.field) == (1, "arrivals 2.order")


def test_two_receipts_of_one_place_cannot_both_be_right(rounds: list[PublishedRound]) -> None:
    honest, other = receipt_of(id_of(HIGH), 1), receipt_of(id_of(LATER), 1)
    for both in ([honest, other], [other, honest]):
        found, _ = audited(rounds, receipts=both)
        assert found is not None
        assert (found.number, found.field) == (1, "arrivals 1.order")
    found, auditor = audited(rounds, receipts=[honest, honest])
    assert found is None
    assert auditor.audited.receipts == 2


def test_a_receipt_is_not_dated_after_its_order_was_read(rounds: list[PublishedRound]) -> None:
    latest = rounds[0].header.body.facts.at + 1000 * AHEAD_S_MAX
    assert audited(rounds, receipts=[receipt_of(id_of(HIGH), 1, latest)])[0] is None
    found, _ = audited(rounds, receipts=[receipt_of(id_of(HIGH), 1, latest + 1)])
    assert found is not None
    assert (found.number, found.field) == (1, "receipt.received_at")


def test_a_receipt_that_is_not_read_for_long_is_found(desk: Desk) -> None:
    desk.hear(CHEAP)
    desk.submit(HIGH)
    desk.end_round()
    rounds = published(journal_of(desk))
    at = rounds[-1].header.body.facts.at
    fresh = receipt_of(id_of(LOW), 2, at)
    found, auditor = audited(rounds, receipts=[fresh])
    assert found is None
    assert auditor.audited.waiting == 1
    stale = receipt_of(id_of(LOW), 2, at - INBOX_PATIENCE_MS - 1)
    found, _ = audited(rounds, receipts=[stale])
    assert found is not None
    assert found.field == "receipt"


def test_a_cancelled_bid_may_leave(desk: Desk) -> None:
    desk.hear(CHEAP)
    desk.submit(order("dan", limit="0.50"))
    desk.end_round()
    desk.inbox += 1
    desk.tell(BidWithdrawn(bid=order("dan", limit="0.50").bid.payload.id, inbox=desk.inbox))
    desk.submit(HIGH)
    desk.end_round()
    found, auditor = audited(published(journal_of(desk)))
    assert found is None
    assert auditor.audited.orders == 3
    assert isinstance(auditor.on_demand.lists, RoundLists)
