"""`doctor`'s looks at the world: each thing that a node needs, found or missed, with its fix."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Final

import docker
import docker.errors
import requests

from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.bindings import lease_book
from cloud_gpu.protocol.adapters.deployment_files import read_deployment
from cloud_gpu.protocol.adapters.evm_rpc import Rpc
from cloud_gpu.protocol.adapters.keystore import load_key
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import CloudGpuError, SettingsInvalid
from cloud_gpu.protocol.identity import KeyRole, LocalKey
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from node.adapters.binding import read_binding
from node.adapters.probes import Probes
from node.health import DISK_MIB_MIN, slice_faults
from node.settings import NodeSettings, RuntimeChoice
from node.standing import Finding

_GAS_WEI_MIN: Final = 10**15
_MIB: Final = 2**20


class _Missed(CloudGpuError):
    """A check failed; the text says what was found and what to do."""


def examine(settings: NodeSettings) -> Iterator[Finding]:
    """Check everything that can be checked without a daemon, in order. Blocking."""
    settings.data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        key = load_key(settings.keystore, settings.password_file)
        deployment = read_deployment(settings.deployment)
    except CloudGpuError as error:
        yield _missed("files", error)
    else:
        yield _found("node key", str(key.address))
        book = deployment.lease_book
        yield _found("deployment", f"LeaseBook {book}, chain {deployment.chain_id}")
        yield _look("binding", partial(_binding, settings, deployment, key))
        yield from _examine_chain(settings, deployment, key)
    probes = Probes(settings.machines, settings.data_folder)
    for machine in settings.machines:
        yield _look(f"hardware {machine.index}", partial(_hardware, probes, machine.index))
    probes.close()
    yield _look("engine", partial(_engine, settings))
    yield _look("disk", partial(_disk, settings))


def _examine_chain(
    settings: NodeSettings, deployment: Deployment, key: LocalKey
) -> Iterator[Finding]:
    with Rpc(settings.rpc) as rpc:
        chain = _look("chain", partial(_chain, rpc, deployment))
        yield chain
        if not chain.ok:
            return
        yield _look("delegate", partial(_delegate, rpc, deployment, settings, key))
        yield _look("gas", partial(_gas, rpc, key))
        for machine in settings.machines:
            look = partial(_machine, rpc, deployment, settings, machine.index)
            yield _look(f"machine {machine.index}", look)


def _found(check: str, found: str) -> Finding:
    return Finding(check=check, ok=True, found=found)


def _look(check: str, look: Callable[[], str]) -> Finding:
    try:
        return _found(check, look())
    except (CloudGpuError, OSError) as error:
        return _missed(check, error)


def _missed(check: str, error: Exception) -> Finding:
    """Our errors say what was found, then, after a semicolon, what to do."""
    found, _, fix = str(error).partition("; ")
    return Finding(check=check, ok=False, found=found, next=fix)


def _binding(settings: NodeSettings, deployment: Deployment, key: LocalKey) -> str:
    binding = read_binding(
        settings.binding,
        deployment.domain,
        provider=settings.provider,
        node_key=key.address,
        at=int(time.time()),
    )
    return f"peer {binding.body.peer}, {_days(binding.expiry)} left"


def _chain(rpc: Rpc, deployment: Deployment) -> str:
    views.check(rpc, deployment)
    late_s = int(time.time()) - views.chain_time(rpc)
    if late_s > 600:
        raise _Missed(f"its newest block is {late_s} s old; is the EVM node synchronised?")
    return f"newest block {max(0, late_s)} s old"


def _delegate(rpc: Rpc, deployment: Deployment, settings: NodeSettings, key: LocalKey) -> str:
    found = views.ask(rpc, deployment.lease_book, lease_book.delegate_of(key.address))
    fix = "set it with the wallet: cloud-gpu wallet key"
    if found.account != settings.provider or found.role != KeyRole.NODE:
        raise _Missed(f"{key.address} is no node key of {settings.provider}; {fix}")
    if found.revoked_at or found.expiry <= time.time():
        raise _Missed(f"{key.address} was revoked or has expired; {fix}")
    return f"node key of {settings.provider}, {_days(found.expiry)} left"


def _gas(rpc: Rpc, key: LocalKey) -> str:
    wei = views.native_balance(rpc, key.address)
    if wei < _GAS_WEI_MIN:
        raise _Missed(f"{wei} wei; send at least {_GAS_WEI_MIN} to {key.address}")
    return f"{wei / 10**18:.4f} native tokens"


def _machine(rpc: Rpc, deployment: Deployment, settings: NodeSettings, index: int) -> str:
    key = MachineKey(provider=settings.provider, index=index)
    found = views.machine(rpc, deployment, key)
    if found.status is MachineStatus.NONE:
        raise _Missed(f"{key} is not on chain; add it with the wallet: cloud-gpu wallet machine")
    return f"{found.status.name.lower()}, product {found.product}, next lease {found.next_seq}"


def _hardware(probes: Probes, index: int) -> str:
    reading = probes.read(index)
    if faults := slice_faults(reading):
        raise _Missed("; ".join(faults))
    models = ", ".join(found.gpu.model for found in reading.gpus)
    return f"{models}{' (simulated)' if reading.simulated else ''}, {reading.host.cpu_cores} cores"


def _engine(settings: NodeSettings) -> str:
    if settings.runtime is RuntimeChoice.PROCESS:
        return "process runtime: jobs are not isolated from this machine"
    try:
        with closing(docker.from_env(timeout=5)) as client:
            version = client.version()["Version"]
            runtimes = sorted(client.info()["Runtimes"])
    except (docker.errors.DockerException, requests.RequestException) as error:
        if settings.runtime is RuntimeChoice.AUTO:
            return "no Docker engine answers: jobs would run as plain processes"
        raise SettingsInvalid("no Docker engine answers; start one") from error
    return f"Docker {version}, runtimes {', '.join(runtimes)}"


def _disk(settings: NodeSettings) -> str:
    free = shutil.disk_usage(settings.data_folder).free // _MIB
    if free < DISK_MIB_MIN:
        raise _Missed(f"{free} MiB free in {settings.data_folder}; {DISK_MIB_MIN} are needed")
    return f"{free} MiB free in {settings.data_folder}"


def _days(expiry: int) -> str:
    return f"{(expiry - time.time()) / 86_400:.0f} days"
