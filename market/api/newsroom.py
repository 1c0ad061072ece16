"""Live streams of one process, all from one look at the database.

The newest rows lie in one window, which every stream reads on from at its own pace: no stream has
a queue, so a slow reader costs no memory and holds nobody up; who falls behind the window is cut
off. Nobody looks while nobody watches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from market.ports import KeptNews, NewsView

STREAMS_MAX: Final = 1_000
"""In one process."""
WINDOW: Final = 5_000
_AT_ONCE: Final = 1_000
_LOOK_S: Final = 0.2

Read = Callable[[int, int], Awaitable[Sequence[KeptNews]]]


class FellBehind(Exception):
    """A reader that took too long."""


class Newsroom:
    """One process' window on the news."""

    def __init__(self, view: NewsView, read: Read, window: int = WINDOW) -> None:
        """`read` is `NewsView.after` off the event loop."""
        self.view = view
        self._read, self._window = read, window
        self._rows: list[KeptNews] = []
        self._newest = 0
        self._is_looking = False
        self._looked = anyio.Event()
        self.streams = 0

    async def catch_up(self, number: int) -> Sequence[KeptNews]:
        """What was kept behind a number, at most a thousand: for a stream that begins."""
        return await self._read(number, _AT_ONCE)

    def join(self, newest: int) -> None:
        """Another stream, which has read everything up to here."""
        if not self.streams:
            self._rows, self._newest = [], newest
        self.streams += 1

    def leave(self) -> None:
        """It ended."""
        self.streams -= 1

    async def after(self, number: int) -> Sequence[KeptNews]:
        """What comes behind a number, once there is some. Raises FellBehind, StorageFailed."""
        while True:
            if self._rows and number < self._rows[0].number - 1:
                raise FellBehind
            first = bisect_right(self._rows, number, key=lambda row: row.number)
            if first < len(self._rows):
                return self._rows[first : first + _AT_ONCE]
            await self._look()

    async def _look(self) -> None:
        """One stream looks for all."""
        if self._is_looking:
            await self._looked.wait()
            return
        self._is_looking = True
        try:
            await anyio.sleep(_LOOK_S)
            found = await self._read(self._newest, _AT_ONCE)
            if found:
                self._rows = [*self._rows, *found][-self._window :]
                self._newest = found[-1].number
        finally:
            self._is_looking = False
            looked, self._looked = self._looked, anyio.Event()
            looked.set()
