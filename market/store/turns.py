"""One turn at the inbox, in each driver's own words.

Every order passes here while all other writers wait. SQLAlchemy's statements took five times as
long as the database needs for them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias

from cloud_gpu.protocol.units import Instant
from market.ports import Kept

if TYPE_CHECKING:
    import psycopg  # an installation with SQLite alone does without

Rows: TypeAlias = Sequence[tuple[str, bytes]]
"""Key and body of each."""

Turn: TypeAlias = Callable[[Any, Rows, Instant], list[Kept]]
"""Keeps rows through a driver's connection, in one commit. A key that is there keeps its place."""


def in_sqlite(connection: sqlite3.Connection, rows: Rows, received_at: Instant) -> list[Kept]:
    """See `Turn`. The turn is the lock on the file."""
    bodies = dict(rows)
    with closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        try:
            known = {key: (position, at) for key, position, at in _known(cursor, list(bodies))}
            (last,) = cursor.execute("SELECT coalesce(max(position), 0) FROM inbox").fetchone()
            new = [key for key in bodies if key not in known]
            places = {key: last + count for count, key in enumerate(new, 1)}
            cursor.executemany(
                "INSERT INTO inbox (position, key, body, received_at) VALUES (?, ?, ?, ?)",
                [(places[key], key, bodies[key], received_at) for key in new],
            )
            cursor.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise
    return _kept(rows, places, known, received_at)


def _known(cursor: sqlite3.Cursor, keys: Sequence[str]) -> sqlite3.Cursor:
    return cursor.execute(
        "SELECT key, position, received_at FROM inbox"
        " WHERE key IN (SELECT value FROM json_each(?))",
        [json.dumps(keys)],
    )


def in_postgres(
    connection: psycopg.Connection[Any], rows: Rows, received_at: Instant
) -> list[Kept]:
    """See `Turn`. The lock ends when the rows are visible."""
    bodies, known = dict(rows), {}
    connection.autocommit = True  # or psycopg asks for each transaction by itself
    with connection.cursor() as cursor:
        # A statement of its own: the next one must see what was committed before it.
        cursor.execute(_BEGIN)
        cursor.execute(_INSERT, [received_at, list(bodies), list(bodies.values())])
        places = dict(cursor.fetchall())
        cursor.execute("COMMIT")
        left = [key for key in bodies if key not in places]
        if left:
            cursor.execute(_LOOK, [left])
            known = {key: (position, at) for key, position, at in cursor}
    connection.autocommit = False
    return _kept(rows, places, known, received_at)


_BEGIN = f"BEGIN; SELECT pg_advisory_xact_lock({0x69_6E_62_6F_78})"
"""PostgreSQL's advisory locks are numbers."""
_INSERT = """
    INSERT INTO inbox (position, key, body, received_at)
    SELECT last.position + row_number() OVER (ORDER BY given.place), given.key, given.body, %s
    FROM unnest(%b::text[], %b::bytea[]) WITH ORDINALITY AS given (key, body, place),
        (SELECT coalesce(max(position), 0) AS position FROM inbox) AS last
    WHERE (SELECT position FROM inbox WHERE inbox.key = given.key) IS NULL
    RETURNING key, position
    """
"""Keys are looked up one by one: joined, the planner may read the whole inbox."""
_LOOK = "SELECT key, position, received_at FROM inbox WHERE key = ANY(%b)"


def _kept(
    rows: Rows,
    places: Mapping[str, int],
    known: Mapping[str, tuple[int, Instant]],
    received_at: Instant,
) -> list[Kept]:
    """In the order of the rows; of equal keys only the first is new."""
    new, found = set(places), []
    for key, _ in rows:
        position, at = known[key] if key in known else (places[key], received_at)
        found.append(Kept(position=position, received_at=at, is_new=key in new))
        new.discard(key)
    return found
