"""The database: SQLite by default, PostgreSQL by a URL; one transaction a function.

Nothing here is aware of trio or asyncio: callers run it in worker threads and keep it short.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table, create_engine, event, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import SQLModel

from cloud_gpu.protocol.errors import SettingsInvalid, StorageFailed
from market.store.schema import migrate, require_current
from market.store.tables import StoreFact

# A receipt promises that the order survives: also a power cut, hence FULL.
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=15000", "foreign_keys=ON")
_READING_PRAGMAS = ("query_only=ON", "busy_timeout=15000")

_READS_ONLY = "cloud_gpu_reads_only"
_ONE_MOMENT: dict[str, Any] = {
    _READS_ONLY: True,
    "isolation_level": "REPEATABLE READ",
    "postgresql_readonly": True,
}
_MATCHMAKER_LOCK = 0x6D_61_74_63_68
"""PostgreSQL's advisory locks are numbers."""


class Database:
    """One connection pool. Raises StorageFailed when the database does not do as asked."""

    def __init__(self, url: str, *, reads_only: bool = False) -> None:
        try:
            self._engine = create_engine(url)
        except (SQLAlchemyError, ImportError) as error:
            raise SettingsInvalid(
                f"database: this URL cannot be used ({error}); write"
                ' "sqlite:///path/to/file" or "postgresql+psycopg://user@host/name"'
            ) from error
        self._writing: dict[str, Any] = {}
        if self.is_postgres:
            self._one_moment = _ONE_MOMENT
            self._writing = {"postgresql_readonly": reads_only}
        elif self._engine.dialect.name == "sqlite":
            self._one_moment = {_READS_ONLY: True}
            _serialise(self._engine, _READING_PRAGMAS if reads_only else _PRAGMAS)
        else:
            raise SettingsInvalid(
                f"database: {self._engine.dialect.name} is neither sqlite nor postgresql+psycopg"
            )
        self._held = ExitStack()

    @property
    def is_postgres(self) -> bool:
        """Else SQLite."""
        return self._engine.dialect.name == "postgresql"

    @property
    def shown(self) -> str:
        """The URL, without its password."""
        return self._engine.url.render_as_string()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that may write, committed at the end; on SQLite one at a time."""
        with self._begun(self._writing) as connection:
            yield connection

    @contextmanager
    def driver(self) -> Iterator[Any]:
        """The driver's own connection, outside any transaction; it must be left so."""
        assert self._engine.dialect.dbapi is not None
        try:
            with closing(self._engine.raw_connection()) as pooled:
                try:
                    yield pooled.driver_connection
                except BaseException:
                    pooled.invalidate()  # nobody knows in what state it is
                    raise
        except (SQLAlchemyError, self._engine.dialect.dbapi.Error) as error:
            raise self._refusal(error) from error

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads: waits for nobody, sees one moment."""
        with self._begun(self._one_moment) as connection:
            yield connection

    @contextmanager
    def _begun(self, options: dict[str, Any]) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                connection.execution_options(**options)
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> StorageFailed:
        return StorageFailed(
            f"the database at {self.shown} refused: {_cause(error)}. Nothing of this step was kept"
        )

    @classmethod
    def existing(cls, url: str) -> Self:
        """A database that a market has written, to read. Raises SettingsInvalid when it is none.

        Also while the market runs, and a copy of the file alone.
        """
        return cls._checked(url, reads_only=True)

    @classmethod
    def serving(cls, url: str, owner: str) -> Self:
        """A database of `owner`'s matchmaker, to take orders into. Raises SettingsInvalid."""
        database = cls._checked(url, reads_only=False)
        try:
            database._require_owner(owner)
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def _checked(cls, url: str, *, reads_only: bool) -> Self:
        database = cls(url, reads_only=reads_only)
        try:
            path = database._file
            if path is not None and not path.is_file():  # or SQLite would make an empty one
                raise SettingsInvalid(f"database: there is no file {path}; has the market run yet?")
            with database.reading() as connection:
                require_current(connection, database.shown)
        except StorageFailed as error:
            database.close()
            raise SettingsInvalid(
                f"database: {error}. Name the market's database; of SQLite, market.sqlite3 or a"
                " copy in a folder that you may write to"
            ) from error
        except BaseException:
            database.close()
            raise
        return database

    @property
    def _file(self) -> Path | None:
        return None if self.is_postgres else Path(self._engine.url.database or "")

    def claim(self) -> None:
        """Be the only matchmaker on this database until it is closed, or this process ends.

        Raises SettingsInvalid while another one is, StorageFailed.
        """
        if not (self._claim_postgres() if self.is_postgres else self._claim_file()):
            raise SettingsInvalid(
                f"database: another matchmaker runs on {self.shown}. One journal has one writer:"
                " end that process, or name another database"
            )

    def _claim_postgres(self) -> bool:
        try:
            connection = self._held.enter_context(self._engine.connect())
            wanted = text(f"SELECT pg_try_advisory_lock({_MATCHMAKER_LOCK})")
            is_ours = bool(connection.scalar(wanted))
            connection.commit()  # the lock is the session's, not the transaction's
        except SQLAlchemyError as error:
            raise StorageFailed(f"the database at {self.shown} refused: {_cause(error)}") from error
        return is_ours

    def _claim_file(self) -> bool:
        path = self._file
        assert path is not None
        try:
            lock = self._held.enter_context(path.with_name(path.name + ".matchmaker").open("ab"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StorageFailed(
                f"the database at {self.shown} cannot be locked: {error.strerror}"
            ) from error
        return True

    def create(self, owner: str) -> None:
        """Make the tables, or bring them up to date; they belong to `owner` from then on.

        Raises SettingsInvalid when they are another's, or of a revision unknown here.
        """
        with self.transaction() as connection:
            migrate(connection, self.shown)
        self._require_owner(owner)

    def _require_owner(self, owner: str) -> None:
        found = self._remember("owner", owner)
        if found != owner:
            raise SettingsInvalid(
                f"database: {self.shown} holds the journal of {found}, not of {owner}."
                " Another market or deployment needs another database"
            )

    def _remember(self, name: str, fact: str) -> str:
        """Keep a fact about this store, once; returns what was kept first."""
        table = table_of(StoreFact)
        with self.transaction() as connection:
            wanted = select(table.c.text).where(table.c.name == name)
            found: str | None = connection.scalar(wanted)
            if found is None:
                connection.execute(table.insert().values(name=name, text=fact))
            return fact if found is None else found

    def close(self) -> None:
        """Let go of every connection."""
        self._held.close()
        self._engine.dispose()


def _serialise(engine: Engine, pragmas: Sequence[str]) -> None:
    """Have every writer take the lock when it begins: pysqlite's own mode loses updates."""

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute("PRAGMA " + pragma)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reads_only = connection.get_execution_options().get(_READS_ONLY)
        connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")


def _cause(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def table_of(kind: type[SQLModel]) -> Table:
    """The table behind a model."""
    return SQLModel.metadata.tables[str(kind.__tablename__)]


def upsert(
    connection: Connection, table: Table, key: str, value: object, **columns: object
) -> None:
    """Put a row in, in place of the one with this key."""
    # There is one writer, so no row appears between the two statements.
    done = connection.execute(table.update().where(table.c[key] == value).values(**columns))
    if not done.rowcount:
        connection.execute(table.insert().values({key: value, **columns}))


def octets(found: bytes | str) -> bytes:
    """SQLite gives what is there, also where somebody wrote text by hand."""
    return found if isinstance(found, bytes) else found.encode()
