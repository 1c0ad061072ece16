"""One follower of the chain for all buyers of a process, and the table of products it learns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import platformdirs
import structlog
import trio

from cloud_gpu.protocol.adapters.evm import EvmChain
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.chain_events import ChainAdvanced, ChainEvent, ProductRegistered
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable, CloudGpuError, SettingsInvalid
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.ports import AccountView, MachineView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.values import Address

_CAUGHT_UP_S: Final = 60.0
_SLOTS: Final = 16
"""Processes with one wallet on one machine whose outboxes are kept."""

Heard = Callable[[ChainEvent], None]


class FollowedChain(Protocol):
    """The port `Chain`, as far as a buyer needs it, and the chain's clock."""

    async def submit(self, call: ChainCall) -> None: ...

    def events(self) -> AsyncIterator[ChainEvent]: ...

    async def account(self, address: Address) -> AccountView: ...

    async def machine(self, key: MachineKey) -> MachineView: ...

    async def chain_time(self) -> int: ...


class ChainFeed:
    """Reads a chain's events once and hands each to everybody who listens."""

    def __init__(self, chain: FollowedChain) -> None:
        self._chain = chain
        self._heard: list[Heard] = []
        self._products: dict[int, Product] = {}
        self._newest: ChainAdvanced | None = None
        self._advanced = trio.Event()
        self.failure: CloudGpuError | None = None
        """Why no more events come."""
        self._log = structlog.get_logger(part="chain-feed")

    async def run(self) -> None:
        """Follow until cancelled, or until the chain is not ours any more."""
        try:
            async for event in self._chain.events():
                self._take(event)
        except CloudGpuError as error:
            self._log.error("chain_lost", error=str(error))
            self.failure = error
            self._wake()

    def listen(self, heard: Heard) -> Callable[[], None]:
        """Hand all events from now on to `heard`; call what is returned to end it.

        The newest block is told first, so that a listener knows the chain's time.
        """
        self._heard.append(heard)
        if self._newest is not None:
            heard(self._newest)
        return lambda: self._heard.remove(heard)

    async def submit(self, call: ChainCall) -> None:
        """Have a call sent."""
        await self._chain.submit(call)

    async def account(self, address: Address) -> AccountView:
        """An account's word; id 0: not registered. Raises `ChainUnavailable`."""
        return await self._chain.account(address)

    async def machine(self, key: MachineKey) -> MachineView:
        """A machine's words. Raises `ChainUnavailable`."""
        return await self._chain.machine(key)

    async def chain_time(self) -> int:
        """The newest block's time, Unix seconds. Raises `ChainUnavailable`."""
        return await self._chain.chain_time()

    async def products(self) -> Sequence[Product]:
        """The contract's table, up to the block that is the newest now."""
        await self.catch_up(await self.chain_time())
        return tuple(self._products.values())

    async def catch_up(self, at: int) -> None:
        """Until every event up to a block's time was told. Raises `ChainUnavailable`."""
        with trio.move_on_after(_CAUGHT_UP_S):
            while self._newest is None or self._newest.at < at:
                if self.failure is not None:
                    raise ChainUnavailable(str(self.failure)) from self.failure
                await self._advanced.wait()
            return
        raise ChainUnavailable(
            f"the chain's events could not be read up to now within {_CAUGHT_UP_S:.0f} s;"
            " check `rpc`"
        )

    def _take(self, event: ChainEvent) -> None:
        match event:
            case ProductRegistered():
                self._products[event.product] = event.row
            case ChainAdvanced():
                self._newest = event
            case _:
                pass
        for heard in tuple(self._heard):
            heard(event)
        if isinstance(event, ChainAdvanced):
            self._wake()

    def _wake(self) -> None:
        self._advanced.set()
        self._advanced = trio.Event()


@asynccontextmanager
async def open_chain(rpc: str, deployment: Deployment, key: Signer) -> AsyncIterator[FollowedChain]:
    """The chain through the first outbox of this key that no other process holds.

    Outboxes outlive the process where the user's folder can be written. Raises `ChainUnavailable`.
    """
    async with AsyncExitStack() as stack:
        folder = platformdirs.user_state_path("cloud-gpu") / "outboxes"
        name = f"{deployment.chain_id}-{deployment.lease_book}-{key.address}"
        for slot in range(_SLOTS):
            path = folder / f"{name}-{slot}.sqlite"
            try:
                chain = await stack.enter_async_context(EvmChain(rpc, deployment, key, path))
            except SettingsInvalid:
                continue  # held by another process, of another chain, or its folder is read-only
            yield chain
            return
        scratch = stack.enter_context(TemporaryDirectory(prefix="cloud-gpu-outbox-"))
        path = Path(scratch) / "outbox.sqlite"
        yield await stack.enter_async_context(EvmChain(rpc, deployment, key, path))
