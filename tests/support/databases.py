"""Databases for tests: one PostgreSQL a run or a worker, an empty database a test.

`$TEST_POSTGRES_URL` names a server, as `.ci/run` does; else one is started where it is installed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count

import pytest
from sqlalchemy import create_engine, make_url, text

from benchmarks._postgres import missing_postgres, running_postgres

_VARIABLE = "TEST_POSTGRES_URL"
_numbers = count()


@cache
def missing() -> str | None:
    """Why tests cannot have a PostgreSQL; None: they can."""
    if os.environ.get(_VARIABLE):
        return None
    reason = missing_postgres()
    return reason and f"{reason}; or set {_VARIABLE}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    url = os.environ.get(_VARIABLE)
    if url:
        yield url
        return
    with running_postgres(durable=False) as started:
        yield started


@contextmanager
def empty_database(server: str) -> Iterator[str]:
    """A database of its own on a server; gone afterwards, whoever is still connected."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f'CREATE DATABASE "{name}"'))
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))
        engine.dispose()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty database."""
    with empty_database(postgres_server) as url:
        yield url


KINDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.postgres))
"""Of databases that a market may use: parameters of a fixture."""


@contextmanager
def empty_database_of(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """One of the kind that is the fixture's parameter."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store') / 'market.sqlite3'}"
        return
    with empty_database(request.getfixturevalue("postgres_server")) as url:
        yield url


@pytest.fixture(params=KINDS)
def database_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An empty database of each kind."""
    with empty_database_of(request, tmp_path_factory) as url:
        yield url


def alter(url: str, statement: str, **values: object) -> None:
    """What somebody does by hand to one row."""
    engine = create_engine(url)
    with engine.begin() as connection:
        assert connection.execute(text(statement), values).rowcount == 1
    engine.dispose()


def rewrite(
    url: str, table: str, column: str, row: str, change: Callable[[bytes], bytes | str]
) -> None:
    """Put other bytes into one column of one row."""
    engine = create_engine(url)
    with engine.begin() as connection:
        found = connection.scalar(text(f"SELECT {column} FROM {table} WHERE {row}"))
        changed = change(bytes(found))
        assert changed != bytes(found)
        statement = text(f"UPDATE {table} SET {column} = :changed WHERE {row}")
        connection.execute(statement, {"changed": changed})
    engine.dispose()
