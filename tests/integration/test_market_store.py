"""The store on both databases: order, durability, the chain of hashes, refusals in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import (
    ListAsk,
    ListProduct,
    MarketEffect,
    PublishRound,
    ReportBid,
    ReportLease,
    Transact,
    UnlistAsk,
)
from cloud_gpu.protocol.errors import StorageFailed
from cloud_gpu.protocol.events import AskHeard, BidSubmitted, BidWithdrawn
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import Cancellation
from cloud_gpu.protocol.rounds import PublishedRound, SignedHeader
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import TokenAmount
from market.ledger import Ledger
from market.ports import Kept
from market.receipts import header_signer
from market.replaying import ReplayedState, replay_lines
from market.replaying_told import StoredRounds
from market.rules import RulesSet
from market.store.database import Database
from market.store.inbox import SqlInbox
from market.store.journal import FIRST_HEAD, SqlJournal
from market.store.rounds import SqlRounds
from market.store.views import SqlBook
from tests.support.databases import alter, rewrite
from tests.support.published import effects_of, journal_of
from tests.unit.market.builders import (
    DOMAIN,
    MARKET_KEY,
    NOW,
    NOW_S,
    RULES,
    Desk,
    advert,
    joined,
    key,
    machine,
    opened,
    order,
    pairs,
    price,
    product,
    profile,
    provider,
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
    assert inbox.keep_bids([first], NOW) == [Kept(position=1, received_at=NOW, is_new=True)]
    assert inbox.keep_bids([second, first, third, third], NOW + 99) == [
        Kept(position=2, received_at=NOW + 99, is_new=True),
        Kept(position=1, received_at=NOW, is_new=False),
        Kept(position=3, received_at=NOW + 99, is_new=True),
        Kept(position=3, received_at=NOW + 99, is_new=False),
    ]
    assert [event.inbox for event in inbox.after(0, 10)] == [1, 2, 3]
    assert inbox.after(1, 1) == [BidSubmitted(order=second, inbox=2)]
    assert inbox.kept(first.bid.payload.id) == Kept(position=1, received_at=NOW, is_new=False)
    assert inbox.kept(order("eve").bid.payload.id) is None
    assert inbox.bid(second.bid.payload.id) == second


def test_a_cancellation_takes_one_place_behind_its_bid(database: Database) -> None:
    inbox, bid = SqlInbox(database), order("bob")
    inbox.keep_bids([bid], NOW)
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
    others = [Database(database_url) for _ in range(3)]
    inboxes = [SqlInbox(each) for each in (database, *others)]
    with ThreadPoolExecutor(8) as pool:
        kept = list(
            pool.map(lambda n: inboxes[n % 4].keep_bids([orders[n]], NOW)[0], range(len(orders)))
        )
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
    batches = [[order("bob", nonce=10 * n + k) for k in range(1 + n % 3)] for n in range(24)]
    total = sum(len(batch) for batch in batches)
    seen: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        writing = [
            pool.submit(SqlInbox((database, other)[n % 2]).keep_bids, batch, NOW)
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


# The journal.


def fill(database: Database) -> Desk:
    """A short history, written as the runner does."""
    desk = Desk()
    desk.mine(*provider("ada"), *joined("bob", 10))
    desk.hear(advert("ada"))
    desk.submit(order("bob"))
    desk.end_round()
    journal = SqlJournal(database)
    journal.append(RulesSet(rules=RULES), NOW)
    for event, now in desk.log:
        journal.append(event, now)
    return desk


def test_a_journal_reads_back_what_was_written_with_its_times(database: Database) -> None:
    desk = fill(database)
    entries = list(SqlJournal(database).replay())
    assert entries == [(RulesSet(rules=RULES), NOW), *desk.log]
    assert SqlJournal(database).length == len(entries)


def test_a_new_journal_begins_with_the_first_head(database: Database) -> None:
    assert SqlJournal(database).head == FIRST_HEAD
    assert list(SqlJournal(database).replay()) == []


def test_a_replay_gives_the_same_bytes_every_time(database: Database) -> None:
    desk = fill(database)

    def lines() -> list[bytes]:
        journal = SqlJournal(database)
        return list(replay_lines(journal.replay, journal.head, {}))

    first = lines()
    assert lines() == first
    end = from_json(first[-1], ReplayedState)
    assert (end.matches, len(first) - 1) == (1, len(pairs(desk.effects)))
    assert end.head == SqlJournal(database).head


def tell(database: Database, desk: Desk) -> Sequence[MarketEffect]:
    """Everything that the market wrote in that history."""
    rows = [each for each in effects_of(journal_of(desk)) if not isinstance(each, Transact)]
    SqlBook(database, header_signer(MARKET_KEY)).write(rows)
    return rows


def replayed(database: Database, held: Sequence[SignedHeader] = ()) -> list[bytes]:
    rounds, journal = SqlRounds(database), SqlJournal(database)
    stored = StoredRounds(
        newest=rounds.newest, rounds=rounds.all, head_at=journal.head_at, held=held
    )
    return list(replay_lines(journal.replay, journal.head, SqlBook(database).told(), stored))


def test_a_replay_says_that_the_reports_are_the_same_and_none_is_older_than_its_round(
    database: Database,
) -> None:
    desk = fill(database)
    rows = tell(database, desk)
    end = from_json(replayed(database)[-1], ReplayedState)
    assert (end.orders, end.matches, end.reports, end.published) == (2, 1, 1, 1)
    first = next(each for each in rows if isinstance(each, ReportBid))
    SqlBook(database).write([first])
    with pytest.raises(StorageFailed, match=r"round 1, bid 0x.*the market told"):
        replayed(database)


def test_a_market_without_rounds_may_be_behind_with_any_report(database: Database) -> None:
    rows = [each for each in fill(database).effects if isinstance(each, ReportBid)]
    SqlBook(database).write(rows[:1])
    assert from_json(replayed(database)[-1], ReplayedState).published == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda report: report.replace(b'price":1000000', b'price":1000001'),
            "round 1, bid 0x[0-9a-f]{64}, price: the market told 1000001, the journal says 1000000",
        ),
        (
            lambda report: report.replace(b"matched", b"rejected"),
            'state: the market told "rejected", the journal says "matched"',
        ),
        (lambda _: b"x", "report: the market told what is no report"),
        (
            lambda report: report + b" ",
            "report: the market told other bytes for the same values",
        ),
    ],
    ids=["price", "state", "junk", "bytes"],
)
def test_a_report_that_the_journal_does_not_imply_is_found(
    database: Database, database_url: str, change: Callable[[bytes], bytes], said: str
) -> None:
    desk = fill(database)
    tell(database, desk)
    rewrite(database_url, "bid", "report", "true", change)
    with pytest.raises(StorageFailed, match=said):
        replayed(database)


def test_a_journal_that_lost_its_end_is_found_by_what_was_told(
    database: Database, database_url: str
) -> None:
    desk = fill(database)
    tell(database, desk)
    alter(database_url, "DELETE FROM journal WHERE position = (SELECT max(position) FROM journal)")
    with pytest.raises(StorageFailed, match=r"round 1: the market published it.*was cut"):
        replayed(database)


def test_a_journal_and_rounds_that_lost_their_end_are_found_by_a_header_that_was_kept(
    database: Database, database_url: str
) -> None:
    desk = fill(database)
    tell(database, desk)
    (kept,) = (from_json(each, SignedHeader) for each in SqlRounds(database).headers(0, 9))
    assert len(replayed(database, [kept])) == 2
    alter(database_url, "DELETE FROM journal WHERE position = (SELECT max(position) FROM journal)")
    for table in ("round", "bid"):
        alter(database_url, f"DELETE FROM {table}")
    assert replayed(database)
    with pytest.raises(StorageFailed, match=r"round 1: the market published it.*was cut"):
        replayed(database, [kept])


def test_a_report_that_was_deleted_is_found(database: Database, database_url: str) -> None:
    tell(database, fill(database))
    alter(database_url, "DELETE FROM bid")
    with pytest.raises(StorageFailed, match=r"round 1, bid 0x.*: a row was deleted"):
        replayed(database)


@pytest.mark.parametrize(
    ("column", "change", "said"),
    [
        (
            "body",
            lambda body: body.replace(b'"price":1000000', b'"price":1001000'),
            r"round 1, body\.fills: the market published .*1001000",
        ),
        (
            "header",
            lambda header: header.replace(b'"inclusion_s":3', b'"inclusion_s":4'),
            r"round 1, facts\.inclusion_s: the market published 4, the journal says 3",
        ),
        (
            "header",
            lambda header: re.sub(rb'"journal_head":"0x..', b'"journal_head":"0x00', header),
            r"round 1, header\.journal_head: the market published 0x00",
        ),
        (
            "header",
            lambda header: re.sub(rb'"signature":"0x..', b'"signature":"0x00', header),
            r"round 1, header\.signature: the market published",
        ),
    ],
    ids=["price", "facts", "head", "signature"],
)
def test_a_published_round_that_was_changed_is_found(
    database: Database,
    database_url: str,
    column: str,
    change: Callable[[bytes], bytes],
    said: str,
) -> None:
    tell(database, fill(database))
    rewrite(database_url, "round", column, "true", change)
    with pytest.raises(StorageFailed, match=said):
        replayed(database)


def test_a_round_is_published_once_and_only_behind_the_one_before(database: Database) -> None:
    desk = fill(database)
    (only,) = (each for each in tell(database, desk) if isinstance(each, PublishRound))
    rounds, writer = SqlRounds(database), SqlBook(database, header_signer(MARKET_KEY))
    stored = rounds.round(1)
    writer.write([only])
    assert rounds.round(1) == stored
    assert stored is not None
    assert to_json(from_json(stored, PublishedRound)) == stored
    later = replace(only, facts=replace(only.facts, number=3))
    with pytest.raises(StorageFailed, match="round 3 cannot follow round 1"):
        writer.write([later])
    assert rounds.round(2) is None


def test_a_journal_that_no_market_wrote_is_refused_in_words(database: Database) -> None:
    SqlJournal(database).append(AskHeard(advert=advert("ada")), NOW)
    with pytest.raises(StorageFailed, match=r"round 1, journal\.event: no market writes entry 1"):
        replayed(database)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda url: alter(url, "UPDATE journal SET at = at + 1 WHERE position = 5"),
        lambda url: rewrite(
            url,
            "journal",
            "event",
            "position = 12",
            lambda event: event.replace(b"3600", b"3601"),
        ),
        lambda url: alter(url, "DELETE FROM journal WHERE position = 4"),
        lambda url: rewrite(url, "journal", "head", "position = 3", lambda _: bytes(32)),
        lambda url: alter(url, "UPDATE journal SET position = -1 WHERE position = 1"),
    ],
    ids=["time", "event", "missing", "head", "first"],
)
def test_a_tampered_journal_is_found_and_nothing_is_replayed_past_it(
    database: Database, database_url: str, tamper: Callable[[str], None]
) -> None:
    fill(database)
    tamper(database_url)
    with pytest.raises(StorageFailed, match="does not follow from those before it"):
        list(SqlJournal(database).replay())
    with pytest.raises(StorageFailed, match=r"round 1, journal\.head: journal entry"):
        replayed(database)


def test_a_second_writer_of_a_journal_is_refused(database: Database) -> None:
    one, other = SqlJournal(database), SqlJournal(database)
    one.append(RulesSet(rules=RULES), NOW)
    with pytest.raises(StorageFailed, match=r"(?i)unique"):
        other.append(AskHeard(advert=advert("ada")), NOW)
    assert len(list(SqlJournal(database).replay())) == 1


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
