"""A party's way to LeaseBook: calls that survive a crash, events that survive a reorganisation.

`EvmChain` is the production `Chain` of one key in one process. Trio or asyncio, through anyio;
the node is asked from worker threads. `Wallet`, `deploy` and the keystore stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
import structlog
from anyio import to_thread

from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.clock import SystemClock
from cloud_gpu.protocol.adapters.deployer import deploy
from cloud_gpu.protocol.adapters.deployment_files import read_deployment, write_deployment
from cloud_gpu.protocol.adapters.evm_follower import ContractGone, Follower, Raced
from cloud_gpu.protocol.adapters.evm_outbox import Outbox
from cloud_gpu.protocol.adapters.evm_rpc import Rpc
from cloud_gpu.protocol.adapters.evm_sender import Sender
from cloud_gpu.protocol.adapters.evm_skips import failure_of
from cloud_gpu.protocol.adapters.patience import Patience
from cloud_gpu.protocol.adapters.wallet import Wallet, prove_delegate
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.chain_events import (
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.ports import AccountView, Clock, MachineView
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address

__all__ = [
    "ContractGone",
    "EvmChain",
    "Wallet",
    "deploy",
    "prove_delegate",
    "read_deployment",
    "write_deployment",
]

ResultT = TypeVar("ResultT")

_THREADS: Final = 4
_BACKOFF_S_MIN: Final = 0.05
_BACKOFF_S_MAX: Final = 10.0


class EvmChain:
    """One account's way to LeaseBook: the port `Chain`. Use it as an async context manager.

        async with EvmChain(rpc_url, deployment, key, outbox_path) as chain:
            await chain.submit(call)              # durable; sent in the background
            async for event in chain.events():    # one consumer
                ...

    Entering raises ChainUnavailable (no answer, another chain, no LeaseBook there) and
    SettingsInvalid (outbox unusable, used by another process, or of another deployment).
    """

    def __init__(
        self,
        rpc_url: str,
        deployment: Deployment,
        key: Signer,
        outbox_path: Path,
        *,
        poll_interval_s: float = 0.2,
        bump_after_s: float = 30.0,
        resume_after: int | None = None,
        blocks_at_once: int = 2_000,
        clock: Clock | None = None,
    ) -> None:
        """`resume_after` is the `block` of the last ChainAdvanced that the caller has on disk.

        With it, events begin with ChainReorganised(b), where b is that block, or an earlier one
        if the chain was reorganised meanwhile: whatever was taken in of later blocks is told
        again. Without it, events begin at the deployment's first block.
        `blocks_at_once` bounds one question for logs; public nodes refuse much more.
        A transaction not mined for `bump_after_s` seconds is replaced by one that offers more.
        """
        self.deployment = deployment
        self.address: Address = key.address
        self._rpc_url, self._key, self._outbox_path = rpc_url, key, outbox_path
        self._poll_interval_s, self._bump_after_s = poll_interval_s, bump_after_s
        self._resume_after, self._blocks_at_once = resume_after, blocks_at_once
        self._clock = clock or SystemClock()
        self._limiter = anyio.CapacityLimiter(_THREADS)
        self._log = structlog.get_logger(chain=deployment.chain_id, key=str(key.address))
        self._stack = AsyncExitStack()
        self._wake = anyio.Event()
        self.caught_up = anyio.Event()
        """All that the chain held when `events` began was told."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._rpc = Rpc(self._rpc_url)
            stack.callback(self._rpc.close)
            genesis = await self._ask(lambda: views.check(self._rpc, self.deployment))
            self._outbox = Outbox(self._outbox_path)
            stack.callback(self._outbox.close)
            self._outbox.bind(
                f"key {self.address}, LeaseBook {self.deployment.lease_book}, chain"
                f" {self.deployment.chain_id} that began with {genesis}"
            )
            self._outbox.prune()
            self._sender = Sender(
                self._rpc,
                self.deployment,
                self._key,
                self._outbox,
                self._clock,
                bump_after_s=self._bump_after_s,
            )
            self._tasks = await stack.enter_async_context(anyio.create_task_group())
            self._tasks.start_soon(self._send)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        # The error of the caller's block is not the task group's: handed to it, it would come out
        # wrapped in a group.
        self._tasks.cancel_scope.cancel()
        return await self._stack.__aexit__(None, None, None)

    async def submit(self, call: ChainCall) -> None:
        """Make a call durable and have it sent; the same call in flight already is dropped.

        Returns before the chain has it. What becomes of it comes back as an event: its own, or
        EntrySkipped, or TransactionFailed with the decoded error. A call that the contract calls
        too early by at most two minutes waits for the chain's clock.
        """
        if await self._write(lambda: self._outbox.add(call, self._clock.now())):
            self._wake.set()

    async def events(self) -> AsyncGenerator[ChainEvent, None]:
        """Facts in order, ChainAdvanced after each block that has some; never ends by itself.

        Outages of the node are logged and waited out. Raises ContractGone (a ChainUnavailable)
        when the node answers but its chain holds no LeaseBook any more.
        """
        follower = Follower(
            self._rpc,
            self.deployment,
            self._outbox,
            resume_after=self._resume_after,
            blocks_at_once=self._blocks_at_once,
            on_reorganised=self._sender.chain_was_reorganised_after,
        )
        patience = self._patience()
        while True:
            for failure in await self._write(self._outbox.untold):
                yield failure_of(failure.call, failure.error)
                await self._write(partial(self._outbox.told, failure.id))
            try:
                found = await self._ask(follower.poll)
            except ContractGone:
                raise
            except Raced as error:
                self._log.info("chain_asked_again", reason=str(error))
                await anyio.sleep(self._poll_interval_s)
                continue
            except ChainUnavailable as error:
                self._log.warning("chain_not_followed", error=str(error))
                await anyio.sleep(patience.longer())
                continue
            patience.reset()
            for event in found:
                if isinstance(event, ChainReorganised):
                    self._wake.set()  # what its blocks held of ours is to be sent again
                yield event
                if isinstance(event, ChainAdvanced):
                    self._sender.chain_was_told_upto(event.block)
            if follower.is_at_head:
                self.caught_up.set()
            if not found:
                await anyio.sleep(self._poll_interval_s)

    async def _send(self) -> None:
        patience = self._patience()
        while True:
            self._wake = anyio.Event()
            try:
                busy = await self._ask(self._sender.turn)
            except ChainUnavailable as error:
                self._log.warning("calls_not_sent", error=str(error))
                await anyio.sleep(patience.longer())
                continue
            patience.reset()
            with anyio.move_on_after(self._poll_interval_s if busy else math.inf):
                await self._wake.wait()

    def _patience(self) -> Patience:
        return Patience(max(self._poll_interval_s, _BACKOFF_S_MIN), _BACKOFF_S_MAX)

    # Views: the newest block's state.

    async def account(self, address: Address) -> AccountView:
        """An account's word; id 0 means that it is not registered. Raises ChainUnavailable."""
        return await self._ask(lambda: views.account(self._rpc, self.deployment, address))

    async def machine(self, key: MachineKey) -> MachineView:
        """A machine's words; status NONE means that there is none. Raises ChainUnavailable."""
        return await self._ask(lambda: views.machine(self._rpc, self.deployment, key))

    async def token_balance(self, address: Address) -> TokenAmount:
        """Payment tokens outside the vault. Raises ChainUnavailable."""
        return await self._ask(lambda: views.token_balance(self._rpc, self.deployment, address))

    async def native_balance(self, address: Address) -> int:
        """Wei, for gas. Raises ChainUnavailable."""
        return await self._ask(lambda: views.native_balance(self._rpc, address))

    async def chain_time(self) -> int:
        """The newest block's time, Unix seconds. Raises ChainUnavailable."""
        return await self._ask(lambda: views.chain_time(self._rpc))

    async def gas_used(self) -> int:
        """Gas of all calls of this outbox that ended."""
        return await self._write(self._outbox.gas_used)

    async def _ask(self, question: Callable[[], ResultT]) -> ResultT:
        """In a worker thread. A cancelled caller does not wait for the node: what the thread does
        later fails on the closed outbox, and is what a crash at that point would leave undone.
        """
        return await to_thread.run_sync(question, abandon_on_cancel=True, limiter=self._limiter)

    async def _write(self, work: Callable[[], ResultT]) -> ResultT:
        """In a worker thread, to its end: the outbox must not be closed under it."""
        return await to_thread.run_sync(work, limiter=self._limiter)
