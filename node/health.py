"""The gate before asks: what must hold of the engine and of the GPUs that a machine rents out.

Pure: readings and versions in, reasons out. Minimum versions are those that close the container
escapes known in November 2026. Source: the advisories named beside each.
"""

from __future__ import annotations

import re
from typing import Final

from cloud_gpu.protocol.values import Value
from node.inventory import SliceReading

DOCKER_MIN: Final = (25,)
"""CDI, and no AF_VSOCK or io_uring by default."""

RUNC_MIN: Final = ((1, 2, 8), (1, 3, 3), (1, 4, 0))
"""By line: CVE-2025-31133, -52565, -52881."""

NVIDIA_TOOLKIT_MIN: Final = (1, 17, 8)
"""CVE-2024-0132, CVE-2025-23359, CVE-2025-23266."""

TEMPERATURE_C_MAX: Final = 95
DISK_MIB_MIN: Final = 1_024


class EngineReading(Value, frozen=True, kw_only=True):
    """What a container engine says of itself; empty: not there, or not said."""

    docker: str
    runc: str
    default_runtime: str
    nvidia_toolkit: str = ""


def engine_faults(engine: EngineReading) -> tuple[str, ...]:
    """Why strangers' containers should not run on this engine, each with its remedy."""
    faults = []
    if _version(engine.docker) < DOCKER_MIN:
        faults.append(f"Docker {engine.docker}: needs 25 or newer; upgrade the engine")
    if engine.runc and not _is_fixed(_version(engine.runc)):
        faults.append(
            f"runc {engine.runc}: needs 1.2.8, 1.3.3 or 1.4.0 (CVE-2025-31133 and others); upgrade"
        )
    if engine.default_runtime == "nvidia":
        faults.append(
            "the default runtime is nvidia: an image could ask for every GPU; make runc the default"
        )
    if engine.nvidia_toolkit and _version(engine.nvidia_toolkit) < NVIDIA_TOOLKIT_MIN:
        faults.append(
            f"nvidia-container-toolkit {engine.nvidia_toolkit}: needs 1.17.8 (CVE-2025-23266)"
        )
    return tuple(faults)


def slice_faults(reading: SliceReading) -> tuple[str, ...]:
    """Why a machine should not be rented out now."""
    faults = list(reading.faults)
    for found in reading.gpus:
        if found.fault:
            faults.append(f"GPU {found.uuid}: {found.fault}")
        if found.temperature_c is not None and found.temperature_c > TEMPERATURE_C_MAX:
            faults.append(
                f"GPU {found.uuid}: {found.temperature_c} °C, at most {TEMPERATURE_C_MAX}"
            )
    if reading.host.disk_mib < DISK_MIB_MIN:
        faults.append(
            f"{reading.host.disk_mib} MiB of disk are free, at least {DISK_MIB_MIN} are needed"
        )
    return tuple(faults)


def _version(text: str) -> tuple[int, ...]:
    """The leading numbers: "1.1.5+ds1" is (1, 1, 5). A candidate counts as its release's eve."""
    found = re.match(r"v?(\d+(?:\.\d+)*)(-rc|~rc)?", text)
    if found is None:
        return ()
    numbers = tuple(int(part) for part in found[1].split("."))
    return (*numbers[:-1], numbers[-1] - 1, 999) if found[2] else numbers


def _is_fixed(version: tuple[int, ...]) -> bool:
    """Whether a version is at least the fixed one of its own line, or of a later line."""
    return any(version >= fixed and version[:2] == fixed[:2] for fixed in RUNC_MIN) or (
        version[:2] > RUNC_MIN[-1][:2]
    )
