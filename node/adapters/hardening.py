"""The configuration of every container that runs a stranger's job. Everything not needed is off.

No network, no capability, no new privilege, own system calls only, a root that cannot be written,
and a bound on processes, memory, processors, files, inodes and logs. Source: the design's table of
about sixty probes, each of which fails on it and succeeds on a plain container.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

PIDS_MAX: Final = 512
OPEN_FILES_MAX: Final = 65_536
_MIB: Final = 2**20
_TEMPORARY_MIB: Final = 1_024
_SHARED_MIB: Final = 1_024
_INODES_MAX: Final = 100_000
"""tmpfs bounds bytes by default, and files not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one container may use."""

    runtime: str
    user: str
    """uid:gid of the job."""
    memory_mib: int
    cpu_cores: int
    labels: Mapping[str, str]
    gpus: tuple[str, ...] = ()
    """NVIDIA GPUs by UUID."""


def hardened(
    bounds: Bounds, environment: Mapping[str, str], mounts: Mapping[str, str]
) -> dict[str, Any]:
    """Arguments of docker-py's `containers.create`; `mounts` are folders, host → container."""
    memory = bounds.memory_mib * _MIB
    # An image or a job could ask an NVIDIA default runtime for every GPU by this variable.
    visible = {} if bounds.gpus else {"NVIDIA_VISIBLE_DEVICES": "void"}
    open_files = min(OPEN_FILES_MAX, _hard_limit(resource.RLIMIT_NOFILE))
    return {
        "runtime": bounds.runtime,
        "user": bounds.user,
        "labels": dict(bounds.labels),
        "environment": dict(environment) | visible,
        "device_requests": [
            DeviceRequest(
                driver="cdi", device_ids=[f"nvidia.com/gpu={uuid}" for uuid in bounds.gpus]
            )
        ]
        if bounds.gpus
        else [],
        "cap_drop": ["ALL"],
        "privileged": False,
        "security_opt": ["no-new-privileges:true", "seccomp=" + seccomp_profile()],
        "read_only": True,
        "init": True,
        "network_mode": "none",
        "ipc_mode": "private",
        "cgroupns": "private",
        "hostname": "job",
        "working_dir": "/job",
        "entrypoint": [],
        "stdin_open": False,
        "tty": False,
        "mem_limit": memory,
        "memswap_limit": memory,
        "oom_score_adj": 500,
        "nano_cpus": bounds.cpu_cores * 10**9,
        "pids_limit": PIDS_MAX,
        "shm_size": min(_SHARED_MIB * _MIB, memory // 2),
        "ulimits": [
            Ulimit(name="nofile", soft=open_files, hard=open_files),
            Ulimit(name="core", soft=0, hard=0),
        ],
        "tmpfs": {
            "/tmp": _tmpfs(min(_TEMPORARY_MIB, bounds.memory_mib // 2), "noexec,mode=1777"),  # noqa: S108
            "/run": _tmpfs(1, "noexec"),
        },
        "mounts": [
            Mount(target=target, source=source, type="bind", propagation="rprivate")
            for source, target in mounts.items()
        ],
        "log_config": LogConfig(type="local", config={"max-size": "10m", "max-file": "2"}),
        "restart_policy": {"Name": "no"},
        "healthcheck": {"test": ["NONE"]},
    }


def seccomp_profile() -> str:
    """The allow-list of system calls, JSON."""
    return files("node.adapters").joinpath("seccomp.json").read_text()


def _tmpfs(size_mib: int, options: str) -> str:
    return f"rw,nosuid,nodev,{options},size={max(1, size_mib)}m,nr_inodes={_INODES_MAX}"


def _hard_limit(number: int) -> int:
    hard = resource.getrlimit(number)[1]
    return OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else hard
