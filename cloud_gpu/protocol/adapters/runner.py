"""Runs one party in production: events in, one at a time; effects out, in order within a lane.

Effects of one lane (by default: of one kind and peer) are carried out one after the other, lanes
side by side. What the outside world refuses is logged here and comes back as an event from the
adapter that tried. An exception from `handle` is our own mistake: the last events are logged and
the process stops, since its state can no longer be trusted; the journal brings it back.
"""

from __future__ import annotations

import math
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog
import trio

from cloud_gpu.protocol.errors import CloudGpuError
from cloud_gpu.protocol.events import DeadlinePassed
from cloud_gpu.protocol.party import Party
from cloud_gpu.protocol.ports import Clock, Journal

EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")

_LAST_EVENTS = 20
_LANE_IDLE_S = 30.0


def lane_of(effect: object) -> Hashable:
    """One lane per kind of effect and peer."""
    return type(effect).__name__, getattr(effect, "peer", None)


class Runner(Generic[EventT, EffectT]):
    """The production caller of `Party.handle`."""

    def __init__(
        self,
        party: Party[EventT | DeadlinePassed, EffectT],
        perform: Callable[[EffectT], Awaitable[None]],
        clock: Clock,
        *,
        name: str,
        lane: Callable[[EffectT], Hashable] = lane_of,
        journal: Journal[EventT | DeadlinePassed] | None = None,
    ) -> None:
        self._party = party
        self._perform = perform
        self._clock = clock
        self._lane = lane
        self._journal = journal
        self._log = structlog.get_logger(party=name)
        self._events: deque[EventT | DeadlinePassed] = deque()
        self._arrived = trio.Event()
        self._recent: deque[object] = deque(maxlen=_LAST_EVENTS)
        self._lanes: dict[Hashable, trio.MemorySendChannel[EffectT]] = {}

    @property
    def waiting(self) -> int:
        """Events not handled yet."""
        return len(self._events)

    def post(self, event: EventT) -> None:
        """Enqueue a fact; from the runner's own trio thread."""
        self._events.append(event)
        self._arrived.set()

    def replay(self, again: Callable[[EffectT], None] = lambda _: None) -> int:
        """Bring the party to where its journal ends; returns how many entries it has.

        Its effects are long done; `again` is shown each, for what is done only once.
        """
        count = 0
        if self._journal is not None:
            for event, at in self._journal.replay():
                for effect in self._party.handle(event, at):
                    again(effect)
                count += 1
        return count

    async def run(self) -> None:
        """Handle events until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wait()
                now = self._clock.now()
                if self._events:
                    event = self._events.popleft()
                elif self._party.deadline is not None and self._party.deadline <= now:
                    event = DeadlinePassed()
                else:
                    continue
                for effect in self._handle(event, now):
                    self._start(nursery, effect)

    async def _wait(self) -> None:
        if self._events:
            await trio.lowlevel.checkpoint()
            return
        deadline = self._party.deadline
        wait_s = math.inf if deadline is None else max(0.0, (deadline - self._clock.now()) / 1000)
        with trio.move_on_after(wait_s):
            await self._arrived.wait()
        self._arrived = trio.Event()

    def _handle(self, event: EventT | DeadlinePassed, now: int) -> list[EffectT]:
        self._recent.append(event)
        if self._journal is not None:
            self._journal.append(event, now)
        try:
            return list(self._party.handle(event, now))
        except Exception:
            self._log.critical("party.failed", last_events=[repr(e)[:400] for e in self._recent])
            raise

    def _start(self, nursery: trio.Nursery, effect: EffectT) -> None:
        lane = self._lane(effect)
        send = self._lanes.get(lane)
        if send is None:
            send, receive = trio.open_memory_channel[EffectT](math.inf)
            self._lanes[lane] = send
            nursery.start_soon(self._work, lane, receive)
        send.send_nowait(effect)

    async def _work(self, lane: Hashable, receive: trio.MemoryReceiveChannel[EffectT]) -> None:
        while True:
            with trio.move_on_after(_LANE_IDLE_S) as idle:
                effect = await receive.receive()
            if idle.cancelled_caught:
                if receive.statistics().current_buffer_used:
                    continue
                del self._lanes[lane]
                return
            try:
                await self._perform(effect)
            except CloudGpuError as error:
                self._log.warning("effect.failed", effect=type(effect).__name__, error=str(error))


def run_trio(main: Callable[[], Awaitable[None]]) -> int:
    """Run a daemon's main under trio until it returns or SIGTERM/SIGINT arrives; the exit code.

    0 after a clean end or SIGTERM, 130 after SIGINT, 3 to 8 by the error's kind (one line of text).
    """
    stopped_by: list[int] = []

    async def watch(scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                stopped_by.append(number)
                scope.cancel()
                return

    async def supervised() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            await main()
            nursery.cancel_scope.cancel()

    try:
        trio.run(supervised, strict_exception_groups=True)
    except BaseExceptionGroup as group:
        known, rest = group.split(CloudGpuError)
        if rest is not None or known is None:
            raise
        error = _first(known)
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 130 if signal.SIGINT in stopped_by else 0


def _first(group: BaseExceptionGroup[CloudGpuError]) -> CloudGpuError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, CloudGpuError), error
    return error
