"""Journal and published rounds on both databases: replayed, and what was changed is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import (
    MarketEffect,
    PublishRound,
    ReportBid,
    Transact,
)
from cloud_gpu.protocol.errors import StorageFailed
from cloud_gpu.protocol.events import AskHeard
from cloud_gpu.protocol.rounds import PublishedRound, SignedHeader
from market.adapters.performing import Unwritten
from market.audit.replaying import ReplayedState, replay_lines
from market.audit.replaying_told import StoredRounds
from market.receipts import header_signer
from market.rules import RulesSet
from market.store.database import Database
from market.store.journal import FIRST_HEAD, SqlJournal
from market.store.rounds import SqlRounds
from market.store.views import SqlBook
from tests.support.databases import alter, rewrite
from tests.support.published import effects_of, journal_of
from tests.unit.market.builders import (
    MARKET_KEY,
    NOW,
    RULES,
    Desk,
    advert,
    joined,
    order,
    pairs,
    provider,
)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = Database(database_url)
    found.create(RULES.owner)
    yield found
    found.close()


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


def test_what_a_crash_kept_from_the_tables_is_written_at_the_next_start(
    database: Database, database_url: str
) -> None:
    """The same bytes, also of a report that no book holds any more."""
    desk = fill(database)
    desk.submit(order("bob", nonce=3, signer="mallory"))
    SqlJournal(database).append(*desk.log[-1])
    tell(database, desk)
    rounds, told = SqlRounds(database), SqlBook(database).told()
    before = rounds.round(1)
    for state in ("matched", "rejected"):
        alter(database_url, f"DELETE FROM bid WHERE state = '{state}'")
    alter(database_url, "DELETE FROM round")
    unwritten = Unwritten(rounds.newest)
    for effect in effects_of(journal_of(desk)):
        unwritten.keep(effect)
    SqlBook(database, header_signer(MARKET_KEY)).write(unwritten.effects)
    assert rounds.round(1) == before
    assert SqlBook(database).told() == told
    assert len(told) == 2
    assert replayed(database)
    later = Unwritten(rounds.newest)
    for effect in effects_of(journal_of(desk)):
        later.keep(effect)
    assert all(isinstance(each, ReportBid) for each in later.effects)
    assert len(later.effects) < len(unwritten.effects)
