"""The inbox into the matchmaker, in order: after a restart from where its journal ends."""

from __future__ import annotations

from collections.abc import Callable

import trio

from market.ports import Inbox, InboxEvent

_AT_ONCE = 200
_LOOK_S, _LOOK_S_MAX = 0.02, 0.25
"""How soon an order is found that another process took in: the later, the longer none came."""


class Sequencer:
    """The only reader of the inbox."""

    def __init__(self, inbox: Inbox, post: Callable[[InboxEvent], None], after: int) -> None:
        """`after` is the last position that the matchmaker's journal holds."""
        self._inbox, self._post, self.position = inbox, post, after
        self._arrived = trio.Event()

    def wake(self) -> None:
        """Something was taken in here."""
        self._arrived.set()

    async def run(self) -> None:
        """Post what lies in the inbox, for ever."""
        wait_s = _LOOK_S
        while True:
            self._arrived = trio.Event()
            found = await trio.to_thread.run_sync(self._inbox.after, self.position, _AT_ONCE)
            for event in found:
                self._post(event)
                self.position = event.inbox
            wait_s = _LOOK_S if found else min(2 * wait_s, _LOOK_S_MAX)
            if len(found) < _AT_ONCE:
                with trio.move_on_after(wait_s):
                    await self._arrived.wait()
