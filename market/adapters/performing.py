"""Carries out the matchmaker's effects: calls to the chain, rows to the public tables.

Rows are written many at a time and in order. What a crash leaves unwritten is stated again at the
next start, so nothing waits for the disk here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence

import trio

from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.effects import MarketEffect, PublishRound, Transact
from market.audit.replaying import Reported
from market.ports import BookWriter

_AT_ONCE = 500
_LOOK_S = 0.05


async def _no_chain(call: ChainCall) -> None:
    raise AssertionError(f"an effect before there is a chain: {call!r}")


def lane_of(effect: MarketEffect) -> Hashable:
    """Chain calls in order, rows in order, beside each other."""
    return isinstance(effect, Transact)


class Unwritten:
    """What a crash kept from the tables: rows are written in order, so all since the last round."""

    def __init__(self, newest: int) -> None:
        """`newest` is the last round that was published."""
        self._newest = newest
        self.effects: list[MarketEffect] = []

    def keep(self, effect: MarketEffect) -> None:
        """One effect of the journal's replay."""
        if isinstance(effect, PublishRound):
            if effect.facts.number <= self._newest:
                self.effects.clear()
                return
        elif not isinstance(effect, Reported):
            return
        self.effects.append(effect)


class Performer:
    """What the runner calls for each effect."""

    def __init__(self, writer: BookWriter, performed: Callable[[MarketEffect], None]) -> None:
        self._writer, self._performed = writer, performed
        self.submit: Callable[[ChainCall], Awaitable[None]] = _no_chain
        """Set before the first effect; the chain is opened after the journal was replayed."""
        self._rows: list[MarketEffect] = []
        self._more = trio.Event()

    async def __call__(self, effect: MarketEffect) -> None:
        """Carry out one effect; rows become visible a moment later."""
        if isinstance(effect, Transact):
            await self.submit(effect.call)
        else:
            self._rows.append(effect)
            self._more.set()
        self._performed(effect)

    async def restate(self, effects: Sequence[MarketEffect]) -> None:
        """At a start: bring the tables in line with the journal; calls are for `resend`."""
        await trio.to_thread.run_sync(self._writer.clear_asks)
        for effect in effects:
            if not isinstance(effect, Transact):
                await self(effect)

    async def resend(
        self,
        before: Sequence[MarketEffect],
        restated: Callable[[], Sequence[MarketEffect]],
        events_waiting: Callable[[], int],
    ) -> None:
        """Once what the chain told at the start is handled: the calls that it did not answer.

        `before` is what was restated at the start. Sent at once, a call that was mined while the
        market was away would be sent twice.
        """
        while events_waiting():  # noqa: ASYNC110  the runner tells nobody when it is done
            await trio.sleep(_LOOK_S)
        left = restated()
        for effect in before:
            if isinstance(effect, Transact) and effect in left:
                await self(effect)

    async def settle(self, events_waiting: Callable[[], int]) -> None:
        """Until the events that came so far are handled, and what follows from them is visible."""
        await trio.sleep(_LOOK_S)
        while events_waiting() or self._rows:  # noqa: ASYNC110  as in `resend`
            await trio.sleep(_LOOK_S)

    async def write(self) -> None:
        """Write rows as they come, for ever. Raises StorageFailed: then the market must stop."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            while self._rows:
                rows = self._rows[:_AT_ONCE]
                await trio.to_thread.run_sync(self._writer.write, rows)
                del self._rows[: len(rows)]
