"""`Session` and `AsyncSession` as users hold them: one lease, behind the trio thread.

Both are the same `Lease`; here are the two ways to call it, and the clients that the
sessions of one process share.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from cloud_gpu.adapters.console import Console, say_on_stderr, text_decoder
from cloud_gpu.adapters.portal import PORTAL, Held
from cloud_gpu.bidding import AUDIT_SHARE, NO_PREFERENCES, Preferences, wish
from cloud_gpu.client import Client
from cloud_gpu.jobs import Job as CoreJob
from cloud_gpu.leased import Lease
from cloud_gpu.outcomes import Bill, Cost, RunResult
from cloud_gpu.packages import InstalledPackage
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.units import parse_duration
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings

HURRY_S: Final = 8.0
"""How long a lease is looked after when the person who waits pressed Ctrl-C."""

LoadSettings = Callable[[Mapping[str, str | None]], Settings]
"""Joins flags with every other source."""

OpenClient = Callable[[Settings], AbstractAsyncContextManager[Client]]


class SharedClients:
    """One client a process for the same settings: sessions side by side share wallet and peer."""

    def __init__(self, load: LoadSettings, open_client: OpenClient) -> None:
        self.load, self._open_client = load, open_client
        self._lock = threading.Lock()
        self._held: dict[tuple[str, ...], tuple[Held[Client], Client, int]] = {}

    def enter(self, settings: Settings) -> Client:
        """The client, started when it is the first; leave it once for each time it was entered."""
        key = _key(settings)
        with self._lock:
            found = self._held.get(key)
            if found is None:
                held = PORTAL.hold(self._open_client(settings))
                found = held, held.enter(), 0
            self._held[key] = found[0], found[1], found[2] + 1
            return found[1]

    def leave(self, settings: Settings) -> None:
        """The last one ends it."""
        key = _key(settings)
        with self._lock:
            held, client, count = self._held.pop(key)
            if count > 1:
                self._held[key] = held, client, count - 1
            else:
                held.leave()


def _key(settings: Settings) -> tuple[str, ...]:
    names = "market", "other_markets", "rpc", "deployment", "keystore", "password_file"
    return tuple(str(getattr(settings, name)) for name in names)


class Requested:
    """What the façades are made of: a request, and the leases that came of it."""

    clients: ClassVar[SharedClients]
    """Set by `main`."""

    def __init__(
        self,
        gpu_type: str,
        count: int = 1,
        max_price: str | None = None,
        timeout: str | int = "1h",
        *,
        isolation: str | None = None,
        region: str | None = None,
        simulated_allowed: bool = True,
        verified: bool = False,
        audit_bps: int = AUDIT_SHARE.value,
        exclude_providers: Sequence[str | Address] = (),
        provider: str | Address | None = None,
        one_round: bool = False,
        interruptible: bool = False,
        min_count: int = 0,
        scope: str | None = None,
        chunk: int = 0,
        start_after: str | int = 0,
        preferences: Preferences = NO_PREFERENCES,
        start_timeout: str | int = "60s",
        open_timeout: str | int | None = None,
        env: Mapping[str, str] | None = None,
        market: str | None = None,
        settings: Settings | None = None,
        say: Callable[[str], None] = say_on_stderr,
    ) -> None:
        """See the class. `env` holds for every command; `say` is told what happens.

        `start_timeout` is how long the bid stands, `open_timeout` when to give it up before that.
        """
        self._settings = settings or self.clients.load({"market": market, "max_price": max_price})
        self.request = wish(
            gpu_type=gpu_type,
            count=count,
            max_price=max_price or self._settings.need("max_price"),
            duration=timeout,
            start_timeout=start_timeout,
            isolation=isolation,
            region=region,
            simulated_allowed=simulated_allowed,
            verified=verified,
            audit_bps=audit_bps,
            exclude_providers=exclude_providers,
            provider=provider,
            one_round=one_round,
            interruptible=interruptible,
            min_count=min_count,
            scope=scope,
            chunk=chunk,
            start_after=start_after,
            preferences=preferences,
        )
        self._open_within_s = None if open_timeout is None else parse_duration(open_timeout)
        self._env, self._console = dict(env or {}), Console(say)
        self._open: Lease | None = None

    @property
    def lease(self) -> Lease:
        """The open lease, for what the session does not show."""
        if self._open is None:
            raise RuntimeError("the session is not open: use it in a `with` block")
        return self._open

    @property
    def report(self) -> RuntimeReport:
        """The machine: GPUs, runtime, isolation, and whether it is simulated."""
        return self.lease.report

    @property
    def bill(self) -> Bill | None:
        """What it cost; None while it is open."""
        return self._open.bill if self._open else None

    def _environment(self, env: Mapping[str, str] | None) -> dict[str, str]:
        return {**self._env, **(env or {})}

    def _enter_shared(self) -> None:
        """Open what is wanted over the process's client; nothing stays open when it raises."""
        client = self.clients.enter(self._settings)
        try:
            PORTAL.call(self._enter, client)
        except BaseException:
            try:
                PORTAL.call(self._abandon)  # what opened while Ctrl-C was on its way
            finally:
                self.clients.leave(self._settings)
            raise

    async def _abandon(self) -> None:
        if self._open is not None:
            await self._open.close(HURRY_S)

    async def _enter(self, client: Client) -> None:
        console = self._console
        self._open = await client.open(
            self.request,
            echo=console.echo,
            progress=console.progress,
            within_s=self._open_within_s,
        )

    def _patience(self, kind: type[BaseException] | None) -> float:
        hurried = kind is not None and issubclass(kind, KeyboardInterrupt | asyncio.CancelledError)
        return HURRY_S if hurried else 90.0

    def _show(self, bill: Bill) -> None:
        self._console.progress(str(bill))


class BlockingSession(Requested):
    """A lease in a `with` block. Every method waits; Ctrl-C ends the lease within seconds."""

    def __enter__(self) -> Self:
        self._enter_shared()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._show(PORTAL.call(self.lease.close, self._patience(kind)))
        finally:
            self.clients.leave(self._settings)

    def install(self, *requirements: str) -> tuple[InstalledPackage, ...]:
        """See `Lease.install`."""
        return PORTAL.call(self.lease.install, *requirements)

    def put(self, local: str | Path, remote: str | None = None) -> tuple[str, ...]:
        """See `Lease.put`."""
        return PORTAL.call(self.lease.put, local, remote)

    def get(self, remote: str, local: str | Path | None = None) -> tuple[Path, ...]:
        """See `Lease.get`."""
        return PORTAL.call(self.lease.get, remote, local)

    def run(
        self,
        command: str | Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        check: bool = True,
        timeout: str | int | None = None,
        stream: bool = True,
    ) -> RunResult:
        """See `Lease.run`."""
        return PORTAL.call(
            self.lease.run,
            command,
            env=self._environment(env),
            check=check,
            timeout=timeout,
            stream=stream,
        )

    def popen(
        self,
        command: str | Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        timeout: str | int | None = None,
        stream: bool = False,
    ) -> BlockingJob:
        """See `Lease.popen`."""
        core = PORTAL.call(
            self.lease.popen,
            command,
            env=self._environment(env),
            timeout=timeout,
            stream=stream,
        )
        return BlockingJob(core)

    def cost(self) -> Cost:
        """What it costs so far."""
        return self.lease.cost()


class BlockingJob:
    """A command that runs in the background."""

    def __init__(self, core: CoreJob) -> None:
        self._core = core

    @property
    def running(self) -> bool:
        """Whether its result is still to come."""
        return self._core.running

    def logs(self, stream: str = "stdout") -> Iterator[str]:
        """What it prints, piece by piece, until it ended."""
        shown, decoder = 0, text_decoder()
        while piece := PORTAL.call(self._core.piece, stream, shown):
            shown += len(piece)
            yield decoder.decode(piece)

    def wait(self, *, check: bool = False) -> RunResult:
        """See `Job.wait`."""
        return PORTAL.call(self._core.wait, check=check)

    def kill(self) -> None:
        """End it now; `wait` then tells how it ended."""
        PORTAL.call(self._core.kill)


class AsyncioSession(Requested):
    """A lease in an `async with` block on an asyncio loop; cancelling a call cancels it."""

    async def __aenter__(self) -> Self:
        client = await asyncio.to_thread(self.clients.enter, self._settings)
        try:
            await PORTAL.call_from_asyncio(self._enter, client)
        except BaseException:
            try:
                await PORTAL.call_from_asyncio(self._abandon)  # opened while it was on its way
            finally:
                await asyncio.shield(asyncio.to_thread(self.clients.leave, self._settings))
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            bill = await PORTAL.call_from_asyncio(self.lease.close, self._patience(kind))
            self._show(bill)
        finally:
            await asyncio.shield(asyncio.to_thread(self.clients.leave, self._settings))

    async def install(self, *requirements: str) -> tuple[InstalledPackage, ...]:
        """See `Lease.install`."""
        return await PORTAL.call_from_asyncio(self.lease.install, *requirements)

    async def put(self, local: str | Path, remote: str | None = None) -> tuple[str, ...]:
        """See `Lease.put`."""
        return await PORTAL.call_from_asyncio(self.lease.put, local, remote)

    async def get(self, remote: str, local: str | Path | None = None) -> tuple[Path, ...]:
        """See `Lease.get`."""
        return await PORTAL.call_from_asyncio(self.lease.get, remote, local)

    async def run(
        self,
        command: str | Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        check: bool = True,
        timeout: str | int | None = None,  # noqa: ASYNC109  # of the command, on the node
        stream: bool = True,
    ) -> RunResult:
        """See `Lease.run`."""
        return await PORTAL.call_from_asyncio(
            self.lease.run,
            command,
            env=self._environment(env),
            check=check,
            timeout=timeout,
            stream=stream,
        )

    async def popen(
        self,
        command: str | Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        timeout: str | int | None = None,  # noqa: ASYNC109  # of the command, on the node
        stream: bool = False,
    ) -> AsyncioJob:
        """See `Lease.popen`."""
        core = await PORTAL.call_from_asyncio(
            self.lease.popen,
            command,
            env=self._environment(env),
            timeout=timeout,
            stream=stream,
        )
        return AsyncioJob(core)

    def cost(self) -> Cost:
        """What it costs so far."""
        return self.lease.cost()


class AsyncioJob:
    """A command that runs in the background."""

    def __init__(self, core: CoreJob) -> None:
        self._core = core

    @property
    def running(self) -> bool:
        """Whether its result is still to come."""
        return self._core.running

    async def logs(self, stream: str = "stdout") -> AsyncIterator[str]:
        """What it prints, piece by piece, until it ended."""
        shown, decoder = 0, text_decoder()
        while piece := await PORTAL.call_from_asyncio(self._core.piece, stream, shown):
            shown += len(piece)
            yield decoder.decode(piece)

    async def wait(self, *, check: bool = False) -> RunResult:
        """See `Job.wait`."""
        return await PORTAL.call_from_asyncio(self._core.wait, check=check)

    async def kill(self) -> None:
        """End it now; `wait` then tells how it ended."""
        await PORTAL.call_from_asyncio(self._core.kill)
