"""The node's journal in SQLite: what must outlive kill -9, on the disk before it is acted on.

The party says what is worth keeping; a chain event that was told twice is kept once, so that
reading the chain again at each start does not make it grow.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, get_args

from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import StorageFailed
from cloud_gpu.protocol.events import ProviderEvent
from cloud_gpu.protocol.units import Instant

_VERSION: Final = 1
_CHAIN_EVENTS: Final = get_args(ChainEvent)


class SqliteJournal:
    """A `Journal` of provider events. Raises `StorageFailed`, with nothing kept."""

    def __init__(self, path: Path, keeps: Callable[[ProviderEvent], bool]) -> None:
        self._keeps = keeps
        self._path = path
        try:
            self._rows = sqlite3.connect(path, isolation_level=None)
            self._rows.execute("PRAGMA journal_mode=WAL")
            # FULL: a voucher that was acknowledged is not lost by a power cut either.
            self._rows.execute("PRAGMA synchronous=FULL")
            version: int = self._rows.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise StorageFailed(
                    f"journal {path}: version {version}, this node writes {_VERSION}"
                )
            self._rows.execute(
                "CREATE TABLE IF NOT EXISTS event (position INTEGER PRIMARY KEY,"
                " at INTEGER NOT NULL, body BLOB NOT NULL, once BLOB UNIQUE)"
            )
            self._rows.execute(f"PRAGMA user_version={_VERSION}")
        except sqlite3.Error as error:
            raise StorageFailed(f"journal {path}: {error}") from error

    def append(self, event: ProviderEvent, now: Instant) -> None:
        """Keep an event durably, if it is worth it."""
        if not self._keeps(event):
            return
        body = to_json(event)
        once = hashlib.sha256(body).digest() if isinstance(event, _CHAIN_EVENTS) else None
        try:
            self._rows.execute(
                "INSERT OR IGNORE INTO event (at, body, once) VALUES (?, ?, ?)", (now, body, once)
            )
        except sqlite3.Error as error:
            raise StorageFailed(f"journal {self._path}: {error}; free some disk space") from error

    def replay(self) -> Iterator[tuple[ProviderEvent, Instant]]:
        """What was kept, in order."""
        try:
            for at, body in self._rows.execute("SELECT at, body FROM event ORDER BY position"):
                yield from_json(body, ProviderEvent), at
        except (sqlite3.Error, ValueError) as error:
            raise StorageFailed(f"journal {self._path}: {error}") from error

    def prune(self, keep: Callable[[ProviderEvent], bool]) -> None:
        """Drop what is over and forgotten; call it when all was replayed."""
        over = [
            (position,)
            for position, body in self._rows.execute("SELECT position, body FROM event")
            if not keep(from_json(body, ProviderEvent))
        ]
        self._rows.execute("BEGIN IMMEDIATE")
        self._rows.executemany("DELETE FROM event WHERE position = ?", over)
        self._rows.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._rows.close()
