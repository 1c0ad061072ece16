"""The calls of one key, on disk before they are sent, and the blocks its follower has told of.

One SQLite file, mode 0600, owned by one process. A call is queued, then sent under a nonce with
every attempt's bytes kept, then done or failed; a failure stays until its party was told.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from cloud_gpu.protocol.adapters.evm_transaction import Fees, SignedTransaction
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest, keccak256

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS identity (place INTEGER PRIMARY KEY CHECK (place = 0), text TEXT);
CREATE TABLE IF NOT EXISTS calls (
  id INTEGER PRIMARY KEY,
  digest TEXT NOT NULL,
  body BLOB NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'sent', 'done', 'failing', 'failed')),
  nonce INTEGER,
  block INTEGER,
  gas_used INTEGER,
  error TEXT,
  queued_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS in_flight ON calls (digest) WHERE state IN ('queued', 'sent');
CREATE INDEX IF NOT EXISTS by_state ON calls (state) WHERE state IN ('queued', 'sent', 'failing');
CREATE TABLE IF NOT EXISTS attempts (
  hash TEXT PRIMARY KEY,
  call INTEGER REFERENCES calls ON DELETE CASCADE,
  nonce INTEGER NOT NULL,
  raw BLOB NOT NULL,
  fee_most TEXT NOT NULL,
  fee_tip TEXT NOT NULL,
  gas INTEGER NOT NULL,
  sent_at INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS of_call ON attempts (call);
CREATE TABLE IF NOT EXISTS blocks (number INTEGER PRIMARY KEY, hash TEXT NOT NULL);
"""

_ENDED_KEPT: Final = 10_000
"""Ended calls kept for the record; `EntrySkipped` logs are looked up among them."""

BLOCKS_KEPT: Final = 512
"""Block hashes kept: how deep a reorganisation can be undone exactly."""


class QueuedCall(msgspec.Struct, frozen=True):
    """A call that waits for its turn."""

    id: int
    call: ChainCall
    queued_at: Instant


class Attempt(msgspec.Struct, frozen=True):
    """One signed transaction of a call; a fee bump is one more."""

    hash: Digest
    nonce: int
    raw: bytes
    fees: Fees
    gas: int
    sent_at: Instant


class SentCall(msgspec.Struct, frozen=True):
    """A call under a nonce, not known to be done; its newest attempt is last."""

    id: int
    call: ChainCall
    nonce: int
    attempts: tuple[Attempt, ...]


class FailedCall(msgspec.Struct, frozen=True):
    """A call that failed for good and whose party was not told yet."""

    id: int
    call: ChainCall
    error: str


class Outbox:
    """Durable calls of one key. Every method is one transaction; safe from several threads."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises SettingsInvalid (unusable path, used by another)."""
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._owner = _own(path)
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise SettingsInvalid(
                f"outbox {path}: cannot be opened ({error}); it must be a file in a folder that"
                " this user may write to, on a disk with room"
            ) from error

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._db.close()
            self._owner.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def bind(self, identity: str) -> None:
        """Remember which key, contract and chain these calls are for.

        Raises SettingsInvalid when the file is another's: its calls must not go to this chain.
        """
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO identity VALUES (0, ?)", (identity,))
            (found,) = db.execute("SELECT text FROM identity").fetchone()
        if found != identity:
            raise SettingsInvalid(
                f"outbox {self._path}: written for {found}, needed {identity}; delete the file, or"
                " use another data folder for this deployment"
            )

    def add(self, call: ChainCall, now: Instant) -> bool:
        """Queue a call; False when the same call is in flight already."""
        body = to_json(call)
        with self._transaction() as db:
            done = db.execute(
                "INSERT OR IGNORE INTO calls (digest, body, state, queued_at)"
                " VALUES (?, ?, 'queued', ?)",
                (str(keccak256(body)), body, now),
            )
            return done.rowcount == 1

    def queued(self, most: int) -> list[QueuedCall]:
        """The oldest calls that wait."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, body, queued_at FROM calls WHERE state = 'queued' ORDER BY id LIMIT ?",
                (most,),
            ).fetchall()
        return [QueuedCall(row[0], _call(row[1]), row[2]) for row in rows]

    def sent(self) -> list[SentCall]:
        """The calls under way, by nonce."""
        with self._lock:
            rows = self._db.execute(
                "SELECT c.id, c.body, c.nonce, a.hash, a.nonce, a.raw, a.fee_most, a.fee_tip,"
                " a.gas, a.sent_at FROM calls c JOIN attempts a ON a.call = c.id"
                " WHERE c.state = 'sent' ORDER BY c.nonce, c.id, a.sent_at, a.rowid"
            ).fetchall()
        found: dict[int, SentCall] = {}
        for row in rows:
            attempt = Attempt(
                hash=Digest.parse(row[3]),
                nonce=row[4],
                raw=row[5],
                fees=Fees(most=int(row[6]), tip=int(row[7])),
                gas=row[8],
                sent_at=row[9],
            )
            before = found.get(row[0])
            attempts = (*before.attempts, attempt) if before else (attempt,)
            call = before.call if before else _call(row[1])
            found[row[0]] = SentCall(row[0], call, row[2], attempts)
        return list(found.values())

    def attempt(self, call_id: int, signed: SignedTransaction, now: Instant) -> None:
        """Keep a signed transaction before it is sent; the call is under way from here on."""
        inside = signed.transaction
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    str(signed.hash),
                    call_id,
                    inside.nonce,
                    signed.raw,
                    str(inside.fees.most),
                    str(inside.fees.tip),
                    inside.gas,
                    now,
                ),
            )
            db.execute(
                "UPDATE calls SET state = 'sent', nonce = ? WHERE id = ?", (inside.nonce, call_id)
            )

    def requeue(self, call_id: int) -> None:
        """Forget a call's nonce: none of its attempts can ever be mined."""
        with self._transaction() as db:
            db.execute("DELETE FROM attempts WHERE call = ?", (call_id,))
            db.execute("UPDATE calls SET state = 'queued', nonce = NULL WHERE id = ?", (call_id,))

    def done(self, call_id: int, block: int, gas_used: int) -> None:
        """A call's transaction is in a block that was told of."""
        with self._transaction() as db:
            db.execute(
                "UPDATE calls SET state = 'done', block = ?, gas_used = ? WHERE id = ?",
                (block, gas_used, call_id),
            )

    def failing(self, call_id: int, error: str, block: int | None, gas_used: int = 0) -> None:
        """A call failed for good; its party is still to be told."""
        with self._transaction() as db:
            db.execute(
                "UPDATE calls SET state = 'failing', error = ?, block = ?, gas_used = ?"
                " WHERE id = ?",
                (error, block, gas_used, call_id),
            )

    def untold(self) -> list[FailedCall]:
        """Failures to tell, oldest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT id, body, error FROM calls WHERE state = 'failing' ORDER BY id"
            ).fetchall()
        return [FailedCall(row[0], _call(row[1]), row[2]) for row in rows]

    def told(self, call_id: int) -> None:
        """The party took the failure."""
        with self._transaction() as db:
            db.execute("UPDATE calls SET state = 'failed' WHERE id = ?", (call_id,))

    def reopen_after(self, block: int) -> int:
        """Blocks after this one are gone: their calls are under way again. Returns how many."""
        with self._transaction() as db:
            # A call that was made again meanwhile is in flight already, and stays as it is.
            done = db.execute(
                "UPDATE OR IGNORE calls SET state = 'sent', block = NULL"
                " WHERE state = 'done' AND block > ?",
                (block,),
            )
            return done.rowcount

    def call_of(self, transaction: Digest) -> ChainCall | None:
        """The call that one of our transactions carried."""
        with self._lock:
            row = self._db.execute(
                "SELECT c.body FROM attempts a JOIN calls c ON c.id = a.call WHERE a.hash = ?",
                (str(transaction),),
            ).fetchone()
        return _call(row[0]) if row else None

    def gas_used(self) -> int:
        """Gas of all calls that ended, reverted ones included."""
        with self._lock:
            (gas,) = self._db.execute("SELECT TOTAL(gas_used) FROM calls").fetchone()
        return int(gas)

    def prune(self) -> None:
        """Forget the oldest ended calls."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM calls WHERE state IN ('done', 'failed')"
                " AND id <= (SELECT COALESCE(MAX(id), 0) FROM calls) - ?",
                (_ENDED_KEPT,),
            )

    def remember_blocks(self, blocks: Sequence[tuple[int, Digest]], above: int) -> None:
        """Replace what is known above a block by these; keeps the newest `BLOCKS_KEPT`."""
        with self._transaction() as db:
            db.execute("DELETE FROM blocks WHERE number > ?", (above,))
            db.executemany(
                "INSERT OR REPLACE INTO blocks VALUES (?, ?)",
                [(number, str(found)) for number, found in blocks],
            )
            db.execute(
                "DELETE FROM blocks WHERE number NOT IN"
                " (SELECT number FROM blocks ORDER BY number DESC LIMIT ?)",
                (BLOCKS_KEPT,),
            )

    def known_blocks(self, upto: int) -> list[tuple[int, Digest]]:
        """Blocks told of, newest first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT number, hash FROM blocks WHERE number <= ? ORDER BY number DESC", (upto,)
            ).fetchall()
        return [(number, Digest.parse(text)) for number, text in rows]


def _call(body: bytes) -> ChainCall:
    call: ChainCall = from_json(body, ChainCall)
    return call


def _own(path: Path) -> IO[bytes]:
    """Make the file private before a byte is in it, and lock it for this process.

    The lock lies on a file of its own: closing any handle of a database drops SQLite's locks.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    path.chmod(0o600)
    owner = path.with_name(path.name + ".lock").open("wb")
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner.close()
        raise SettingsInvalid(
            f"outbox {path}: another process sends with this key; stop it first"
        ) from error
    return owner
