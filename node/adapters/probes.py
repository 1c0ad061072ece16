"""Asks the hardware behind each machine: the host, and its GPUs, real or declared stand-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from cloud_gpu.protocol.hardware import HardwareProfile, Isolation
from node.adapters.cpu import read_host
from node.adapters.nvidia import NvidiaProbe, NvidiaSilent
from node.adapters.simulated import simulated_gpus
from node.health import slice_faults
from node.inventory import MachineReading, SliceReading, assign, profile_of
from node.settings import MachineSettings, NodeSettings


class Probes:
    """The probes of one node's machines. Blocking."""

    def __init__(self, machines: Sequence[MachineSettings], data_folder: Path) -> None:
        self._machines: Mapping[int, MachineSettings] = {m.index: m for m in machines}
        self._data_folder = data_folder
        self._nvidia = NvidiaProbe()
        self._uuids: dict[int, tuple[str, ...]] = {}

    def read(self, index: int) -> SliceReading:
        """What is behind a machine now; raises `OSError` where the host cannot be read."""
        host = read_host(self._data_folder)
        settings = self._machines[index]
        if settings.simulated:
            return SliceReading(host=host, gpus=simulated_gpus(settings), simulated=True)
        wanted = {i: (m.gpus, m.uuids) for i, m in self._machines.items() if not m.simulated}
        try:
            gpus = assign(self._nvidia.read(), wanted)[index]
        except NvidiaSilent as silent:
            return SliceReading(host=host, gpus=(), simulated=False, faults=(str(silent),))
        self._uuids.setdefault(index, tuple(found.uuid for found in gpus))
        missing = settings.gpus - len(gpus)
        faults = (f"{missing} of {settings.gpus} GPUs are not there",) if missing else ()
        return SliceReading(host=host, gpus=gpus, simulated=False, faults=faults)

    def profile(self, index: int, reading: SliceReading, isolation: Isolation) -> HardwareProfile:
        """A reading as the profile that the machine's ask carries."""
        settings = self._machines[index]
        return profile_of(
            reading,
            gpu_class=settings.gpu_class,
            share=len(self._machines),
            region=settings.region,
            fabric=settings.fabric,
            isolation=isolation,
        )

    def survey(self, isolation: Isolation) -> list[MachineReading]:
        """Each machine's index, profile as far as there is one, and faults."""
        found: list[MachineReading] = []
        for index in self._machines:
            reading = self.read(index)
            profile = self.profile(index, reading, isolation) if reading.gpus else None
            found.append((index, profile, slice_faults(reading)))
        return found

    def gpus_of(self, index: int) -> tuple[str, ...]:
        """The real GPUs of a machine by UUID, as first read; none behind a simulated one."""
        return self._uuids.get(index, ())

    def close(self) -> None:
        """End what asks the driver."""
        self._nvidia.close()


def survey(settings: NodeSettings) -> list[MachineReading]:
    """What is behind each machine, without a daemon."""
    with closing(Probes(settings.machines, Path.cwd())) as probes:
        return probes.survey(Isolation.PROCESS)
