"""What a provider tells its node: one TOML file, then the environment. Parsed here, read by main.

An unknown key in the file is an error that names it; an unknown variable is ignored, since jobs
have `CLOUD_GPU_` variables of their own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.orders import AskFlags
from cloud_gpu.protocol.units import BasisPoints, Price, parse_duration, parse_price
from cloud_gpu.protocol.values import Address
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


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ValueError(f"a text is needed, found {found!r}")
    return found


def _whole(found: object) -> int:
    if isinstance(found, str) and found.isascii() and found.isdigit():
        found = int(found)  # from the environment
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"a whole number is needed, found {found!r}")
    return found


def _positive(found: object) -> int:
    if not (number := _whole(found)):
        raise ValueError("a number above 0 is needed")
    return number


def _truth(found: object) -> bool:
    words = {"true": True, "false": False, "1": True, "0": False}
    if isinstance(found, str) and found.lower() in words:
        return words[found.lower()]
    if not isinstance(found, bool):
        raise ValueError(f"true or false is needed, found {found!r}")
    return found


def _texts(found: object) -> tuple[str, ...]:
    if isinstance(found, str):
        return tuple(filter(None, found.split(",")))
    if not isinstance(found, list):
        raise ValueError(f"a list of texts is needed, found {found!r}")
    return tuple(_text(each) for each in found)


def _duration(found: object) -> int:
    if isinstance(found, str | int) and not isinstance(found, bool):
        return parse_duration(found)
    raise ValueError(f'a duration is written like "2h", found {found!r}')


def _path(found: object) -> Path:
    return Path(_text(found)).expanduser()


def _price(found: object) -> Price:
    return parse_price(_text(found))


def _share(found: object) -> BasisPoints:
    return BasisPoints(_whole(found))


def _address(found: object) -> Address:
    return Address.parse(_text(found))


Whole = Annotated[int, _whole]
Positive = Annotated[int, _positive]
Truth = Annotated[bool, _truth]
Text = Annotated[str, _text]
Texts = Annotated[tuple[str, ...], _texts]
Seconds = Annotated[int, _duration]
FilePath = Annotated[Path, _path]
Account = Annotated[Address, _address]
"""A type, and how a value of it is read from the file or the environment."""

_FEE_MAX: Final = BasisPoints(500)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """One machine: the slice of the hardware that is rented as a whole, and its price."""

    index: Whole
    """As it was added on chain."""
    gpu_class: Annotated[GpuClass, _text]
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
    verified: Truth = False
    """Take leases whose pay is held until results were audited; the product must allow them."""
    min_duration: Seconds = 10
    max_duration: Seconds = 30 * 24 * 3600

    def __post_init__(self) -> None:
        if self.simulated and not self.gpu_memory_mib:
            raise ValueError("gpu_memory_mib is needed for simulated GPUs")
        if self.uuids and len(self.uuids) != self.gpus:
            raise ValueError(f"uuids names {len(self.uuids)} GPUs, gpus says {self.gpus}")
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
    max_fee_bps: Annotated[BasisPoints, _share] = _FEE_MAX
    listen_overlay: Text = "/ip4/0.0.0.0/tcp/0"
    bootstrap: Texts = ()
    log_level: Text = "info"
    runtime: Annotated[RuntimeChoice, RuntimeChoice] = RuntimeChoice.AUTO
    accept_unverified_runtime: Truth = False
    """True: rent out real GPUs on an engine with known ways out of a container."""
    image_packages: Texts = ("numpy",)
    """Python packages of this node's own interpreter that its container image holds."""
    ask_interval_s: Positive = 30
    ask_life_s: Positive = 300
    artifacts_mib: Positive = 10 * 1024
    """Room for inputs and outputs of jobs."""
    end_jobs_on_stop: Truth = False
    """False: jobs run on while the daemon is away, and it takes them up again."""
    machines: tuple[MachineSettings, ...]

    def __post_init__(self) -> None:
        if self.log_level.lower() not in ("debug", "info", "warning", "error"):
            raise ValueError("log_level is debug, info, warning or error")
        if not self.machines:
            raise ValueError("machines: at least one [[machines]] table is needed")
        indexes = [machine.index for machine in self.machines]
        if len(set(indexes)) != len(indexes):
            raise ValueError(f"machines: an index is named twice: {indexes}")

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """What of the hardware is not the real thing."""
        return ("simulated GPUs",) if any(m.simulated for m in self.machines) else ()

    def policies(self) -> dict[int, Policy]:
        """What is asked for each machine, by its index."""
        return {
            machine.index: Policy(
                price=machine.price,
                min_duration=machine.min_duration,
                max_duration=machine.max_duration,
                matcher=self.matcher,
                max_fee=self.max_fee_bps,
                life_s=self.ask_life_s,
                flags=int(AskFlags.VERIFIED) if machine.verified else 0,
            )
            for machine in self.machines
        }


SettingsT = TypeVar("SettingsT", MachineSettings, NodeSettings)


def parse_settings(text: str, environment: Mapping[str, str]) -> NodeSettings:
    """The settings in a file's text, overridden by the environment; raises `SettingsInvalid`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(f"the settings file is no TOML: {error}") from error
    for key in (each.name for each in fields(NodeSettings)):
        value = environment.get(ENVIRONMENT_PREFIX + key.upper())
        if value is not None and key != "machines":
            table[key] = value
    found = table.get("machines", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise SettingsInvalid("machines: written as [[machines]] tables")
    machines = tuple(
        _parse(MachineSettings, each, f"machines[{number}]") for number, each in enumerate(found)
    )
    return _parse(NodeSettings, {**table, "machines": machines}, "")


def _parse(kind: type[SettingsT], table: Mapping[str, object], where: str) -> SettingsT:
    known = {each.name: each for each in fields(kind)}
    types = get_type_hints(kind, include_extras=True)
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in known:
            raise SettingsInvalid(
                f"{prefix}{key} is no setting of a node; there are {', '.join(sorted(known))}"
            )
    values: dict[str, Any] = {}
    for name, each in known.items():
        if name in table:
            try:
                (read,) = getattr(types[name], "__metadata__", (lambda found: found,))
                values[name] = read(table[name])
            except ValueError as error:
                raise SettingsInvalid(f"{prefix}{name}: {error}") from error
        elif each.default is MISSING:
            raise SettingsInvalid(f"{prefix}{name} is missing from the settings file")
    try:
        return kind(**values)
    except ValueError as error:
        raise SettingsInvalid(f"{prefix.rstrip('.') or 'settings'}: {error}") from error
