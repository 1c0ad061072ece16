"""What a provider tells its node: one TOML file, then the environment. Parsed here, read by main.

An unknown key in the file is an error that names it; an unknown variable is ignored, since jobs
have `CLOUD_GPU_` variables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.limits import BASIS_POINTS_ONE
from cloud_gpu.protocol.orders import AskFlags
from cloud_gpu.protocol.settings_file import (
    FilePath,
    Positive,
    Seconds,
    Text,
    Texts,
    Truth,
    Whole,
    check_log_level,
    read_table,
    settings_of,
    text,
    whole,
)
from cloud_gpu.protocol.units import BasisPoints, Price, parse_price
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address
from node.notices import NO_THRESHOLD
from node.pricing import Policy

ENVIRONMENT_PREFIX: Final = "CLOUD_GPU_"


class RuntimeChoice(StrEnum):
    """Which runtime to use; `auto` is Docker where an engine answers."""

    AUTO = "auto"
    DOCKER = "docker"
    """runsc where the engine has it, else runc."""
    RUNSC = "runsc"
    RUNC = "runc"
    PROCESS = "process"


class Fault(StrEnum):
    """What a node of simulated machines does wrong on purpose, for demos and tests of audits."""

    NONE = ""
    WRONG_RESULTS = "wrong-results"
    """It signs better figures than its jobs computed."""


def _price(found: object) -> Price:
    return parse_price(text(found))


def _share(found: object) -> BasisPoints:
    return BasisPoints(whole(found))


def _address(found: object) -> Address:
    return Address.parse(text(found))


Account = Annotated[Address, _address]

_FEE_MAX: Final = BasisPoints(500)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """One machine: the slice of the hardware that is rented as a whole, and its price."""

    index: Whole
    """As it was added on chain."""
    gpu_class: Annotated[GpuClass, text]
    gpus: Positive = 1
    price: Annotated[Price, _price]
    """Tokens per GPU-hour, as "1.20"."""
    simulated: Truth = False
    """Declared stand-ins instead of real GPUs; the profile and every report say so."""
    gpu_memory_mib: Whole = 0
    """Of a simulated GPU; a real one is probed."""
    cuda: Text = ""
    """Of a simulated GPU; a real one is probed."""
    uuids: Texts = ()
    """Which real GPUs; empty: the next ones that no other machine names."""
    region: Text = ""
    fabric: Text = ""
    """Your name for what joins it to others of your machines: a gang may ask to be within one."""
    interruptible: Truth = False
    """The lease may be ended after the product's notice; the product must allow it."""
    firm_price: Annotated[Price | None, _price] = None
    """Of an interruptible machine under a `preemption_threshold`: what it costs let for good."""
    verified: Truth = False
    """Take leases whose pay is held until results were audited; the product must allow them."""
    min_duration: Seconds = 10
    max_duration: Seconds = 30 * 24 * 3600

    @property
    def flags(self) -> AskFlags:
        """What its asks say of it."""
        verified = AskFlags.VERIFIED if self.verified else AskFlags(0)
        return verified | (AskFlags.INTERRUPTIBLE if self.interruptible else AskFlags(0))

    def __post_init__(self) -> None:
        if self.simulated and not self.gpu_memory_mib:
            raise ValueError("gpu_memory_mib is needed for simulated GPUs")
        if self.uuids and len(self.uuids) != self.gpus:
            raise ValueError(f"uuids names {len(self.uuids)} GPUs, gpus says {self.gpus}")
        is_dearer = self.firm_price is None or self.price <= self.firm_price
        if not is_dearer or (self.firm_price is not None and not self.interruptible):
            raise ValueError("firm_price is of an interruptible machine, and not below its price")
        if not self.price.value:
            raise ValueError("price is above 0: a free lease locks nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Everything a node is told."""

    deployment: FilePath
    """JSON file that the deployer wrote."""
    rpc: Text
    keystore: FilePath
    """Of the node key, a delegate of the provider's; never the wallet's."""
    password_file: FilePath
    binding: FilePath
    """JSON file: the wallet's signed statement that this node is its own."""
    data_folder: FilePath
    provider: Account
    matcher: Account
    """The market that may open this node's asks."""
    group_buys: Truth = False
    """True: the same asks are announced to group buys, too; who opens one first has the machine."""
    max_fee_bps: Annotated[BasisPoints, _share] = _FEE_MAX
    listen_overlay: Text = "/ip4/0.0.0.0/tcp/0"
    bootstrap: Texts = ()
    log_level: Text = "info"
    runtime: Annotated[RuntimeChoice, RuntimeChoice] = RuntimeChoice.AUTO
    accept_unverified_runtime: Truth = False
    """True: rent out real GPUs on an engine with known ways out of a container."""
    image_packages: Texts = ("numpy",)
    """Python packages of this node's own interpreter that its container image holds."""
    preemption_threshold: Annotated[BasisPoints, _share] = NO_THRESHOLD
    """Share of the machines, in basis points, that are used before the interruptible lease that
    pays least is given notice, so that the rest stay free for firm leases; 0: nobody is."""
    ask_interval_s: Positive = 30
    ask_life_s: Positive = 300
    artifacts_mib: Positive = 10 * 1024
    """Room for inputs and outputs of jobs."""
    end_jobs_on_stop: Truth = False
    """False: jobs run on while the daemon is away, and it takes them up again."""
    fault: Annotated[Fault, Fault] = Fault.NONE
    machines: tuple[MachineSettings, ...]

    def __post_init__(self) -> None:
        check_log_level(self.log_level)
        if not self.machines:
            raise ValueError("machines: at least one [[machines]] table is needed")
        indexes = [machine.index for machine in self.machines]
        if len(set(indexes)) != len(indexes):
            raise ValueError(f"machines: an index is named twice: {indexes}")
        if self.preemption_threshold.value > BASIS_POINTS_ONE:
            raise ValueError(f"preemption_threshold is 0 to {BASIS_POINTS_ONE} basis points")
        for each in self.machines:
            if each.interruptible and (each.firm_price is None) == bool(self.preemption_threshold):
                raise ValueError(
                    f"machines: index {each.index}: with a preemption_threshold an interruptible"
                    " machine has a firm_price, and without one it has none"
                )
        if self.fault and not all(machine.simulated for machine in self.machines):
            raise ValueError(f"fault: {self.fault} is for simulated machines only; leave it out")

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """What of the node is not the real thing."""
        hardware = ("simulated GPUs",) if any(m.simulated for m in self.machines) else ()
        return (
            (*hardware, f"a node with a fault on purpose ({self.fault})")
            if self.fault
            else hardware
        )

    def policies(self, group_buy: Address = ZERO_ADDRESS) -> dict[int, Policy]:
        """What is asked for each machine, by its index; `group_buy`: the deployment's contract."""
        return {
            machine.index: Policy(
                price=machine.price,
                min_duration=machine.min_duration,
                max_duration=machine.max_duration,
                matcher=self.matcher,
                max_fee=self.max_fee_bps,
                life_s=self.ask_life_s,
                flags=int(machine.flags),
                firm_price=machine.firm_price,
                group_buy=group_buy if self.group_buys else ZERO_ADDRESS,
            )
            for machine in self.machines
        }


def parse_settings(content: str, environment: Mapping[str, str]) -> NodeSettings:
    """The settings in a file's text, overridden by the environment; raises `SettingsInvalid`."""
    # Machines are tables: no variable can say them.
    heard = {k: v for k, v in environment.items() if k != f"{ENVIRONMENT_PREFIX}MACHINES"}
    table = read_table(content, NodeSettings, heard, ENVIRONMENT_PREFIX)
    found = table.get("machines", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise SettingsInvalid("machines: written as [[machines]] tables")
    machines = tuple(
        settings_of(MachineSettings, each, "node", f"machines[{number}]")
        for number, each in enumerate(found)
    )
    return settings_of(NodeSettings, {**table, "machines": machines}, "node")
