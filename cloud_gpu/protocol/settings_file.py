"""How every daemon reads its settings: one TOML file, then the environment, each key by its type.

A settings class is a dataclass whose fields are annotated with the types below. An unknown key in
the file is an error that names it; an unknown variable is ignored. Files are read by `main`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.units import parse_duration

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

SettingsT = TypeVar("SettingsT")


def text(found: object) -> str:
    """A text."""
    if not isinstance(found, str):
        raise ValueError(f"a text is needed, found {found!r}")
    return found


def whole(found: object, needed: str = "a whole number") -> int:
    """A whole number from 0; digits where it comes from the environment."""
    if isinstance(found, str) and found.isascii() and found.isdigit():
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"{needed} is needed, found {found!r}")
    return found


def positive(found: object) -> int:
    """A whole number from 1."""
    if not (number := whole(found, "a whole number above 0")):
        raise ValueError(f"a whole number above 0 is needed, found {found!r}")
    return number


def truth(found: object) -> bool:
    """True or false; a word where it comes from the environment."""
    words = {"true": True, "false": False, "1": True, "0": False}
    if isinstance(found, str) and found.lower() in words:
        return words[found.lower()]
    if not isinstance(found, bool):
        raise ValueError(f"true or false is needed, found {found!r}")
    return found


def texts(found: object) -> tuple[str, ...]:
    """A list of texts; commas part them where it comes from the environment."""
    if isinstance(found, str):
        return tuple(filter(None, found.split(",")))
    if not isinstance(found, list):
        raise ValueError(f"a list of texts is needed, found {found!r}")
    return tuple(text(each) for each in found)


def duration(found: object) -> int:
    """Seconds."""
    if isinstance(found, str | int) and not isinstance(found, bool):
        return parse_duration(found)
    raise ValueError(f'a duration is written like "2h" or "60s", found {found!r}')


def file_path(found: object) -> Path:
    """A path, with ~ for the home folder."""
    return Path(text(found)).expanduser()


Text = Annotated[str, text]
Texts = Annotated[tuple[str, ...], texts]
Whole = Annotated[int, whole]
Positive = Annotated[int, positive]
Truth = Annotated[bool, truth]
Seconds = Annotated[int, duration]
FilePath = Annotated[Path, file_path]
"""A type, and how a value of it is read from the file or the environment."""


def check_log_level(level: str) -> None:
    """Raise ValueError unless it is one of the levels."""
    if level.lower() not in LOG_LEVELS:
        raise ValueError(f"log_level is one of {', '.join(LOG_LEVELS)}")


def read_table(
    content: str, kind: type[Any], environment: Mapping[str, str], prefix: str
) -> dict[str, Any]:
    """The file's table with each key of `kind` that the environment overrides.

    Raises SettingsInvalid when the text is no TOML.
    """
    try:
        table = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(f"the settings file is no TOML: {error}") from error
    for each in fields(kind):
        value = environment.get(prefix + each.name.upper())
        if value is not None:
            table[each.name] = value
    return table


def settings_of(
    kind: type[SettingsT], table: Mapping[str, object], party: str, where: str = ""
) -> SettingsT:
    """One settings value out of a table; `where` names the table in errors.

    Raises SettingsInvalid for an unknown, missing or malformed key.
    """
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    types = get_type_hints(kind, include_extras=True)
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in known:
            raise SettingsInvalid(
                f"{prefix}{key} is no setting of a {party}; there are {', '.join(sorted(known))}"
            )
    values: dict[str, Any] = {}
    for name, each in known.items():
        if name in table:
            (read,) = getattr(types[name], "__metadata__", (lambda found: found,))
            try:
                values[name] = read(table[name])
            except ValueError as error:
                raise SettingsInvalid(f"{prefix}{name}: {error}") from error
        elif each.default is MISSING:
            raise SettingsInvalid(f"{prefix}{name} is missing from the settings file")
    try:
        return kind(**values)
    except ValueError as error:
        raise SettingsInvalid(f"{where}: {error}" if where else str(error)) from error
