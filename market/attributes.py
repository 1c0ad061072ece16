"""What this market says of places, classes and machines: the attribute table, part of its rules.

It makes one fitting machine better than another for a bid (`scoring`) and never changes a price.
Rules are an event of the journal, so the table in force in a round is as certain as its orders.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.units import BasisPoints
from cloud_gpu.protocol.values import Address, Value

_HOURS = 24
_VALUE_MAX = 2**32 - 1


class Power(Value, frozen=True, kw_only=True):
    """What a GPU of a class draws at work."""

    gpu_class: GpuClass
    watts: int


class Site(Value, frozen=True, kw_only=True):
    """Energy where machines of a region run."""

    region: str
    """A part of a profile's region: "FR" or "EU"; the first row that meets it counts."""
    pue: BasisPoints = BasisPoints(limits.BASIS_POINTS_ONE)
    """Power usage effectiveness: of the GPUs' power, what the site draws."""
    electricity: tuple[int, ...] = (0,)
    """Base units per kWh, one value or one for each hour of the day (UTC)."""
    carbon: tuple[int, ...] = (0,)
    """Grams of CO2 per kWh, likewise."""


class Tier(Value, frozen=True, kw_only=True):
    """How long after its lease opened a provider's machine does the first step of a job."""

    provider: Address
    start_delay_s: int
    """Hot: 0 s; warm: its images are there; cold: they must be fetched first."""


class Attributes(Value, frozen=True, kw_only=True):
    """The whole table; what it does not name counts for nothing."""

    memory_margin: BasisPoints = BasisPoints(2_000)
    """Put on top of the GPU memory that a bid says its job needs."""
    fabric: BasisPoints = BasisPoints(12_500)
    """What a price counts for when a gang communicates over one fabric all the time; at one node
    it counts for 10,000 bp of itself."""
    apart: BasisPoints = BasisPoints(15_000)
    """The same for machines that no fabric joins."""
    powers: tuple[Power, ...] = ()
    sites: tuple[Site, ...] = ()
    tiers: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        if not limits.BASIS_POINTS_ONE <= self.fabric.value <= self.apart.value:
            raise ValueError(
                "attributes: fabric and apart are 10000 bp or more, and apart is not less,"
                f" found {self.fabric.value} and {self.apart.value}"
            )
        for site in self.sites:
            for name in ("electricity", "carbon"):
                _check_hours(f"attributes.sites: {site.region}: {name}", getattr(site, name))
        numbers = [row.watts for row in self.powers] + [row.start_delay_s for row in self.tiers]
        if any(not 0 <= number <= _VALUE_MAX for number in numbers):
            raise ValueError(f"attributes: watts and start_delay_s are 0 to {_VALUE_MAX}")

    def watts(self, gpu_class: GpuClass) -> int:
        """Of one GPU; 0 where the table does not say."""
        return next((row.watts for row in self.powers if row.gpu_class == gpu_class), 0)

    def site(self, region: str) -> Site | None:
        """Where a machine of this region draws its power."""
        parts = region.split("/")
        return next((row for row in self.sites if row.region in parts), None)

    def start_delay_s(self, provider: Address) -> int:
        """Of a provider's machines; 0 where the table does not say."""
        return next((row.start_delay_s for row in self.tiers if row.provider == provider), 0)


def _check_hours(field: str, values: tuple[int, ...]) -> None:
    if len(values) not in (1, _HOURS) or any(not 0 <= value <= _VALUE_MAX for value in values):
        raise ValueError(
            f"{field}: found {values}, needed 1 or {_HOURS} values of 0 to {_VALUE_MAX}"
        )


NO_ATTRIBUTES: Final = Attributes()
