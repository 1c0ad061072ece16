"""Which runtime this node uses: decided here and nowhere else, and said aloud."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Final

import docker
import docker.errors
import requests
import structlog
import trio

from cloud_gpu.protocol.errors import ContainerFailed, SettingsInvalid
from cloud_gpu.protocol.hardware import Isolation
from cloud_gpu.protocol.ports import Artifacts, Runtime
from node.adapters.cpu import read_host
from node.adapters.disks import are_bounded
from node.adapters.docker import DockerRuntime, try_out
from node.adapters.images import ensure_image
from node.adapters.job_folders import Post
from node.adapters.probes import Probes
from node.adapters.process import ProcessRuntime
from node.health import EngineReading, engine_faults
from node.settings import NodeSettings, RuntimeChoice

_log = structlog.get_logger(adapter="runtimes")

_ENGINE_S: Final = 60
_FIRST_ANSWER_S: Final = 5
_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRuntime:
    """A runtime, what it isolates, and which parts of the real thing are stand-ins."""

    runtime: Runtime
    name: str
    """As in `RuntimeReport.runtime`."""
    isolation: Isolation
    stand_ins: tuple[str, ...]
    faults: tuple[str, ...] = ()
    """Why no machine may be rented out on it."""


async def choose_runtime(
    settings: NodeSettings, nursery: trio.Nursery, store: Artifacts, post: Post, probes: Probes
) -> ChosenRuntime:
    """By the settings and by what is here.

    Raises `SettingsInvalid` when what was asked for is not here, `ContainerFailed`.
    """
    if settings.runtime is RuntimeChoice.PROCESS:
        return _process(settings, nursery, store, post)
    client = await trio.to_thread.run_sync(_engine)
    if client is None:
        if settings.runtime is not RuntimeChoice.AUTO:
            raise SettingsInvalid(
                f"runtime: {settings.runtime} needs a Docker engine, and none answers; start one,"
                " or use auto or process"
            )
        return _process(settings, nursery, store, post)
    name, reading = await trio.to_thread.run_sync(_container_runtime, settings, client)
    image = await trio.to_thread.run_sync(ensure_image, client, settings.image_packages)
    try:
        await trio.to_thread.run_sync(try_out, client, image, name)
    except ContainerFailed as failed:
        if name == "runc" or settings.runtime is RuntimeChoice.RUNSC:
            raise
        _log.warning("runsc_not_usable", error=str(failed))
        name = "runc"
        await trio.to_thread.run_sync(try_out, client, image, name)
    runtime = DockerRuntime(
        nursery,
        settings.data_folder,
        store,
        post,
        client=client,
        image=image,
        name=name,
        gpus_of=probes.gpus_of,
    )
    faults = engine_faults(reading)
    accepted = settings.accept_unverified_runtime or all(m.simulated for m in settings.machines)
    stand_ins = [*(f"unverified engine ({fault})" for fault in faults if accepted)]
    if not are_bounded():
        stand_ins.append("plain folders for disks (no quota)")
    _log.info(
        "runtime_chosen",
        runtime=name,
        image=image.digest,
        engine=reading.docker,
        stand_ins=stand_ins,
        faults=() if accepted else faults,
    )
    return ChosenRuntime(
        runtime=runtime,
        name=name,
        isolation=runtime.isolation,
        stand_ins=tuple(stand_ins),
        faults=() if accepted else faults,
    )


def _process(
    settings: NodeSettings, nursery: trio.Nursery, store: Artifacts, post: Post
) -> ChosenRuntime:
    cores = read_host(settings.data_folder).cpu_cores
    _log.warning("runtime_chosen", runtime="process", isolation="none: jobs see this machine")
    return ChosenRuntime(
        runtime=ProcessRuntime(nursery, settings.data_folder, store, post, cpu_cores=cores),
        name="process",
        isolation=Isolation.PROCESS,
        stand_ins=("process runtime (no isolation)",),
    )


def _engine() -> docker.DockerClient | None:
    """A client of the engine that answers here, if one does."""
    try:
        with closing(docker.from_env(timeout=_FIRST_ANSWER_S)) as asking:
            asking.ping()
        return docker.from_env(timeout=_ENGINE_S, max_pool_size=_CONNECTIONS)
    except (docker.errors.DockerException, requests.RequestException) as error:
        _log.info("no_engine", error=str(error)[:300])
        return None


def _container_runtime(
    settings: NodeSettings, client: docker.DockerClient
) -> tuple[str, EngineReading]:
    """The engine's runtime to use: gVisor, unless real GPUs need a driver that it may not know."""
    found = client.info()
    version = client.version()
    components = {each["Name"]: each["Version"] for each in version.get("Components", ())}
    reading = EngineReading(
        docker=version["Version"],
        runc=components.get("runc", ""),
        default_runtime=found.get("DefaultRuntime", ""),
    )
    has_runsc = "runsc" in found.get("Runtimes", {})
    if settings.runtime is RuntimeChoice.RUNSC and not has_runsc:
        raise SettingsInvalid("runtime: this engine has no runsc; add it, or use docker")
    is_real = any(not machine.simulated for machine in settings.machines)
    wants_runsc = settings.runtime is RuntimeChoice.RUNSC or (
        settings.runtime in (RuntimeChoice.AUTO, RuntimeChoice.DOCKER) and has_runsc and not is_real
    )
    return ("runsc" if wants_runsc else "runc"), reading
