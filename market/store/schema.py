"""Which revision a database's tables have, and bringing them to this program's by Alembic."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, inspect, text

from cloud_gpu.protocol.errors import SettingsInvalid

REVISION: Final = "6"
"""The newest in `migrations`: what this program reads and writes."""
_NONE: Final = ""


def migrate(connection: Connection, shown: str) -> None:
    """Make or change the tables, in the caller's transaction; `shown` names the database.

    Raises SettingsInvalid for tables that no revision of this program made.
    """
    from alembic import command  # only the matchmaker, and only once
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    found = revision_of(connection)
    if not found and inspect(connection).get_table_names():
        raise SettingsInvalid(
            f"database: {shown} holds tables that are not a market's, or an older program's."
            " Name an empty database"
        )
    config = Config()
    config.set_main_option("script_location", "market.store:migrations")
    known = {each.revision for each in ScriptDirectory.from_config(config).walk_revisions()}
    if found and found not in known:
        raise _unknown(shown, found)
    config.attributes["connection"] = connection
    command.upgrade(config, REVISION)


def require_current(connection: Connection, shown: str) -> None:
    """Raises SettingsInvalid unless the tables are those of this program."""
    found = revision_of(connection)
    if not found:
        raise SettingsInvalid(
            f"database: {shown} holds no market's journal. Start `cloud-gpu-market run` first:"
            " it makes the tables"
        )
    if found != REVISION:
        raise _unknown(shown, found)


def revision_of(connection: Connection) -> str:
    """What Alembic noted there last; empty where it noted nothing."""
    if not inspect(connection).has_table("alembic_version"):
        return _NONE
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found or _NONE


def _unknown(shown: str, found: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"database: {shown} has tables of revision {found}, this program needs {REVISION}."
        " Use the program that wrote it; an older revision is brought up to date when"
        " `cloud-gpu-market run` of this program starts"
    )
