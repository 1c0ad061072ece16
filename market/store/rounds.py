"""Published rounds: signed and chained when they are written, read as they were written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, func, select

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import PublishRound
from cloud_gpu.protocol.errors import StorageFailed
from cloud_gpu.protocol.rounds import RoundHeader, SignedHeader
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from market.ports import SignHeader
from market.store.database import Database, octets, table_of
from market.store.tables import JournalRow, RoundRow

_ROWS_AT_ONCE = 100


class SqlRounds:
    """The port `RoundsView` over a database."""

    def __init__(self, database: Database) -> None:
        self._database, self._table = database, table_of(RoundRow)

    @property
    def newest(self) -> int:
        """The last number; 0: none yet."""
        with self._database.reading() as connection:
            return connection.scalar(select(func.max(self._table.c.number))) or 0

    def headers(self, after: int, count_max: int) -> Sequence[bytes]:
        """See `RoundsView`."""
        columns = self._table.c
        wanted = select(columns.header).where(columns.number > after).order_by(columns.number)
        with self._database.reading() as connection:
            return [octets(each) for each in connection.scalars(wanted.limit(count_max))]

    def round(self, number: int) -> bytes | None:
        """See `RoundsView`."""
        columns = self._table.c
        wanted = select(columns.header, columns.body).where(columns.number == number)
        with self._database.reading() as connection:
            row = connection.execute(wanted).first()
        return None if row is None else _joined(octets(row.header), octets(row.body))

    def covering(self, inbox: int) -> bytes | None:
        """See `RoundsView`."""
        columns = self._table.c
        wanted = select(func.min(columns.number)).where(columns.inbox_to >= inbox)
        with self._database.reading() as connection:
            number: int | None = connection.scalar(wanted)
        return None if number is None else self.round(number)

    def all(self) -> Iterator[bytes]:
        """Every round, in order."""
        columns, last = self._table.c, -1
        while True:
            wanted = select(self._table).where(columns.number > last).order_by(columns.number)
            with self._database.reading() as connection:
                rows = connection.execute(wanted.limit(_ROWS_AT_ONCE)).all()
            if not rows:
                return
            for row in rows:
                last = row.number
                yield _joined(octets(row.header), octets(row.body))


def write_round(connection: Connection, effect: PublishRound, sign: SignHeader) -> None:
    """Publish a round in the caller's transaction; one that is published already stays.

    Raises StorageFailed when the one before it, or the journal it stands on, is not there.
    """
    table, number = table_of(RoundRow), effect.facts.number
    wanted = select(table.c.number, table.c.header).order_by(table.c.number.desc()).limit(1)
    row = connection.execute(wanted).first()
    newest, before = (0, ZERO_DIGEST) if row is None else (row.number, _id_of(octets(row.header)))
    if number <= newest:
        return
    journal = table_of(JournalRow).c
    head = connection.scalar(
        select(journal.head).where(journal.position == effect.facts.journal_to)
    )
    if number != newest + 1 or head is None:
        raise StorageFailed(
            f"round {number} cannot follow round {newest} in the table of rounds: rounds or journal"
            " entries were lost. Restore the database from a copy"
        )
    header = RoundHeader(facts=effect.facts, before=before, journal_head=Digest(octets(head)))
    connection.execute(
        table.insert().values(
            number=number,
            inbox_to=effect.facts.inbox_to,
            header=to_json(sign(header)),
            body=to_json(effect.body),
        )
    )


def _id_of(header: bytes) -> Digest:
    return from_json(header, SignedHeader).body.id


def _joined(header: bytes, body: bytes) -> bytes:
    """As `to_json` of a `PublishedRound` has it."""
    return b'{"body":' + body + b',"header":' + header + b"}"
