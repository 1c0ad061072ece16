"""One difference between what a market published and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_SHOWN = 300
"""Letters of a value."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where, what was found, what was needed."""

    number: int
    """Of the round."""
    field: str
    found: str
    needed: str

    def __str__(self) -> str:
        found, needed = self.found[:_SHOWN], self.needed[:_SHOWN]
        return f"round {self.number}, {self.field}: found {found}, needed {needed}"


def differing(number: int, field: str, found: object, needed: object) -> Iterator[Difference]:
    """Nothing, if both are the same."""
    if found != needed:
        yield Difference(number, field, str(found), str(needed))
