"""`Gang` as users hold it: several machines that open together; each command runs on all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import anyio

from cloud_gpu.adapters.portal import PORTAL
from cloud_gpu.adapters.sessions import HURRY_S, Requested
from cloud_gpu.client import Client
from cloud_gpu.leased import Lease
from cloud_gpu.outcomes import Bill, RunResult
from cloud_gpu.packages import InstalledPackage

T = TypeVar("T")


class BlockingGang(Requested):
    """The leases of one bid, in a `with` block; they open together or not at all."""

    machines: tuple[Lease, ...] = ()
    """The open leases, by rank."""
    bills: tuple[Bill, ...] = ()
    """What each cost; empty while they are open."""

    def __len__(self) -> int:
        return len(self.machines)

    def __enter__(self) -> Self:
        self._enter_shared()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        patience = self._patience(kind)
        try:
            self.bills = self._on_all(lambda lease, _: lease.close(patience))
            for bill in self.bills:
                self._show(bill)
        finally:
            self.clients.leave(self._settings)

    async def _enter(self, client: Client) -> None:
        self.machines = await client.open_gang(
            self.request,
            echo=self._console.echo,
            progress=self._console.progress,
            within_s=self._open_within_s,
        )

    async def _abandon(self) -> None:
        await _all(self.machines, lambda lease, _: lease.close(HURRY_S))

    def _on_all(self, work: Callable[[Lease, int], Awaitable[T]]) -> tuple[T, ...]:
        return PORTAL.call(_all, self.machines, work)

    def put(self, local: str | Path, remote: str | None = None) -> tuple[str, ...]:
        """Make files part of every later run on every machine; see `Lease.put`."""
        return self._on_all(lambda lease, _: lease.put(local, remote))[0]

    def get(self, remote: str, local: str | Path = ".") -> tuple[Path, ...]:
        """Fetch from every machine, into a folder `rank-N` each below `local`; see `Lease.get`."""

        def fetch(lease: Lease, rank: int) -> Awaitable[tuple[Path, ...]]:
            return lease.get(remote, f"{Path(local) / f'rank-{rank}'}/")

        return tuple(path for paths in self._on_all(fetch) for path in paths)

    def install(self, *requirements: str) -> tuple[InstalledPackage, ...]:
        """On every machine; what the first one has. See `Lease.install`."""
        return self._on_all(lambda lease, _: lease.install(*requirements))[0]

    def run(
        self,
        command: str | Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        check: bool = True,
        timeout: str | int | None = None,
        stream: bool = True,
    ) -> tuple[RunResult, ...]:
        """Run a command on every machine at once, to its end; the results by rank.

        It finds its rank in NODE_RANK and their number in NNODES. Raises as `Lease.run`, once all
        have ended.
        """

        def start(lease: Lease, rank: int) -> Awaitable[RunResult]:
            own = {"NODE_RANK": str(rank), "NNODES": str(len(self.machines))}
            return lease.run(
                command,
                env={**own, **self._environment(env)},
                check=check,
                timeout=timeout,
                stream=stream and rank == 0,
            )

        return self._on_all(start)


async def _all(
    leases: Sequence[Lease], work: Callable[[Lease, int], Awaitable[T]]
) -> tuple[T, ...]:
    """Every machine goes on when one fails; then the first failure, by rank, is raised."""
    done: dict[int, T] = {}
    failed: dict[int, Exception] = {}

    async def one(rank: int, lease: Lease) -> None:
        try:
            done[rank] = await work(lease, rank)
        except Exception as error:  # raised below, when the others have ended
            failed[rank] = error

    async with anyio.create_task_group() as tasks:
        for rank, lease in enumerate(leases):
            tasks.start_soon(one, rank, lease)
    if failed:
        raise failed[min(failed)]
    return tuple(done[rank] for rank in range(len(leases)))
