"""The journal: every event that the matchmaker handled, each entry sealed by the one before.

head_i = keccak256(head_{i-1} || time_i || event_i). Starting is replaying: there is no other
recovery. A changed, missing or inserted entry is found when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import StorageFailed
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest, keccak256
from market.rules import MatchmakerEvent
from market.store.database import Database, octets, table_of
from market.store.tables import JournalRow

FIRST_HEAD = keccak256(b"cloud-gpu/market-journal/1")
_ROWS_AT_ONCE = 500


class SqlJournal:
    """A `Journal` of one market; one process writes it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = table_of(JournalRow)
        self._position, self.head = self._newest()

    @property
    def length(self) -> int:
        """Entries up to `head`."""
        return self._position

    def append(self, event: MatchmakerEvent, now: Instant) -> None:
        """Make an event durable. Raises StorageFailed, also when another process wrote here."""
        body = to_json(event)
        head = next_head(self.head, now, body)
        with self._database.transaction() as connection:
            connection.execute(
                self._table.insert().values(
                    position=self._position + 1, at=now, event=body, head=head.raw
                )
            )
        self._position, self.head = self._position + 1, head

    def replay(self) -> Iterator[tuple[MatchmakerEvent, Instant]]:
        """All events up to `head`, with their times.

        Raises StorageFailed at the first entry that does not follow from those before it.
        """
        head, position = FIRST_HEAD, 0
        while rows := self._rows_after(position):
            for found, now, body, sealed in rows:
                position += 1
                head = next_head(head, now, body)
                if found != position or sealed != head.raw:
                    raise StorageFailed(
                        f"journal entry {position} does not follow from those before it: the"
                        " journal was changed, or lost entries. Restore it from a copy"
                    )
                yield _parse(body, position), now

    def head_at(self, position: int) -> Digest:
        """The head at an entry, or at the last one where there is none."""
        columns = self._table.c
        with self._database.reading() as connection:
            found = connection.scalar(select(columns.head).where(columns.position == position))
        return Digest(octets(found)) if found is not None else self.head

    def _rows_after(self, last: int) -> list[tuple[int, Instant, bytes, bytes]]:
        columns = self._table.c
        wanted = (
            select(columns.position, columns.at, columns.event, columns.head)
            .where(columns.position > last, columns.position <= self._position)
            .order_by(columns.position)
            .limit(_ROWS_AT_ONCE)
        )
        with self._database.reading() as connection:
            return [
                (position, now, octets(body), octets(head))
                for position, now, body, head in connection.execute(wanted)
            ]

    def _newest(self) -> tuple[int, Digest]:
        wanted = select(self._table).order_by(self._table.c.position.desc()).limit(1)
        with self._database.reading() as connection:
            row = connection.execute(wanted).mappings().first()
        return (row["position"], Digest(row["head"])) if row is not None else (0, FIRST_HEAD)


def next_head(head: Digest, now: Instant, body: bytes) -> Digest:
    """What seals an entry: its time in Unix milliseconds, and its event as canonical JSON."""
    return keccak256(head.raw + now.to_bytes(8, "big") + body)


def _parse(body: bytes, position: int) -> MatchmakerEvent:
    try:
        event: MatchmakerEvent = from_json(body, MatchmakerEvent)
    except ValueError as error:
        raise StorageFailed(
            f"journal entry {position} is of another version of this program: {error}"
        ) from error
    return event
