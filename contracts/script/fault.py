"""A one-line fault of a contract: where, what stands there, what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OFF: Final = "false"
"""In place of a condition: its branch is never taken."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of a source, changed."""

    file: str
    """Below contracts/src."""
    what: str
    where: str
    """Text that stands once in the file."""
    before: str
    """What of it is replaced: an expression, or a statement with its semicolon."""
    after: str


def fault(file: str, what: str, before: str, after: str, where: str = "") -> Fault:
    return Fault(file=file, what=what, where=where or before, before=before, after=after)
