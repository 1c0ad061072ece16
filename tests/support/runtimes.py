"""A runtime under test with everything around it: a store, a nursery, what it posted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

import docker
import trio

from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.events import JobExited, OutputRead, ProviderEvent
from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.job import FileRef, JobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.ports import Runtime
from cloud_gpu.protocol.values import Address, Digest
from node.adapters.docker import DockerRuntime
from node.adapters.images import JobImage, ensure_image
from node.adapters.process import ProcessRuntime

EventT = TypeVar("EventT", bound=ProviderEvent)

LEASE = LeaseKey(provider=Address(b"\x01" * 20), index=0, seq=1)
PROFILE = HardwareProfile(
    gpu_class=GpuClass("A100-SXM4-80GB"),
    gpus=(Gpu(model="A100", memory_mib=81_920),),
    cpu_model="any",
    cpu_architecture="x86_64",
    cpu_cores=1,
    memory_mib=512,
    disk_mib=64,
    region="",
    isolation=Isolation.PROCESS,
    simulated=True,
)


@cache
def engine() -> docker.DockerClient:
    return docker.from_env(timeout=60, max_pool_size=64)


@cache
def image() -> JobImage:
    return ensure_image(engine(), ["numpy"])


def make_runtime(
    kind: str, nursery: trio.Nursery, folder: Path, store: ArtifactStore, post: Callable[..., None]
) -> Runtime:
    """`process`, or the name of one of the engine's runtimes."""
    if kind == "process":
        return ProcessRuntime(nursery, folder, store, post, cpu_cores=2)
    return DockerRuntime(nursery, folder, store, post, client=engine(), image=image(), name=kind)


@dataclass
class Bench:
    """One runtime and what it told."""

    kind: str
    folder: Path
    store: ArtifactStore
    runtime: Runtime
    told: list[ProviderEvent] = field(default_factory=list)
    number: int = 0

    def spec(self, *command: str, **changes: object) -> JobSpec:
        """A job of its own number; `files` are laid out as inputs."""
        self.number += 1
        files: dict[str, bytes] = changes.pop("files", {})  # type: ignore[assignment]
        inputs = tuple(
            FileRef(path=path, sha256=self.store.put_bytes(content), size=len(content))
            for path, content in files.items()
        )
        fields: dict[str, object] = {
            "lease": LEASE,
            "number": self.number,
            "command": command,
            "inputs": inputs,
            "runtime_s_max": 60,
        }
        return JobSpec(**(fields | changes))  # type: ignore[arg-type]

    def python(self, program: str, **changes: object) -> JobSpec:
        return self.spec("python", "-c", program, **changes)

    async def run(self, spec: JobSpec) -> JobExited:
        await self.runtime.start_job(spec)
        return await self.exited(spec)

    async def exited(self, spec: JobSpec, within_s: float = 60) -> JobExited:
        return await self.hear(JobExited, spec.id, within_s)

    async def hear(self, kind: type[EventT], job: Digest, within_s: float = 60) -> EventT:
        with trio.fail_after(within_s):
            while True:
                for event in self.told:
                    if isinstance(event, kind) and getattr(event, "job", None) == job:
                        return event
                await trio.sleep(0.02)

    def printed(self, spec: JobSpec, stream: str = "stdout") -> bytes:
        """What was told of its output, put together by offsets."""
        whole = b""
        for event in self.told:
            if isinstance(event, OutputRead) and (event.job, event.stream) == (spec.id, stream):
                whole = whole[: event.offset] + event.chunk
        return whole

    def content(self, file: FileRef) -> bytes:
        return self.store.path_of(file.sha256).read_bytes()


@asynccontextmanager
async def bench(kind: str, folder: Path) -> AsyncIterator[Bench]:
    """A prepared lease; whatever is left of it at the end is removed."""
    store = ArtifactStore(folder / "artifacts", 2**30)
    told: list[ProviderEvent] = []
    async with trio.open_nursery() as nursery:
        runtime = make_runtime(kind, nursery, folder / "data", store, told.append)
        await runtime.prepare(LEASE, PROFILE)
        try:
            yield Bench(kind, folder, store, runtime, told)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 30):
                await runtime.remove(LEASE)
            nursery.cancel_scope.cancel()


async def start_and_be_killed(kind: str, folder: Path, spec: JobSpec) -> None:
    """Another process prepares the lease and starts the job; SIGKILL ends it once that prints."""
    order = folder / "order.json"
    order.write_bytes(to_json(spec))
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.support.runtimes", kind, str(folder), str(order)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        with trio.fail_after(60):
            said = await process.stdout.receive_some()
        assert said == b"running\n", said
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


async def _start(kind: str, folder: Path, spec: JobSpec) -> None:
    async with bench(kind, folder) as made:
        await made.runtime.start_job(spec)
        await made.hear(OutputRead, spec.id)
        sys.stdout.write("running\n")
        sys.stdout.flush()
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(
        _start, sys.argv[1], Path(sys.argv[2]), from_json(Path(sys.argv[3]).read_bytes(), JobSpec)
    )
