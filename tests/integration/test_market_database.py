"""Whose a database is, of which program, and who may write it: on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from sqlmodel import SQLModel

from cloud_gpu.protocol.errors import SettingsInvalid, StorageFailed
from market.rules import RulesSet
from market.store.database import Database
from market.store.journal import SqlJournal
from market.store.schema import REVISION
from tests.support.databases import alter
from tests.unit.market.builders import NOW, RULES


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = Database(database_url)
    found.create(RULES.owner)
    yield found
    found.close()


def test_a_database_of_another_market_is_refused(database: Database, database_url: str) -> None:
    said = "holds the journal of market 1 of 0x"
    with closing(Database(database_url)) as again, pytest.raises(SettingsInvalid, match=said):
        again.create("market 2 of somebody")
    with pytest.raises(SettingsInvalid, match=said):
        Database.serving(database_url, "market 2 of somebody")
    Database.serving(database_url, RULES.owner).close()


def test_a_second_matchmaker_is_refused_while_the_first_one_runs(database_url: str) -> None:
    first, second = Database(database_url), Database(database_url)
    first.claim()
    with pytest.raises(SettingsInvalid, match=r"database: another matchmaker runs on .*: end that"):
        second.claim()
    first.close()
    second.claim()
    second.close()


def test_a_database_of_another_revision_is_refused(database: Database, database_url: str) -> None:
    alter(database_url, "UPDATE alembic_version SET version_num = '99'")
    said = (
        f"has tables of revision 99, this program needs {REVISION}. Use the program that wrote it"
    )
    with closing(Database(database_url)) as again, pytest.raises(SettingsInvalid, match=said):
        again.create(RULES.owner)
    with pytest.raises(SettingsInvalid, match=said):
        Database.serving(database_url, RULES.owner)
    with pytest.raises(SettingsInvalid, match=said):
        Database.existing(database_url)


def test_tables_that_no_revision_made_are_left_alone(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE journal (position INTEGER)"))
    engine.dispose()
    said = "not a market's, or an older program's"
    with closing(Database(database_url)) as found, pytest.raises(SettingsInvalid, match=said):
        found.create(RULES.owner)
    with pytest.raises(SettingsInvalid, match="holds no market's journal"):
        Database.existing(database_url)


def test_the_newest_revision_is_the_one_that_the_program_names() -> None:
    config = Config()
    config.set_main_option("script_location", "market.store:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


def test_the_revisions_make_the_tables_that_the_program_uses(
    database: Database, database_url: str
) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
    engine.dispose()


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


def test_a_database_opened_to_be_read_cannot_be_written(
    database: Database, database_url: str
) -> None:
    with closing(Database.existing(database_url)) as found:
        journal = SqlJournal(found)
        with pytest.raises(StorageFailed, match=r"read-?only"):
            journal.append(RulesSet(rules=RULES), NOW)


@pytest.mark.parametrize("url", ["mongodb://here", "mysql://here/x", "sqlite+aiosqlite://", "?"])
def test_an_unknown_kind_of_database_is_refused_in_words(url: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"database: .*sqlite"):
        Database(url)


def test_a_password_is_told_to_nobody() -> None:
    database = Database("postgresql+psycopg://me:s3cret@127.0.0.1:1/x")
    with pytest.raises(StorageFailed, match="refused") as failed:
        database.create(RULES.owner)
    assert "s3cret" not in str(failed.value) + database.shown


def test_a_database_that_may_not_be_written_fails_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    with pytest.raises(StorageFailed, match="unable to open database file"):
        Database(f"sqlite:///{folder / 'x.sqlite3'}").create(RULES.owner)
    with pytest.raises(StorageFailed, match="cannot be locked"):
        Database(f"sqlite:///{folder / 'x.sqlite3'}").claim()
