"""A buyer's settings: flag > CLOUD_GPU_* > ./cloud-gpu.toml > context > default.

`main` reads the files and the environment and hands them over as text. An unknown key of a file
is an error, an unknown environment variable is not ours. Every value remembers where it is from.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final, TypeAlias

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.units import Price, parse_price

PREFIX: Final = "CLOUD_GPU_"
PROJECT_FILE: Final = "cloud-gpu.toml"
DEFAULT_CONTEXT: Final = "devnet"
"""Written by `cloud-gpu devnet up`; the only context that is used without being named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """One TOML file as it was read."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one buyer uses. Every field is text as a person writes it; empty: not set."""

    context: str = ""
    """Name of the set of values below that fills what nothing else sets."""
    market: str = ""
    """URL of the market's API: "http://127.0.0.1:8080"."""
    other_markets: str = ""
    """URLs of more markets, spaces between them: a lease is bid for there, too."""
    rpc: str = ""
    """URL of an EVM node of the chain."""
    deployment: str = ""
    """Path of the deployment's JSON: addresses and time-outs of the contracts."""
    keystore: str = ""
    """Path of the wallet's encrypted keystore, mode 0600."""
    password_file: str = ""
    """Path of the file that holds the keystore's password, mode 0600."""
    max_price: str = ""
    """Tokens per GPU-hour, "1.20": the limit where a command or Session names none."""
    output: str = "table"
    """How commands print: table, json, jsonl or yaml."""
    log_level: str = "error"
    """What the SDK writes to stderr of its inner life: error, warning, info or debug."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each value is from: "flag", "CLOUD_GPU_MARKET", a file's path or "default"."""

    def need(self, name: str) -> str:
        """A setting that must be there. Raises `SettingsInvalid` saying how to set it."""
        found: str = getattr(self, name)
        if not found:
            raise SettingsInvalid(
                f"{name}: found nothing, needed a value. Start a devnet with `cloud-gpu devnet up`,"
                f" or set {PREFIX}{name.upper()}, or write {name} into {PROJECT_FILE}."
            )
        return found

    @property
    def price_limit(self) -> Price:
        """The obligatory cap. Raises `SettingsInvalid`."""
        text = self.need("max_price")
        try:
            return parse_price(text)
        except ValueError as error:
            raise SettingsInvalid(f"max_price ({self.origin('max_price')}): {error}") from error

    def origin(self, name: str) -> str:
        """Where a value is from."""
        return self.origins.get(name, "default")


_NAMES: Final = tuple(field.name for field in fields(Settings) if field.name != "origins")
OUTPUTS: Final = ("table", "json", "jsonl", "yaml")
LOG_LEVELS: Final = ("error", "warning", "info", "debug")

_Source: TypeAlias = dict[str, tuple[str, str]]
"""Setting -> (value, where it is from)."""


def read_settings(
    *,
    flags: Mapping[str, str | None],
    environment: Mapping[str, str],
    project: SettingsFile | None,
    context: Callable[[str], SettingsFile | None],
    contexts: str,
    chosen: str = "",
) -> Settings:
    """Join all sources. Raises `SettingsInvalid`, which names the source, the key and the fix.

    `context` reads a context's file by name, `contexts` says where such files lie, `chosen` is
    the context that config.toml makes the person's own.
    """
    sources = [
        {name: (value, "flag") for name, value in flags.items() if value is not None},
        _of_environment(environment),
        _of_file(project) if project is not None else {},
    ]
    named = next((s["context"] for s in sources if s.get("context", ("",))[0]), None)
    name, named_by = named or ((chosen, "config.toml") if chosen else (DEFAULT_CONTEXT, "default"))
    file = context(name)
    if file is not None:
        held = _of_file(file)
        if "context" in held:
            raise SettingsInvalid(f"{file.path}: context: a context does not name another one")
        sources.append(held)
    elif named_by != "default":
        raise SettingsInvalid(
            f"context ({named_by}): found {name!r}, needed one of the files in {contexts}."
        )
    found = {key: value for source in reversed(sources) for key, value in source.items()}
    found["context"] = (name if file is not None else "", named_by)
    return _checked(
        Settings(
            **{key: value for key, (value, _) in found.items()},
            origins=MappingProxyType({key: origin for key, (_, origin) in found.items()}),
        )
    )


def chosen_context(config: SettingsFile | None) -> str:
    """The context that a person made the usual one in config.toml; empty: none."""
    if config is None:
        return ""
    try:
        table = tomllib.loads(config.text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(f"{config.path}: not TOML: {error}") from error
    if unknown := [key for key in table if key != "context"]:
        raise SettingsInvalid(f"{config.path}: {unknown[0]}: no such setting. Known: context.")
    name = table.get("context", "")
    if not isinstance(name, str):
        raise SettingsInvalid(f"{config.path}: context: found {name!r}, needed a name in quotes")
    return name


def _of_environment(environment: Mapping[str, str]) -> _Source:
    return {
        name: (value, PREFIX + name.upper())
        for name in _NAMES
        if (value := environment.get(PREFIX + name.upper(), ""))
    }


def _of_file(file: SettingsFile) -> _Source:
    try:
        table = tomllib.loads(file.text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(f"{file.path}: not TOML: {error}") from error
    found: _Source = {}
    for key, value in table.items():
        if key not in _NAMES:
            raise SettingsInvalid(
                f"{file.path}: {key}: no such setting. Known: {', '.join(_NAMES)}."
            )
        if not isinstance(value, str):
            raise SettingsInvalid(
                f'{file.path}: {key}: found {value!r}, needed text in quotes, like "1.20"'
            )
        found[key] = (value, file.path)
    return found


def _checked(settings: Settings) -> Settings:
    for name, known in (("output", OUTPUTS), ("log_level", LOG_LEVELS)):
        found: str = getattr(settings, name)
        if found not in known:
            raise SettingsInvalid(
                f"{name} ({settings.origin(name)}): found {found!r}, needed one of"
                f" {', '.join(known)}"
            )
    if settings.max_price:
        settings.price_limit  # noqa: B018  # raises for a bad one before anything is done
    urls = [("market", settings.market), ("rpc", settings.rpc)]
    for name, url in urls + [("other_markets", each) for each in settings.other_markets.split()]:
        if url and not url.startswith(("http://", "https://")):
            raise SettingsInvalid(
                f"{name} ({settings.origin(name)}): found {url!r}, needed a URL that begins with"
                " http:// or https://"
            )
    return settings
