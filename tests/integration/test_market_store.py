"""The store on both databases: order, durability, refusals in words."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloud_gpu.protocol.effects import (
    ListAsk,
    ListProduct,
    ReportBid,
    ReportLease,
    UnlistAsk,
)
from cloud_gpu.protocol.events import BidSubmitted, BidWithdrawn
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import Cancellation
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import TokenAmount
from market.books.ledger import Ledger
from market.ports import Kept, OrderKind
from market.store.database import Database
from market.store.inbox import SqlInbox
from market.store.views import SqlBook
from tests.unit.market.builders import (
    DOMAIN,
    NOW,
    NOW_S,
    RULES,
    advert,
    key,
    machine,
    opened,
    order,
    price,
    product,
    profile,
    sound,
    standing,
)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = Database(database_url)
    found.create(RULES.owner)
    yield found
    found.close()


# The inbox.


def test_positions_count_without_gaps_and_a_place_is_given_once(database: Database) -> None:
    inbox = SqlInbox(database)
    first, second, third = (order("bob", nonce=n) for n in (1, 2, 3))
    assert inbox.keep([sound(first)], NOW) == [Kept(position=1, received_at=NOW, is_new=True)]
    assert inbox.keep([sound(each) for each in (second, first, third, third)], NOW + 99) == [
        Kept(position=2, received_at=NOW + 99, is_new=True),
        Kept(position=1, received_at=NOW, is_new=False),
        Kept(position=3, received_at=NOW + 99, is_new=True),
        Kept(position=3, received_at=NOW + 99, is_new=False),
    ]
    assert [event.inbox for event in inbox.after(0, 10)] == [1, 2, 3]
    assert inbox.after(1, 1) == [BidSubmitted(order=second, inbox=2)]
    again = Kept(position=1, received_at=NOW, is_new=False)
    assert inbox.kept(OrderKind.BID, first.bid.payload.id) == again
    assert inbox.kept(OrderKind.BID, order("eve").bid.payload.id) is None
    assert inbox.bid(second.bid.payload.id) == second


def test_a_cancellation_takes_one_place_behind_its_bid(database: Database) -> None:
    inbox, bid = SqlInbox(database), order("bob")
    inbox.keep([sound(bid)], NOW)
    body = Cancellation(bid=bid.bid.payload.id)
    cancellation = state(body, DOMAIN, key("bob"), nonce=1, expiry=NOW_S + 9)
    assert inbox.keep_cancellation(cancellation, NOW) == 2
    assert inbox.keep_cancellation(cancellation, NOW) == 2
    assert inbox.after(1, 10) == [BidWithdrawn(bid=body.bid, inbox=2)]


def test_many_writers_at_once_lose_no_order_and_share_no_position(
    database: Database, database_url: str
) -> None:
    """Each writer has connections of its own, as other processes have."""
    orders = [order("bob", nonce=n) for n in range(60)]
    bids = [sound(each) for each in orders]
    others = [Database(database_url) for _ in range(3)]
    inboxes = [SqlInbox(each) for each in (database, *others)]
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda n: inboxes[n % 4].keep([bids[n]], NOW)[0], range(len(bids))))
    assert sorted(each.position for each in kept) == list(range(1, 61))
    found = {
        event.order.bid.payload.id
        for event in inboxes[0].after(0, 100)
        if isinstance(event, BidSubmitted)
    }
    assert found == {each.bid.payload.id for each in orders}
    for each in others:
        each.close()


def test_a_reader_never_sees_a_position_before_all_that_precede_it(
    database: Database, database_url: str
) -> None:
    """Without the turn, a later position could be committed and read before an earlier one."""
    other, inbox = Database(database_url), SqlInbox(database)
    batches = [[sound(order("bob", nonce=10 * n + k)) for k in range(1 + n % 3)] for n in range(24)]
    total = sum(len(batch) for batch in batches)
    seen: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        writing = [
            pool.submit(SqlInbox((database, other)[n % 2]).keep, batch, NOW)
            for n, batch in enumerate(batches)
        ]
        is_over = False
        while not is_over:
            is_over = all(each.done() for each in writing)
            found = inbox.after(seen[-1] if seen else 0, 100)
            seen += [event.inbox for event in found]
            assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == total
    other.close()


# The public tables.


def test_asks_are_found_by_words_of_their_class_cheapest_first(database: Database) -> None:
    view = SqlBook(database)
    ledger = Ledger(RULES.bond_unit)
    ledger.apply(product())
    cheap, dear = advert("ada", 0, at="0.90"), advert("ada", 1, at="1.20")
    other = advert("eve", at="1.00", hardware=profile(gpu_class="H100-SXM5-80GB"))
    view.write(
        [ListAsk(ask=each.body.ask.payload.id, advert=each) for each in (dear, other, cheap)]
    )
    assert view.asks("", 10, NOW_S) == [cheap, other, dear]
    assert view.asks("a100", 10, NOW_S) == [cheap, dear]
    assert view.asks("A100 80GB", 1, NOW_S) == [cheap]
    assert view.asks("A10", 10, NOW_S) == []
    assert view.asks("", 10, NOW_S + 600) == []
    view.write([UnlistAsk(ask=cheap.body.ask.payload.id)])
    assert view.asks("A100", 10, NOW_S) == [dear]
    view.clear_asks()
    assert view.asks("", 10, NOW_S) == []
    view.write([ListProduct(product=ledger.products[1])])
    assert view.products() == [ledger.products[1]]


def test_a_report_replaces_the_one_before(database: Database) -> None:
    view, bid = SqlBook(database), order("bob").bid.payload.id
    assert view.report(bid) is None
    for state_ in (BidState.PENDING, BidState.MATCHED):
        view.write([ReportBid(report=BidReport(bid=bid, state=state_))])
    report = view.report(bid)
    assert report is not None
    assert report.state is BidState.MATCHED
    assert view.waiting(10) == []


def test_leases_are_found_by_every_filter(database: Database) -> None:
    view, bid = SqlBook(database), order("bob").bid.payload
    events = [opened(bid, machine("ada"), price(1), seq=n, at_s=NOW_S + n) for n in (1, 2)]
    reports = [
        LeaseReport(terms=event.terms, bid=event.bid, state=state_, paid=TokenAmount(0))
        for event, state_ in zip(events, (LeaseState.CLOSED, LeaseState.ACTIVE), strict=True)
    ]
    view.write([ReportLease(report=each) for each in reports])
    assert view.leases() == reports[::-1]
    assert view.leases(state=LeaseState.ACTIVE) == [reports[1]]
    assert (
        view.leases(buyer=bid.buyer, provider=machine("ada").provider, bid=bid.id) == reports[::-1]
    )
    assert view.leases(provider=bid.buyer) == []
    assert view.leases(count_max=1) == [reports[1]]


def test_the_newest_word_of_the_market_replaces_the_one_before(database: Database) -> None:
    view = SqlBook(database)
    assert view.standing() is None
    for at in (NOW, NOW + 1):
        view.stand(standing(at))
    assert view.standing() == standing(NOW + 1)
