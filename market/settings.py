"""What an operator tells a market: one TOML file, then the environment. Parsed here, read by main.

An unknown key in the file is an error that names it; an unknown variable is ignored.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.units import parse_duration
from cloud_gpu.protocol.values import Address
from market.rules import MarketRules

ENVIRONMENT_PREFIX: Final = "CLOUD_GPU_MARKET_"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError(f"a text is needed, found {found!r}")
    return found


def _whole(found: object) -> int:
    if isinstance(found, str) and found.isascii() and found.isdigit():
        found = int(found)  # from the environment
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"a whole number is needed, found {found!r}")
    return found


def _texts(found: object) -> tuple[str, ...]:
    if isinstance(found, str):
        return tuple(filter(None, found.split(",")))
    if not isinstance(found, list):
        raise ValueError(f"a list of texts is needed, found {found!r}")
    return tuple(_text(each) for each in found)


def _duration(found: object) -> int:
    if isinstance(found, str | int) and not isinstance(found, bool):
        return parse_duration(found)
    raise ValueError(f'a duration is written like "60s", found {found!r}')


def _path(found: object) -> Path:
    return Path(_text(found)).expanduser()


Whole = Annotated[int, _whole]
Text = Annotated[str, _text]
Texts = Annotated[tuple[str, ...], _texts]
Seconds = Annotated[int, _duration]
FilePath = Annotated[Path, _path]
"""A type, and how a value of it is read from the file or the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketSettings:
    """Everything a market is told."""

    deployment: FilePath
    """JSON file that the deployer wrote."""
    rpc: Text
    keystore: FilePath
    """Of the matcher: its account posts openings, its signature is under receipts."""
    password_file: FilePath
    data_folder: FilePath
    """Chain outbox, and the database unless `database` names another."""
    market_id: Whole
    """The market's row in LeaseBook; 0: no market, no fee."""
    listen_http: Text = "127.0.0.1:8805"
    """Host and port; port 0: any free one. Put a proxy with TLS before it."""
    listen_overlay: Text = "/ip4/0.0.0.0/tcp/0"
    bootstrap: Texts = ()
    database: Text = ""
    """A URL: "sqlite:///file" or "postgresql+psycopg://…"; empty: SQLite in the data folder."""
    round_ms: Whole = 1_000
    """What arrives within one round is matched together."""
    settle_timeout: Seconds = 60
    """An opening that the chain has not answered for so long is given up."""
    chain_silence: Seconds = 60
    """No round while the newest block is older."""
    inclusion: Seconds = 3
    """Orders that end sooner are not matched: the transaction would come too late."""
    verifier_silence: Seconds = 600
    """No verified lease is matched while a verifier was not heard for so long."""
    verified_owners_min: Whole = 3
    """Nor in a GPU class with fewer owners."""
    log_level: Text = "info"

    def __post_init__(self) -> None:
        if self.log_level.lower() not in LOG_LEVELS:
            raise ValueError(f"log_level is one of {', '.join(LOG_LEVELS)}")
        host, colon, port = self.listen_http.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and int(port) < 65_536):
            raise ValueError(f'listen_http is "host:port", found {self.listen_http!r}')

    @property
    def database_url(self) -> str:
        """Where inbox, journal and public tables lie."""
        return self.database or f"sqlite:///{self.data_folder / 'market.sqlite3'}"

    def rules(self, deployment: Deployment, matcher: Address) -> MarketRules:
        """The market's rules on one deployment. Raises SettingsInvalid."""
        try:
            return MarketRules(
                domain=deployment.domain,
                matcher=matcher,
                market_id=self.market_id,
                bond_unit=deployment.bond_unit,
                round_ms=self.round_ms,
                settle_ms=self.settle_timeout * 1000,
                silence_ms=self.chain_silence * 1000,
                inclusion_s=self.inclusion,
                verifiers=deployment.verifiers,
                heartbeat_age_s=self.verifier_silence,
                class_owners_min=self.verified_owners_min,
            )
        except ValueError as error:
            raise SettingsInvalid(str(error)) from error


def parse_settings(text: str, environment: Mapping[str, str]) -> MarketSettings:
    """The settings in a file's text, overridden by the environment; raises SettingsInvalid."""
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(f"the settings file is no TOML: {error}") from error
    known = {each.name: each for each in fields(MarketSettings)}
    for name in known:
        value = environment.get(ENVIRONMENT_PREFIX + name.upper())
        if value is not None:
            table[name] = value
    for name in table:
        if name not in known:
            raise SettingsInvalid(
                f"{name} is no setting of a market; there are {', '.join(sorted(known))}"
            )
    types = get_type_hints(MarketSettings, include_extras=True)
    values: dict[str, Any] = {}
    for name, each in known.items():
        if name in table:
            (read,) = types[name].__metadata__
            try:
                values[name] = read(table[name])
            except ValueError as error:
                raise SettingsInvalid(f"{name}: {error}") from error
        elif each.default is MISSING:
            raise SettingsInvalid(f"{name} is missing from the settings file")
    try:
        return MarketSettings(**values)
    except ValueError as error:
        raise SettingsInvalid(str(error)) from error
