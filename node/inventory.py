"""Probe readings and settings into the profile that an ask carries, and its Kubernetes labels.

Everything is as the machine itself reports it. Which machine is free is the chain's to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cloud_gpu.protocol.hardware import (
    FABRIC_LABEL,
    Gpu,
    GpuClass,
    HardwareProfile,
    Isolation,
)
from cloud_gpu.protocol.values import Value

_LABEL_VALUE_MAX: Final = 63
"""Kubernetes refuses longer values."""


class HostReading(Value, frozen=True, kw_only=True):
    """The host's share that jobs may use: cgroup limits where they are tighter than the machine."""

    cpu_model: str
    cpu_architecture: str
    cpu_cores: int
    memory_mib: int
    disk_mib: int
    cpu_flags: tuple[str, ...] = ()
    network_class: str = "ethernet"


class GpuReading(Value, frozen=True, kw_only=True):
    """One GPU as a probe saw it. `None` was not to be had, which is not 0."""

    uuid: str
    gpu: Gpu
    temperature_c: int | None = None
    power_w: int | None = None
    fault: str = ""
    """Why it must not be rented out now; empty: it may."""


class SliceReading(Value, frozen=True, kw_only=True):
    """What is behind one machine now."""

    host: HostReading
    gpus: tuple[GpuReading, ...]
    simulated: bool
    faults: tuple[str, ...] = ()
    """Why it must not be rented, each in words."""


MachineReading = tuple[int, HardwareProfile | None, tuple[str, ...]]
"""A machine's index, its profile as far as there is one, and its faults."""


def assign(
    found: Sequence[GpuReading], wanted: Mapping[int, tuple[int, tuple[str, ...]]]
) -> dict[int, tuple[GpuReading, ...]]:
    """Which GPUs are behind which machine: (how many, which by UUID) by the machine's index.

    Machines that name theirs come first, the others take the rest in order. A machine whose GPUs
    are not all there gets fewer, and must not be rented out.
    """
    free = {reading.uuid: reading for reading in found}
    given = {
        index: tuple(free.pop(uuid) for uuid in uuids if uuid in free)
        for index, (_, uuids) in sorted(wanted.items())
        if uuids
    }
    for index, (count, uuids) in sorted(wanted.items()):
        if not uuids:
            given[index] = tuple(free.pop(uuid) for uuid in list(free)[:count])
    return given


def profile_of(
    reading: SliceReading,
    *,
    gpu_class: GpuClass,
    share: int,
    region: str,
    isolation: Isolation,
    fabric: str = "",
) -> HardwareProfile:
    """The profile of one machine; it gets one of `share` equal parts of the host.

    `fabric` is the provider's name for what joins the machine to others; empty: nothing does.
    """
    host = reading.host
    gpus = tuple(found.gpu for found in reading.gpus)
    return HardwareProfile(
        gpu_class=gpu_class,
        gpus=gpus,
        cpu_model=host.cpu_model,
        cpu_architecture=host.cpu_architecture,
        cpu_cores=max(1, host.cpu_cores // share),
        memory_mib=host.memory_mib // share,
        disk_mib=host.disk_mib // share,
        region=region,
        network_class=host.network_class,
        isolation=isolation,
        simulated=reading.simulated,
        labels=labels_of(reading) | ({FABRIC_LABEL: fabric} if fabric else {}),
    )


def labels_of(reading: SliceReading) -> dict[str, str]:
    """Node labels under the names that GPU and node feature discovery use in Kubernetes."""
    first = reading.gpus[0].gpu
    found = {
        "nvidia.com/gpu.product": first.model.replace(" ", "-"),
        "nvidia.com/gpu.memory": str(first.memory_mib),
        "nvidia.com/gpu.count": str(len(reading.gpus)),
        "nvidia.com/gpu.family": first.architecture,
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
            reading.host.cpu_architecture, reading.host.cpu_architecture
        ),
    }
    found |= _version_labels("nvidia.com/gpu.compute", first.compute_capability)
    found |= _version_labels("nvidia.com/cuda.runtime", first.cuda)
    if not reading.simulated and first.driver:
        found["feature.node.kubernetes.io/pci-10de.present"] = "true"
    if "avx512f" in reading.host.cpu_flags:
        found["feature.node.kubernetes.io/cpu-cpuid.AVX512F"] = "true"
    if reading.simulated:
        found["cloud-gpu/simulated"] = "true"
    return {name: value[:_LABEL_VALUE_MAX] for name, value in found.items() if value}


def _version_labels(name: str, version: str) -> dict[str, str]:
    major, _, minor = version.partition(".")
    return {f"{name}.major": major, f"{name}.minor": minor or "0"} if major else {}
