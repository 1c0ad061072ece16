"""Which runtime this node uses: decided here and nowhere else, and said aloud."""

from __future__ import annotations

from dataclasses import dataclass

import structlog
import trio

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.hardware import Isolation
from cloud_gpu.protocol.ports import Artifacts, Runtime
from node.adapters.cpu import read_host
from node.adapters.job_folders import Post
from node.adapters.process import ProcessRuntime
from node.settings import NodeSettings, RuntimeChoice

_log = structlog.get_logger(adapter="runtimes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRuntime:
    """A runtime, what it isolates, and which parts of the real thing are stand-ins."""

    runtime: Runtime
    name: str
    """As in `RuntimeReport.runtime`."""
    isolation: Isolation
    stand_ins: tuple[str, ...]


async def choose_runtime(
    settings: NodeSettings, nursery: trio.Nursery, store: Artifacts, post: Post
) -> ChosenRuntime:
    """By the settings and by what is here; raises `SettingsInvalid` when what was asked is not."""
    if settings.runtime is RuntimeChoice.DOCKER:
        raise SettingsInvalid("runtime: no Docker engine answers; use auto or process")
    cores = read_host(settings.data_folder).cpu_cores
    process = ProcessRuntime(nursery, settings.data_folder, store, post, cpu_cores=cores)
    _log.warning("runtime_chosen", runtime="process", isolation="none: jobs see this machine")
    return ChosenRuntime(
        runtime=process,
        name="process",
        isolation=Isolation.PROCESS,
        stand_ins=("process runtime (no isolation)",),
    )
