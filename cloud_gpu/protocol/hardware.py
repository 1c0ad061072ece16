"""What a provider has: the profile of one machine, as its node probed it.

All of it is self-reported until a challenge measured it, and says whether it is a stand-in. It
names classes, never serial numbers: nothing in a job may tell one machine from another.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final, NewType

from msgspec import field

from cloud_gpu.protocol.values import Value

GpuClass = NewType("GpuClass", str)
"""Interchangeable GPUs that share a book: "A100-SXM4-80GB"; at most 31 ASCII characters."""


class Isolation(StrEnum):
    """How a job is kept apart from the provider's machine, weakest first."""

    PROCESS = "process"
    CONTAINER = "container"
    GVISOR = "gvisor"
    VM = "vm"

    @property
    def strength(self) -> int:
        """Position from weak to strong."""
        return list(Isolation).index(self)


class Gpu(Value, frozen=True, kw_only=True):
    """One GPU of a slice."""

    model: str
    memory_mib: int
    driver: str = ""
    cuda: str = ""
    compute_capability: str = ""
    architecture: str = ""
    """GPU architecture or back end: "hopper", "gfx942", "910B"."""

    def __post_init__(self) -> None:
        if not 0 < self.memory_mib < 2**24:
            raise ValueError(f"gpu.memory_mib is 1 to {2**24 - 1}, found {self.memory_mib}")


FABRIC_LABEL: Final = "cloud-gpu.io/fabric"
"""Names the fabric (NVLink, InfiniBand) that joins a machine to others of its provider."""


class HardwareProfile(Value, frozen=True, kw_only=True):
    """One machine (a rentable slice): its GPUs and its share of the host."""

    KIND: ClassVar[str] = "cloud-gpu/hardware-profile"
    gpu_class: GpuClass
    gpus: tuple[Gpu, ...]
    cpu_model: str
    cpu_architecture: str
    """"x86_64" or "aarch64"."""
    cpu_cores: int
    memory_mib: int
    disk_mib: int
    region: str
    """Free text of two parts at most: "FR/EU"; empty when the provider does not say."""
    network_class: str = "ethernet"
    isolation: Isolation
    simulated: bool
    """True: the GPUs are declared stand-ins; nothing computes on them."""
    labels: dict[str, str] = field(default_factory=dict)
    """Node labels in Kubernetes' form: `nvidia.com/gpu.product` and so on."""

    def __post_init__(self) -> None:
        if not self.gpus:
            raise ValueError("profile.gpus holds at least one GPU")
        if len(self.labels) > 64:
            raise ValueError(f"profile.labels holds at most 64 entries, found {len(self.labels)}")

    @property
    def fabric(self) -> str:
        """The fabric that its provider says it is in; empty: its own node's alone."""
        return self.labels.get(FABRIC_LABEL, "")
