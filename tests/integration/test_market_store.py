"""The store on a real SQLite file: order, durability, the chain of hashes, refusals in words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.effects import (
    ListAsk,
    ListProduct,
    ReportBid,
    ReportLease,
    Transact,
    UnlistAsk,
)
from cloud_gpu.protocol.errors import SettingsInvalid, StorageFailed
from cloud_gpu.protocol.events import AskHeard, BidSubmitted, BidWithdrawn
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import Cancellation
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import TokenAmount
from market.ledger import Ledger
from market.receipts import receipt_signer
from market.replaying import ReplayedState, replay_lines
from market.rules import RulesSet
from market.store.database import Database
from market.store.inbox import SqlInbox
from market.store.journal import FIRST_HEAD, SqlJournal
from market.store.views import SqlBook
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
)

SIGN = receipt_signer(MARKET_KEY, DOMAIN)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "market.sqlite3"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    found = Database(f"sqlite:///{path}")
    found.create(RULES.owner)
    yield found
    found.close()


# The inbox.


def test_positions_count_without_gaps_and_a_receipt_is_given_once(database: Database) -> None:
    inbox = SqlInbox(database)
    first, second = order("bob", nonce=1), order("bob", nonce=2)
    receipt, is_new = inbox.keep_bid(first, NOW, SIGN)
    assert is_new
    assert inbox.keep_bid(second, NOW, SIGN)[0].body.inbox == 2
    assert inbox.keep_bid(first, NOW + 99, SIGN) == (receipt, False)
    assert [event.inbox for event in inbox.after(0, 10)] == [1, 2]
    assert inbox.after(1, 10) == [BidSubmitted(order=second, inbox=2)]
    assert inbox.receipt(first.bid.payload.id) == receipt
    assert inbox.bid(second.bid.payload.id) == second


def test_a_cancellation_takes_one_place_behind_its_bid(database: Database) -> None:
    inbox, bid = SqlInbox(database), order("bob")
    inbox.keep_bid(bid, NOW, SIGN)
    body = Cancellation(bid=bid.bid.payload.id)
    cancellation = state(body, DOMAIN, key("bob"), nonce=1, expiry=NOW_S + 9)
    assert inbox.keep_cancellation(cancellation, NOW) == 2
    assert inbox.keep_cancellation(cancellation, NOW) == 2
    assert inbox.after(1, 10) == [BidWithdrawn(bid=body.bid, inbox=2)]


def test_many_writers_at_once_lose_no_order_and_share_no_position(database: Database) -> None:
    inbox = SqlInbox(database)
    orders = [order("bob", nonce=n) for n in range(60)]
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda each: inbox.keep_bid(each, NOW, SIGN)[0], orders))
    assert sorted(receipt.body.inbox for receipt in receipts) == list(range(1, 61))
    kept = {
        event.order.bid.payload.id
        for event in inbox.after(0, 100)
        if isinstance(event, BidSubmitted)
    }
    assert kept == {each.bid.payload.id for each in orders}


def test_an_order_is_not_kept_when_its_receipt_cannot_be_signed(database: Database) -> None:
    inbox = SqlInbox(database)

    def broken(*_: object) -> None:
        raise RuntimeError("no key")

    with pytest.raises(RuntimeError, match="no key"):
        inbox.keep_bid(order("bob"), NOW, broken)  # type: ignore[arg-type]
    assert inbox.after(0, 10) == []


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


def replayed(database: Database) -> list[bytes]:
    journal = SqlJournal(database)
    return list(replay_lines(journal.replay, journal.head, SqlBook(database).told()))


def test_a_replay_says_that_the_reports_are_the_same_also_those_that_are_behind(
    database: Database,
) -> None:
    desk = fill(database)
    rows = [each for each in desk.effects if not isinstance(each, Transact)]
    SqlBook(database).write(rows)
    end = from_json(replayed(database)[-1], ReplayedState)
    assert (end.orders, end.matches, end.reports) == (2, 1, 1)
    first = next(each for each in rows if isinstance(each, ReportBid))
    SqlBook(database).write([first])
    assert from_json(replayed(database)[-1], ReplayedState) == end


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (
            "UPDATE bid SET report = replace(report, 'price\":1000000', 'price\":1000001')",
            "round 1, bid 0x[0-9a-f]{64}, price: the market told 1000001, the journal says 1000000",
        ),
        (
            "UPDATE bid SET report = replace(report, 'matched', 'rejected')",
            'state: the market told "rejected", the journal says "matched"',
        ),
        ("UPDATE bid SET report = 'x'", "report: the market told what is no report"),
        (
            "UPDATE bid SET report = report || ' '",
            "report: the market told other bytes for the same values",
        ),
    ],
    ids=["price", "state", "junk", "bytes"],
)
def test_a_report_that_the_journal_does_not_imply_is_found(
    database: Database, path: Path, tamper: str, said: str
) -> None:
    desk = fill(database)
    SqlBook(database).write([each for each in desk.effects if not isinstance(each, Transact)])
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE bid SET report = CAST(report AS TEXT)")
        assert raw.execute(tamper).rowcount == 1
    with pytest.raises(StorageFailed, match=said):
        replayed(database)


def test_a_journal_that_lost_its_end_is_found_by_what_was_told(
    database: Database, path: Path
) -> None:
    desk = fill(database)
    SqlBook(database).write([each for each in desk.effects if not isinstance(each, Transact)])
    with sqlite3.connect(path) as raw:
        raw.execute("DELETE FROM journal WHERE position = (SELECT max(position) FROM journal)")
    with pytest.raises(StorageFailed, match=r"round 0, bid 0x.*the market told"):
        replayed(database)


def test_a_journal_that_no_market_wrote_is_refused_in_words(database: Database) -> None:
    SqlJournal(database).append(AskHeard(advert=advert("ada")), NOW)
    with pytest.raises(StorageFailed, match=r"round 1, journal\.event: no market writes entry 1"):
        replayed(database)


@pytest.mark.parametrize(
    "tamper",
    [
        "UPDATE journal SET at = at + 1 WHERE position = 5",
        "UPDATE journal SET event = replace(event, '3600', '3601') WHERE position = 12",
        "DELETE FROM journal WHERE position = 4",
        "UPDATE journal SET head = x'" + "00" * 32 + "' WHERE position = 3",
        "UPDATE journal SET position = -1 WHERE position = 1",
    ],
    ids=["time", "event", "missing", "head", "first"],
)
def test_a_tampered_journal_is_found_and_nothing_is_replayed_past_it(
    database: Database, path: Path, tamper: str
) -> None:
    fill(database)
    with sqlite3.connect(path) as raw:
        changed = raw.execute(tamper)
        assert changed.rowcount == 1
    with pytest.raises(StorageFailed, match="does not follow from those before it"):
        list(SqlJournal(database).replay())
    with pytest.raises(StorageFailed, match=r"round 1, journal\.head: journal entry"):
        replayed(database)


def test_a_second_writer_of_a_journal_is_refused(database: Database) -> None:
    one, other = SqlJournal(database), SqlJournal(database)
    one.append(RulesSet(rules=RULES), NOW)
    with pytest.raises(StorageFailed, match="UNIQUE"):
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


# The file.


def test_a_database_of_another_market_is_refused(database: Database, path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="holds the journal of market 1 of 0x"):
        Database(f"sqlite:///{path}").create("market 2 of somebody")


def test_a_database_of_another_version_is_refused(database: Database, path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE store_fact SET text = '99' WHERE name = 'schema'")
    with pytest.raises(SettingsInvalid, match="has schema 99, this program needs 1"):
        Database(f"sqlite:///{path}").create(RULES.owner)


def test_reading_a_database_that_is_not_there_makes_none(tmp_path: Path) -> None:
    absent = tmp_path / "absent.sqlite3"
    with pytest.raises(SettingsInvalid, match="there is no file"):
        Database.existing(f"sqlite:///{absent}")
    assert not absent.exists()
    absent.touch()
    with pytest.raises(SettingsInvalid, match="holds no market's journal"):
        Database.existing(f"sqlite:///{absent}")
    absent.write_text("not a database, but long enough to be mistaken for one" * 20)
    with pytest.raises(SettingsInvalid, match=r"file is not a database.*Name the market's"):
        Database.existing(f"sqlite:///{absent}")


def test_a_database_opened_to_be_read_cannot_be_written(database: Database, path: Path) -> None:
    fill(database)
    with closing(Database.existing(f"sqlite:///{path}")) as found:
        journal = SqlJournal(found)
        with pytest.raises(StorageFailed, match="readonly"):
            journal.append(RulesSet(rules=RULES), NOW)


def test_an_unknown_kind_of_database_is_refused_in_words() -> None:
    with pytest.raises(SettingsInvalid, match="sqlite:///path/to/file"):
        Database("mongodb://here")


def test_a_database_that_may_not_be_written_fails_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    with pytest.raises(StorageFailed, match="unable to open database file"):
        Database(f"sqlite:///{folder / 'x.sqlite3'}").create(RULES.owner)
