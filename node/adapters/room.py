"""The machine room: probes of the hardware, and the runtime, as the provider's effects use them.

Failures come back as events. Which runtime is used was decided before, in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog
import trio

from cloud_gpu.protocol.effects import (
    KillJob,
    PauseContainer,
    PrepareContainer,
    ProbeMachine,
    ReadOutput,
    RemoveContainer,
    ResumeContainer,
    StartJob,
)
from cloud_gpu.protocol.errors import ContainerFailed
from cloud_gpu.protocol.events import ContainerFailed as ContainerFailedEvent
from cloud_gpu.protocol.events import ContainerReady, MachineProbed, ProviderEvent
from cloud_gpu.protocol.hardware import HardwareProfile, Isolation
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.ports import Runtime
from cloud_gpu.protocol.values import Address
from node.adapters.probes import Probes
from node.health import slice_faults

RoomEffect = (
    PrepareContainer
    | StartJob
    | KillJob
    | ReadOutput
    | PauseContainer
    | ResumeContainer
    | RemoveContainer
    | ProbeMachine
)

_log = structlog.get_logger(adapter="room")
_STOP_S: Final = 15.0


class MachineRoom:
    """Carries out what concerns hardware and jobs."""

    def __init__(
        self,
        *,
        provider: Address,
        probes: Probes,
        runtime: Runtime,
        isolation: Isolation,
        engine_faults: Sequence[str],
        post: Callable[[ProviderEvent], None],
    ) -> None:
        self._provider, self._probes = provider, probes
        self._runtime, self._isolation, self._post = runtime, isolation, post
        self._engine_faults = tuple(engine_faults)
        self._profiles: dict[int, HardwareProfile] = {}

    async def perform(self, effect: RoomEffect) -> None:
        """Carry out one effect."""
        match effect:
            case ProbeMachine(index=index):
                await self._probe(index)
            case PrepareContainer(lease=lease):
                await self._prepare(lease)
            case StartJob(spec=spec):
                await self._runtime.start_job(spec)
            case KillJob(lease=lease, job=job):
                await self._runtime.kill_job(lease, job)
            case ReadOutput():
                await self._runtime.read_output(
                    effect.lease, effect.job, effect.stdout_from, effect.stderr_from
                )
            case PauseContainer(lease=lease):
                await self._runtime.pause(lease)
            case ResumeContainer(lease=lease):
                await self._runtime.resume(lease)
            case RemoveContainer(lease=lease):
                await self._runtime.remove(lease)

    async def adopt(self) -> None:
        """Tell the provider what is here from before this process."""
        for report in await self._runtime.adopt():
            self._post(ContainerReady(lease=report.lease, report=report))

    async def stop(self, *, end_jobs: bool) -> None:
        """Before the daemon ends: jobs run on and are adopted later, or end with it."""
        with trio.move_on_after(_STOP_S) as limit:
            limit.shield = True
            if end_jobs:
                for report in await self._runtime.adopt():
                    await self._runtime.end_jobs(report.lease)
        self._probes.close()

    async def _prepare(self, lease: LeaseKey) -> None:
        try:
            profile = self._profiles.get(lease.index)
            if profile is None:
                profile = (await self._read(lease.index))[0]
            report = await self._runtime.prepare(lease, profile)
        except (ContainerFailed, OSError) as error:
            _log.warning("container_not_prepared", lease=str(lease), error=str(error))
            self._post(ContainerFailedEvent(lease=lease, detail=str(error)))
            return
        self._post(ContainerReady(lease=lease, report=report))

    async def _probe(self, index: int) -> None:
        machine = MachineKey(provider=self._provider, index=index)
        try:
            profile, faults = await self._read(index)
        except (ContainerFailed, OSError) as error:
            # Never seen, so never offered: there is nothing to withdraw either.
            _log.warning("machine_not_found", machine=str(machine), error=str(error))
            return
        if faults:
            _log.warning("machine_unhealthy", machine=str(machine), faults=faults)
        self._post(
            MachineProbed(
                machine=machine, profile=profile, healthy=not faults, detail="; ".join(faults)
            )
        )

    async def _read(self, index: int) -> tuple[HardwareProfile, tuple[str, ...]]:
        """Probe a machine; its profile keeps what was read first while disk and load vary."""
        reading = await trio.to_thread.run_sync(self._probes.read, index)
        if index not in self._profiles and reading.gpus:
            self._profiles[index] = self._probes.profile(index, reading, self._isolation)
        if index not in self._profiles:
            raise ContainerFailed("; ".join(reading.faults))
        return self._profiles[index], (*self._engine_faults, *slice_faults(reading))
