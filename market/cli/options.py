"""Options that several commands share, and how they find the settings or a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloud_gpu.protocol.errors import SettingsInvalid
from market.cli.outside import Outside
from market.settings import MarketSettings

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The market's settings, a TOML file.", show_default=False),
]
DatabaseUrl = Annotated[
    str,
    typer.Option(
        "--database",
        help='Instead of --config: "sqlite:///path/to/market.sqlite3".',
        show_default=False,
    ),
]


def outside_of(context: typer.Context) -> Outside:
    """What main handed in."""
    assert isinstance(context.obj, Outside)
    return context.obj


def load(outside: Outside, config: Path) -> MarketSettings:
    """Read the settings file. Raises SettingsInvalid."""
    try:
        return outside.load(config)
    except OSError as error:
        raise SettingsInvalid(
            f"--config: {config} cannot be read ({error.strerror}). Name the market's TOML file"
        ) from error


def database_url(outside: Outside, config: Path | None, database: str) -> str:
    """The database that one of the two options names. Raises SettingsInvalid."""
    if database:
        return database
    if config is None:
        raise SettingsInvalid("--config or --database is needed: which market's journal?")
    return load(outside, config).database_url
