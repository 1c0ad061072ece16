"""The output contract: standard output is the result, standard error progress and what is next.

JSON carries a schema version, and money as a decimal string with its unit. Without a terminal
there is no colour and no spinner.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cloud_gpu.cli.failures import Failure
from cloud_gpu.protocol.units import Price, TokenAmount, format_tokens

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SCHEMA = 1
"""Raised when a field of some command's JSON changes its meaning or goes."""


class Format(StrEnum):
    """How the result is written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"


def money(amount: TokenAmount | int) -> dict[str, str]:
    """An amount, base units in (negative for a loss), as `{"amount": "1.20", "unit": "token"}`."""
    return {"amount": format_tokens(amount), "unit": "token"}


def rate(price: Price) -> dict[str, str]:
    """A price as `{"amount": "1.20", "unit": "token/GPU-hour"}`."""
    return {"amount": format_tokens(price), "unit": "token/GPU-hour"}


class Output:
    """Writes one command's result, progress and failure in the format that was asked for."""

    def __init__(self, form: Format, *, quiet: bool = False, color: bool = True) -> None:
        self.form = form
        self._quiet = quiet
        self._color = color

    def result(
        self, kind: str, payload: dict[str, Any], table: Callable[[], RenderableType]
    ) -> None:
        """The result; `table` is only called where people read it."""
        document = {"schema": SCHEMA, "kind": kind, **payload}
        match self.form:
            case Format.TABLE:
                self._console().print(table())
            case Format.JSON | Format.JSONL:
                sys.stdout.write(json.dumps(document) + "\n")
            case Format.YAML:
                sys.stdout.write("\n".join(_yaml_lines(document)) + "\n")
        sys.stdout.flush()

    def results(
        self, kind: str, rows: Sequence[dict[str, Any]], table: Callable[[], RenderableType]
    ) -> None:
        """A list of results; one line each under jsonl."""
        if self.form is not Format.JSONL:
            self.result(kind, {"items": list(rows)}, table)
            return
        for row in rows:
            self.result(kind, row, table)

    def progress(self, text: str) -> None:
        """What happens, for people who wait."""
        if not self._quiet:
            _tell(f"{text}\n")

    def next(self, command: str) -> None:
        """What one would do now."""
        self.progress(f"Next: {command}")

    def failure(self, failure: Failure) -> None:
        """Why nothing came of it: on standard output under JSON, else on standard error."""
        if self.form is Format.TABLE:
            _tell("\n".join(failure.lines()) + "\n")
            return
        error = {
            name: getattr(failure, name) for name in ("code", "reason", "found", "needed", "next")
        }
        document = {"schema": SCHEMA, "kind": "error", **error}
        if self.form is Format.YAML:
            sys.stdout.write("\n".join(_yaml_lines(document)) + "\n")
        else:
            sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()

    def failed_elsewhere(self, code: int, words: Mapping[str, str]) -> None:
        """A failure that another of our processes put into words."""
        texts = {name: str(words.get(name, "")) for name in ("reason", "found", "needed", "next")}
        self.failure(Failure(code=code, **texts))

    def _console(self) -> Console:
        from rich.console import Console  # half of a start-up that only people need

        return Console(no_color=not self._color, highlight=False, width=_width())


def _tell(text: str) -> None:
    """On standard error. Who listened may be gone: what was begun is put in order nevertheless."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # what was buffered would fail again at the exit
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def _width() -> int | None:
    """Rich asks the terminal; into a file, lines must not wrap at 80."""
    return None if sys.stdout.isatty() else 160


def _yaml_lines(value: Any, indent: int = 0) -> list[str]:
    """Block-style YAML of JSON-like data; every scalar is written as JSON, which YAML contains."""
    pad = "  " * indent
    if isinstance(value, dict) and value:
        lines = []
        for key, held in value.items():
            if isinstance(held, dict | list) and held:
                lines += [f"{pad}{json.dumps(str(key))}:", *_yaml_lines(held, indent + 1)]
            else:
                lines.append(f"{pad}{json.dumps(str(key))}: {json.dumps(held)}")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for held in value:
            inner = _yaml_lines(held, indent + 1)
            lines += [f"{pad}- {inner[0].lstrip()}", *inner[1:]]
        return lines
    return [f"{pad}{json.dumps(value)}"]
