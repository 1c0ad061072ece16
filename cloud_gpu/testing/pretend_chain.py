"""A chain port over the simulated LeaseBook: a block a second on trio's clock, real or virtual."""

from __future__ import annotations

from collections.abc import AsyncIterator

import trio

from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.ports import AccountView, MachineView
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Address
from cloud_gpu.testing.simulated_book import SimulatedBook
from cloud_gpu.testing.simulated_chain import Follower, SimulatedChain

EPOCH_S = 1_800_000_000
"""Unix seconds at which pretend time begins."""


class TrioClock:
    """Unix milliseconds on the clock of the running trio loop."""

    def __init__(self) -> None:
        self._clock = trio.lowlevel.current_clock()
        self._began = self._clock.current_time()

    def now(self) -> Instant:
        """Now; from any thread."""
        return EPOCH_S * 1000 + int((self._clock.current_time() - self._began) * 1000)


class PretendChain:
    """Blocks at regular times, for every party of one pretend world."""

    def __init__(self, genesis: SimulatedBook, clock: TrioClock, block_s: float = 1.0) -> None:
        self.chain = SimulatedChain(genesis)
        self._clock, self._block_s = clock, block_s
        self.is_down = False
        """No blocks are made; nothing that was sent is lost."""

    async def run(self) -> None:
        """Make blocks until cancelled."""
        while True:
            await trio.sleep(self._block_s)
            if not self.is_down:
                self.chain.mine(self._clock.now() // 1000)

    def port(self, owner: Address) -> ChainPort:
        """One account's way to it."""
        return ChainPort(self, owner, self._block_s)


class ChainPort:
    """The port `Chain` of one account."""

    def __init__(self, world: PretendChain, owner: Address, block_s: float) -> None:
        self._world, self._owner, self._block_s = world, owner, block_s

    async def submit(self, call: ChainCall) -> None:
        """Put a call into the pool."""
        self._world.chain.submit(self._owner, call)

    async def events(self) -> AsyncIterator[ChainEvent]:
        """Everything since the genesis, then what happens."""
        follower = Follower(owner=self._owner)
        while True:
            for event in self._world.chain.news_for(follower):
                yield event
            await trio.sleep(self._block_s / 5)

    async def account(self, address: Address) -> AccountView:
        """An account's word; id 0: not registered."""
        return self._world.chain.book.account_view(address)

    async def machine(self, key: MachineKey) -> MachineView:
        """A machine's words."""
        return self._world.chain.book.machine_view(key)

    async def chain_time(self) -> int:
        """The newest block's time, Unix seconds."""
        return self._world.chain.head.at
