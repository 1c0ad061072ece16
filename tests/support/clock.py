"""A wall clock that a test moves, and with it the chain's: for stories that last a day or a week.

The test's own clock stays; programs that it starts with `environment` see the moved one.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path

from tests.support.anvil import Anvil

_FOLDER = Path(__file__).parent / "moved_clock"


class MovedClock:
    """Of all programs of one story and its chain; only ever moved ahead."""

    def __init__(self, file: Path, anvil: Anvil) -> None:
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._offset = mmap.mmap(opened.fileno(), 8)
        self._file, self._anvil, self._ahead_s = file, anvil, 0

    @property
    def mark(self) -> str:
        """In the environment of every program that sees it: `NAME=value`."""
        return f"TEST_CLOCK={self._file}"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that should see it."""
        return {"PYTHONPATH": str(_FOLDER), "TEST_CLOCK": str(self._file)}

    def now(self) -> float:
        """Unix seconds."""
        return time.time() + self._ahead_s

    def jump(self, seconds: int) -> None:
        """Let so much pass at once, here and on the chain, which mines a block."""
        assert seconds > 0, f"time goes on, it was told to jump {seconds} s"
        self._ahead_s += seconds
        ahead_ns = self._ahead_s * 10**9
        self._offset[:8] = ahead_ns.to_bytes(8, "little")  # in one write: no reader sees a half
        self._anvil.pass_time(seconds)

    def jump_to(self, at: int) -> None:
        """To a time, Unix seconds, that is ahead."""
        self.jump(at - int(self.now()))
