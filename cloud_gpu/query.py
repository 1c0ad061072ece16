"""What a person asks for, as limits that a machine can be held to; `query_text` reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cloud_gpu.protocol.hardware import GpuClass, Isolation
from cloud_gpu.protocol.orders import Scope, Terms
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import Address

_SPLIT = re.compile(r"[^A-Z0-9]+")
_ENDLESS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Span:
    """A range of sizes or versions, ends included; None: open."""

    least: int | str | None = None
    most: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What was asked for; empty fields ask for nothing."""

    classes: tuple[tuple[str, Span], ...] = ()
    """Words of a class, and MiB of one of its GPUs; any of them will do."""
    excluded_classes: tuple[str, ...] = ()
    count: int | None = None
    """GPUs."""
    min_count: int | None = None
    """Fewer that will do."""
    scope: Scope | None = None
    chunk: int | None = None
    gpu_memory: Span = Span()
    """MiB of one GPU, whatever its class."""
    gpu_memory_need_mib: int = 0
    """What the job takes of it; a market puts its margin on top."""
    memory_mib_min: int = 0
    disk_mib_min: int = 0
    cuda: Span = Span()
    driver: Span = Span()
    regions: tuple[str, ...] = ()
    excluded_regions: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    isolation: Isolation | None = None
    max_price: Price | None = None
    provider: Address | None = None
    excluded_providers: tuple[Address, ...] = ()
    verified: bool | None = None
    interruptible: bool | None = None
    simulated_allowed: bool | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The classes asked for, each as its words: what a market can look up; "": all."""
        return tuple("-".join(_words(name)) for name, _ in self.classes) or ("",)

    def wants(self, gpu_class: GpuClass) -> bool:
        """Whether a class is meant: the words asked for stand in its name, side by side."""
        meant = not self.classes or any(_names(name, gpu_class) for name, _ in self.classes)
        return meant and not any(_names(name, gpu_class) for name in self.excluded_classes)

    def terms(self, gpu_class: GpuClass) -> Terms:
        """The limits that a machine of this class is held to."""
        spans = [span for name, span in self.classes if _names(name, gpu_class)]
        least = min((_mib(span.least) for span in spans), default=0)
        most = max((_mib(span.most) for span in spans), key=lambda mib: mib or _ENDLESS, default=0)
        ends = [end for end in (most, _mib(self.gpu_memory.most)) if end]
        return Terms(
            gpu_classes=(gpu_class,),
            gpu_memory_mib_min=max(least, _mib(self.gpu_memory.least)),
            gpu_memory_mib_max=min(ends, default=0),
            gpu_memory_need_mib=self.gpu_memory_need_mib,
            memory_mib_min=self.memory_mib_min,
            disk_mib_min=self.disk_mib_min,
            cuda_min=_text(self.cuda.least),
            cuda_max=_text(self.cuda.most),
            driver_min=_text(self.driver.least),
            driver_max=_text(self.driver.most),
            regions=self.regions,
            excluded_regions=self.excluded_regions,
            network_classes=self.networks,
            isolation_min=self.isolation or Isolation.PROCESS,
            simulated_allowed=self.simulated_allowed is not False,
            excluded_providers=self.excluded_providers,
        )


def _names(asked: str, gpu_class: GpuClass) -> bool:
    wanted, words = _words(asked), _words(gpu_class)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


def _words(name: str) -> list[str]:
    return [word for word in _SPLIT.split(name.upper()) if word]


def _mib(end: int | str | None) -> int:
    assert not isinstance(end, str), end
    return end or 0


def _text(end: int | str | None) -> str:
    assert not isinstance(end, int), end
    return end or ""
