"""Changes to tables, block by block, so that a reorganisation takes them back exactly."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeVar

REWIND_BLOCKS_MAX: Final = 256
"""Blocks with events that can be taken back; what reaches deeper is another chain."""

KeyT = TypeVar("KeyT")
RowT = TypeVar("RowT")

_ABSENT: Final = object()
_Change = tuple[dict[Any, Any], Any, Any]


class UndoLog:
    """Every change goes through it; tables are plain dictionaries."""

    def __init__(self) -> None:
        self.block = -1
        """The newest whole block; -1: none yet."""
        self.at = 0
        """Its time, Unix seconds."""
        self._changes: list[_Change] = []
        self._blocks: deque[tuple[int, int, list[_Change]]] = deque()
        """Blocks in which something changed: number, time, and how it was before."""
        self._kept_after = -1
        """Changes up to this block cannot be taken back."""

    def set(self, table: dict[KeyT, RowT], key: KeyT, row: RowT) -> None:
        """Put a row in."""
        self._changes.append((table, key, table.get(key, _ABSENT)))
        table[key] = row

    def remove(self, table: dict[KeyT, RowT], key: KeyT) -> None:
        """Take a row out."""
        self._changes.append((table, key, table.pop(key)))

    def end_block(self, block: int, at: int) -> None:
        """What changed since the last end belongs to this block."""
        self.block, self.at = block, at
        if self._changes:
            self._blocks.append((block, at, self._changes))
            self._changes = []
        if len(self._blocks) > REWIND_BLOCKS_MAX:
            self._kept_after = self._blocks.popleft()[0]

    def rewind(self, block: int) -> None:
        """Take back every change after `block`, those of an unfinished block included."""
        assert block >= self._kept_after, (
            f"cannot rewind to block {block}: changes up to {self._kept_after} are final"
        )
        _take_back(self._changes)
        self._changes = []
        while self._blocks and self._blocks[-1][0] > block:
            _take_back(self._blocks.pop()[2])
        if self.block > block:
            self.block = block
            self.at = self._blocks[-1][1] if self._blocks else 0


def _take_back(changes: list[_Change]) -> None:
    for table, key, before in reversed(changes):
        if before is _ABSENT:
            table.pop(key, None)
        else:
            table[key] = before
