"""Has jobs of other leases run as they are asked for, side by side, by one client.

Each has a lease of its own. Whatever ends a request, its lease is ended before the process goes.
"""

from __future__ import annotations

import select
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import trio
from anyio import to_thread
from msgspec import Meta, to_builtins

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import Failure, UsageWrong, failure_of, refused_here
from cloud_gpu.cli.output import Output, money
from cloud_gpu.cli.requirements import requirement
from cloud_gpu.client import Client, Lease
from cloud_gpu.outcomes import RunResult
from cloud_gpu.protocol.codec import from_builtins, from_json
from cloud_gpu.protocol.errors import CloudGpuError, OutsideWorldError
from cloud_gpu.protocol.job import FileRef, JobSpec
from cloud_gpu.protocol.values import Value
from cloud_gpu.settings import Settings

_END_S: Final = 10
"""How long a lease that nobody wants any more is looked after."""
_LOOK_S: Final = 0.5


class Request(Value, frozen=True, kw_only=True):
    """One job to run, as a line asks for it; durations and `gpu` in the words of the flags."""

    id: int
    """The asker's; its answer carries it."""
    spec: str
    """Path of the job: JSON of its spec."""
    inputs: str
    """Folder of its input files, each named by its sha256."""
    results: str
    """Folder where output files are put, by sha256."""
    gpu: str
    count: Annotated[int, Meta(ge=1)] = 1
    duration: str = "1h"
    start_by: str = "60s"
    exclude_providers: tuple[str, ...] = ()
    fetch_mib_max: Annotated[int, Meta(ge=0)] = 256
    """Larger output files stay where they are."""


class Cancel(Value, frozen=True, kw_only=True):
    """End the lease of a request that runs."""

    cancel: int
    """Its id."""


class Repeating:
    """Serves one stream of requests."""

    def __init__(self, settings: Settings, read_line: Callable[[], bytes], say: Output) -> None:
        """`read_line` blocks, and gives nothing at the end; `say` writes JSON lines."""
        self._settings, self._read_line, self._say = settings, read_line, say
        self._running: dict[int, trio.CancelScope] = {}
        self._turn = trio.Lock()
        self._serving: tuple[trio.lowlevel.TrioToken, trio.CancelScope] | None = None

    def end(self) -> bool:
        """End all leases, then serving; from any thread. False: it does not serve yet."""
        if self._serving is None:
            return False
        token, scope = self._serving
        token.run_sync_soon(scope.cancel)
        return True

    async def serve(self, client: Client) -> None:
        """Until the input's end and that of what runs then, or until there is no reader."""
        async with trio.open_nursery() as nursery:
            self._serving = trio.lowlevel.current_trio_token(), nursery.cancel_scope
            while line := await to_thread.run_sync(self._read_line, abandon_on_cancel=True):
                self._take(line, client, nursery)
            while self._running:
                if _nobody_reads():  # who asked was killed
                    nursery.cancel_scope.cancel()
                await trio.sleep(_LOOK_S)

    def _take(self, line: bytes, client: Client, nursery: trio.Nursery) -> None:
        found: Any = None
        try:
            found = from_json(line, dict)
            asked = _parse(found)
            if isinstance(asked, Request) and asked.id in self._running:
                raise ValueError(f"found {asked.id}, which still runs, needed another - at `$.id`")
        except ValueError as error:
            named = found.get("id") if isinstance(found, dict) else None
            failure = failure_of(UsageWrong(f"a request: {error}"))
            nursery.start_soon(self._fail, named if isinstance(named, int) else None, failure)
            return
        if isinstance(asked, Request):
            scope = self._running[asked.id] = trio.CancelScope()
            nursery.start_soon(self._serve, asked, client, scope)
        elif (running := self._running.get(asked.cancel)) is not None:
            running.cancel()

    async def _serve(self, request: Request, client: Client, scope: trio.CancelScope) -> None:
        try:
            failure = Failure(code=ExitCode.INTERRUPTED, reason="cancelled", found="a cancel")
            payload = None
            with scope:
                try:
                    payload = await self._repeated(request, client)
                except CloudGpuError as error:
                    failure = failure_of(error)
                except (OSError, ValueError) as error:
                    failure = failure_of(refused_here(error))
                except Exception as error:
                    # Our own mistake: whoever asked for this one is told, other leases go on.
                    traceback.print_exc()
                    found = f"{type(error).__name__}: {error}"
                    failure = Failure(code=ExitCode.OUR_BUG, reason="our-bug", found=found)
            if payload is None:
                await self._fail(request.id, failure)
            else:
                await self._answer("repeat", {"id": request.id, **payload})
        finally:
            del self._running[request.id]

    async def _fail(self, asked: int | None, failure: Failure) -> None:
        await self._answer("error", {"id": asked, **to_builtins(failure)})

    async def _answer(self, kind: str, payload: dict[str, Any]) -> None:
        async with self._turn:  # in a thread, since leases are paid while a reader is slow
            await to_thread.run_sync(self._say.result, kind, payload, str, abandon_on_cancel=True)

    # The lease.

    async def _repeated(self, request: Request, client: Client) -> dict[str, Any]:
        job = await to_thread.run_sync(_read, Path(request.spec))
        wanted = requirement(
            self._settings,
            gpu=request.gpu,
            count=request.count,
            duration=request.duration,
            start_by=request.start_by,
            region=None,
            isolation=None,
            exclude_provider=request.exclude_providers,
        )
        lease = await client.open(wanted, echo=lambda _, __: None, progress=self._say.progress)
        try:
            try:
                result = await lease.repeat(job, Path(request.inputs))
                fetched = await _fetch(lease, result, request)
            finally:
                bill = await lease.close()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await lease.close(_END_S)
            raise
        return _payload(lease, result, fetched) | {"paid": money(bill.paid)}


def _parse(found: dict[str, Any]) -> Request | Cancel:
    return from_builtins(found, Cancel) if "cancel" in found else from_builtins(found, Request)


def _nobody_reads() -> bool:
    output = select.poll()
    output.register(sys.stdout, 0)
    return bool(output.poll(0))


async def _fetch(lease: Lease, result: RunResult, request: Request) -> tuple[FileRef, ...]:
    fetched = []
    for file in result.outputs:
        if file.size > request.fetch_mib_max * 2**20:
            continue
        try:
            await lease.get(file.path, Path(request.results, file.sha256))
        except (OutsideWorldError, FileNotFoundError):
            continue  # it is named in the result, and missing among the fetched
        fetched.append(file)
    return tuple(fetched)


def _payload(lease: Lease, result: RunResult, fetched: tuple[FileRef, ...]) -> dict[str, Any]:
    return {
        "lease": str(lease.funded.lease),
        "provider": str(lease.funded.lease.provider),
        "outcome": str(result.outcome),
        "exit_code": result.code,
        "detail": result.detail,
        "outputs": [
            {
                "path": file.path,
                "sha256": file.sha256,
                "size": file.size,
                "executable": file.executable,
            }
            for file in result.outputs
        ],
        "fetched": sorted({file.sha256 for file in fetched}),
    }


def _read(path: Path) -> JobSpec:
    try:
        return from_json(path.read_bytes(), JobSpec)
    except (OSError, ValueError) as error:
        raise UsageWrong(f"{path}: found no job that can be read: {error}") from error
