"""What a verifier is told: one TOML file, then the environment. Parsed here, read by main.

An unknown key in the file is an error that names it; an unknown variable is ignored.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.units import parse_price

ENVIRONMENT_PREFIX: Final = "CLOUD_GPU_VERIFIER_"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError(f"a text is needed, found {found!r}")
    return found


def _positive(found: object) -> int:
    if isinstance(found, str) and found.isascii() and found.isdigit():
        found = int(found)  # from the environment
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"a whole number above 0 is needed, found {found!r}")
    return found


def _texts(found: object) -> tuple[str, ...]:
    if isinstance(found, str):
        return tuple(filter(None, found.split(",")))
    if not isinstance(found, list):
        raise ValueError(f"a list of texts is needed, found {found!r}")
    return tuple(_text(each) for each in found)


def _path(found: object) -> Path:
    return Path(_text(found)).expanduser()


def _url(found: object) -> str:
    url = _text(found)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"a URL that begins with http:// or https:// is needed, found {url!r}")
    return url


def _price(found: object) -> str:
    text = _text(found)
    parse_price(text)
    return text


Positive = Annotated[int, _positive]
Text = Annotated[str, _text]
Texts = Annotated[tuple[str, ...], _texts]
Url = Annotated[str, _url]
FilePath = Annotated[Path, _path]
"""A type, and how a value of it is read from the file or the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSettings:
    """Everything a verifier is told."""

    deployment: FilePath
    """JSON file that the deployer wrote; it names this verifier's account."""
    rpc: Url
    keystore: FilePath
    """Of the verifier: it signs verdicts and posts draws and accusations."""
    password_file: FilePath
    preimages_file: FilePath
    """32 bytes in hex, mode 0600: the seed of the hash chain whose anchor the contract holds."""
    preimages: Positive = 10_000
    """How many draws the chain serves, as the contract was told."""
    data_folder: FilePath
    """Chain outbox, artefacts, re-executions and published records."""
    market: Url
    """Where re-executions are rented, like any lease."""
    audit_keystore: FilePath
    """Of the account that pays them: another one, since two programs must not share a key."""
    audit_password_file: FilePath
    max_price: Annotated[str, _price]
    """Limit of a re-execution, tokens per GPU-hour, "1.20"."""
    replays_at_once: Positive = 1
    """Side by side; each has a lease of its own."""
    artifacts_mib: Positive = 10 * 1024
    listen_overlay: Text = "/ip4/0.0.0.0/tcp/0"
    bootstrap: Texts = ()
    log_level: Text = "info"

    def __post_init__(self) -> None:
        if self.log_level.lower() not in LOG_LEVELS:
            raise ValueError(f"log_level is one of {', '.join(LOG_LEVELS)}")
        if self.keystore == self.audit_keystore:
            raise ValueError("audit_keystore is another one than keystore")


def parse_settings(text: str, environment: Mapping[str, str]) -> VerifierSettings:
    """The settings in a file's text, overridden by the environment; raises SettingsInvalid."""
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(f"the settings file is no TOML: {error}") from error
    known = {each.name: each for each in fields(VerifierSettings)}
    for name in known:
        value = environment.get(ENVIRONMENT_PREFIX + name.upper())
        if value is not None:
            table[name] = value
    for name in table:
        if name not in known:
            raise SettingsInvalid(
                f"{name} is no setting of a verifier; there are {', '.join(sorted(known))}"
            )
    types = get_type_hints(VerifierSettings, include_extras=True)
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
        return VerifierSettings(**values)
    except ValueError as error:
        raise SettingsInvalid(str(error)) from error
