"""Takes in a chain's events beside a test, and waits for those that it expects."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio

from cloud_gpu.protocol.adapters.evm import EvmChain
from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.identity import LocalKey
from tests.support.anvil import Deployed

EventT = TypeVar("EventT")


class Watch:
    """One chain and everything it has told so far."""

    def __init__(self, chain: EvmChain) -> None:
        self.chain = chain
        self.events: list[ChainEvent] = []
        self._more = anyio.Event()

    async def follow(self) -> None:
        async for event in self.chain.events():
            self.events.append(event)
            self._more.set()
            self._more = anyio.Event()

    def all(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, true: Callable[[], bool], what: str, within_s: float = 60) -> None:
        with anyio.move_on_after(within_s):
            while not true():
                await self._more.wait()
        shown = "\n  ".join(map(repr, self.events[-30:]))
        assert true(), f"not within {within_s} s: {what}; told were\n  {shown}"

    async def wait_for(
        self,
        kind: type[EventT],
        such_that: Callable[[EventT], bool] = lambda _: True,
        within_s: float = 60,
    ) -> EventT:
        """The first event of a kind, past ones included."""

        def found() -> list[EventT]:
            return [event for event in self.all(kind) if such_that(event)]

        await self.until(lambda: bool(found()), f"a {kind.__name__}", within_s)
        return found()[0]


@asynccontextmanager
async def watched(
    deployed: Deployed, key: LocalKey, outbox: Path, **options: Any
) -> AsyncIterator[Watch]:
    """A chain of this key whose events are taken in as they come."""
    options = {"poll_interval_s": 0.02} | options
    async with EvmChain(deployed.rpc_url, deployed.deployment, key, outbox, **options) as chain:
        watch = Watch(chain)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.follow)
            try:
                yield watch
            finally:
                tasks.cancel_scope.cancel()
