"""The database: SQLite by default, PostgreSQL by a URL; one transaction a function.

Nothing here is aware of trio or asyncio: callers run it in worker threads and keep it short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table, create_engine, event, inspect, select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import SQLModel

from cloud_gpu.protocol.errors import SettingsInvalid, StorageFailed
from market.store.tables import SCHEMA_VERSION, JournalRow, StoreFact

# A receipt promises that the order survives: also a power cut, hence FULL.
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=15000", "foreign_keys=ON")
_READING_PRAGMAS = ("query_only=ON", "busy_timeout=15000")

SCHEMA_FACT = "schema"
_READS_ONLY = "cloud_gpu_reads_only"


class Database:
    """One connection pool. Raises StorageFailed when the database does not do as asked."""

    def __init__(self, url: str, pragmas: Sequence[str] = _PRAGMAS) -> None:
        """`pragmas` are SQLite's, for each connection."""
        self.url = url
        try:
            self._engine = create_engine(url)
        except (SQLAlchemyError, ImportError) as error:
            raise SettingsInvalid(
                f'database: {url!r} cannot be used ({error}); write "sqlite:///path/to/file" or'
                ' "postgresql+psycopg://user@host/name"'
            ) from error
        if self._engine.dialect.name == "sqlite":
            _serialise(self._engine, pragmas)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that may write: one at a time, committed at the end."""
        with self._begun({}) as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads: waits for nobody, sees one moment."""
        with self._begun({_READS_ONLY: True}) as connection:
            yield connection

    @contextmanager
    def _begun(self, options: dict[str, Any]) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                connection.execution_options(**options)
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            raise StorageFailed(
                f"the database at {self._engine.url.render_as_string()} refused:"
                f" {_cause(error)}. Nothing of this step was kept"
            ) from error

    @classmethod
    def existing(cls, url: str) -> Self:
        """A database that a market has written, to read. Raises SettingsInvalid when it is none.

        Also while the market runs, and a copy of the file alone.
        """
        database = cls(url, _READING_PRAGMAS)
        try:
            path = database._engine.url.database
            is_file = database._engine.dialect.name == "sqlite"
            if is_file and not (path and Path(path).is_file()):  # or SQLite would make an empty one
                raise SettingsInvalid(f"database: there is no file {path}; has the market run yet?")
            with database.reading() as connection:
                has_journal = inspect(connection).has_table(str(JournalRow.__tablename__))
            if not has_journal:
                raise SettingsInvalid(f"database: {url!r} holds no market's journal")
        except StorageFailed as error:
            database.close()
            raise SettingsInvalid(
                f"database: {error}. Name the market's market.sqlite3, or a copy in a folder that"
                " you may write to"
            ) from error
        except BaseException:
            database.close()
            raise
        return database

    def create(self, owner: str) -> None:
        """Make the tables if this is a new database; it belongs to `owner` from then on.

        Raises SettingsInvalid when it is another's, or of another version of this program.
        """
        with self.transaction() as connection:
            SQLModel.metadata.create_all(connection)
        schema = self._remember(SCHEMA_FACT, str(SCHEMA_VERSION))
        if schema != str(SCHEMA_VERSION):
            raise SettingsInvalid(
                f"database: {self.url!r} has schema {schema}, this program needs {SCHEMA_VERSION}."
                " Use the program that wrote it, or another database"
            )
        found = self._remember("owner", owner)
        if found != owner:
            raise SettingsInvalid(
                f"database: {self.url!r} holds the journal of {found}, not of {owner}."
                " Another market or deployment needs another database"
            )

    def _remember(self, name: str, text: str) -> str:
        """Keep a fact about this store, once; returns what was kept first."""
        table = table_of(StoreFact)
        with self.transaction() as connection:
            wanted = select(table.c.text).where(table.c.name == name)
            found: str | None = connection.scalar(wanted)
            if found is None:
                connection.execute(table.insert().values(name=name, text=text))
            return text if found is None else found

    def close(self) -> None:
        """Let go of every connection."""
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


def _cause(error: SQLAlchemyError) -> str:
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
