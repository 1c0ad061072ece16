"""JSON from strangers, read so that no text of theirs can break the reader."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

DEPTH_MAX: Final = 200

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")


class Unreadable(ValueError):
    """The bytes are not what their name says, or hold what is never loaded."""


def parse_json(content: bytes) -> Any:
    """The document, names in Unicode's normal form.

    Raises `Unreadable`: no JSON, one name twice in an object, nested deeper than `DEPTH_MAX`.
    """
    if _is_too_deep(content):
        raise Unreadable("JSON nested too deeply")
    try:
        return json.loads(content, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not JSON: {error}"[:200]) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = {unicodedata.normalize("NFC", name): value for name, value in pairs}
    if len(table) != len(pairs):
        raise Unreadable("one name twice in a JSON object")
    return table


def _is_too_deep(content: bytes) -> bool:
    """Before it is parsed: the parser recurses in C, where the stack's end is a crash."""
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", content)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > DEPTH_MAX:
            return True
    return False
