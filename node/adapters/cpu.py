"""What the host has for jobs: processor, memory, disk. cgroup limits count, not the whole machine.

Reads /proc, /sys and, of either cgroup version, the limits of this process.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Final

from node.inventory import HostReading

_MIB: Final = 2**20
_RESERVED_MIB: Final = 512
"""Of memory, for the node itself."""


def read_host(data_folder: Path, *, root: Path = Path("/")) -> HostReading:
    """Read it now; raises `OSError` where /proc is not to be had."""
    model, flags = _processor((root / "proc/cpuinfo").read_text())
    total_mib = _memory_mib((root / "proc/meminfo").read_text())
    limit_mib = _cgroup_memory_mib(root / "sys/fs/cgroup")
    return HostReading(
        cpu_model=model,
        cpu_architecture=platform.machine(),
        cpu_cores=_cores(root / "sys/fs/cgroup"),
        memory_mib=max(1, min(total_mib, limit_mib or total_mib) - _RESERVED_MIB),
        disk_mib=max(1, shutil.disk_usage(data_folder).free // _MIB),
        cpu_flags=flags,
        network_class=_network_class(root / "sys/class/infiniband"),
    )


def _processor(cpuinfo: str) -> tuple[str, tuple[str, ...]]:
    """Model name, and features under the name that x86 or ARM has for them."""
    words: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        words.setdefault(name.strip(), value.strip())
    flags = words.get("flags") or words.get("Features") or ""
    return words.get("model name", "unknown"), tuple(flags.split())


def _memory_mib(meminfo: str) -> int:
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    raise OSError("/proc/meminfo names no MemTotal")


def _cores(cgroup: Path) -> int:
    allowed = len(os.sched_getaffinity(0))
    quota = _first_number(cgroup / "cpu.max", cgroup / "cpu/cpu.cfs_quota_us")
    period = _period(cgroup)
    if quota is None or quota <= 0 or not period:
        return allowed
    return max(1, min(allowed, quota // period))


def _period(cgroup: Path) -> int | None:
    both = _text(cgroup / "cpu.max").split()
    if len(both) == 2:
        return int(both[1])
    return _first_number(cgroup / "cpu/cpu.cfs_period_us")


def _cgroup_memory_mib(cgroup: Path) -> int | None:
    limit = _first_number(cgroup / "memory.max", cgroup / "memory/memory.limit_in_bytes")
    return limit // _MIB if limit is not None and limit < 2**60 else None


def _network_class(infiniband: Path) -> str:
    """ "rdma" where a port of an RDMA device is active."""
    for state in infiniband.glob("*/ports/*/state"):
        if "ACTIVE" in _text(state):
            return "rdma"
    return "ethernet"


def _first_number(*paths: Path) -> int | None:
    """The number that the first readable file begins with; None for "max" or no file."""
    for path in paths:
        words = _text(path).split()
        if words and words[0].lstrip("-").isdigit():
            return int(words[0])
    return None


def _text(path: Path) -> str:
    """A file of /sys that may not be there on this kernel; then it is empty."""
    try:
        return path.read_text()
    except OSError:
        return ""
