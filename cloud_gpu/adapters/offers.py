"""Real prices for pretended GPUs: the public offers whose machines a devnet's providers put up.

One devnet token stands for one US dollar. The list is offers/vast.csv, its source is named beside
it.
"""

from __future__ import annotations

import csv
from importlib import resources
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.units import Price, TokenAmount, parse_tokens
from cloud_gpu.protocol.values import Value

_CLASSES: Final = MappingProxyType(
    {
        ("A100_SXM4", 40_960): GpuClass("A100-SXM4-40GB"),
        ("A100_PCIE", 81_920): GpuClass("A100-PCIE-80GB"),
        ("H100_SXM", 81_559): GpuClass("H100-SXM5-80GB"),
        ("L40S", 46_068): GpuClass("L40S-48GB"),
        ("RTX_4090", 24_564): GpuClass("RTX4090-24GB"),
    }
)
"""(model, MiB a GPU) as listed -> class. Rows that contradict their model have no entry."""

_SLICES: Final = (1, 2, 4)
"""GPUs of a machine; larger instances are left out, so that a small devnet shows all sizes."""


class Offer(Value, frozen=True, kw_only=True):
    """One machine of the list."""

    instance: str
    gpu_class: GpuClass
    gpus: int
    gpu_memory_mib: int
    """Of each GPU."""
    price: Price
    region: str
    """Country and continent, "SI/EU"; empty where the list says nothing."""


def price_per_gpu_hour(price_per_hour: TokenAmount, gpus: int) -> Price:
    """An instance's hourly price for one GPU, rounded up to the tick: no provider asks less."""
    step = gpus * limits.PRICE_TICK
    return Price(-(-price_per_hour.value // step) * limits.PRICE_TICK)


def read_offers() -> tuple[Offer, ...]:
    """The list's usable rows in the order of class, size and price."""
    text = (resources.files("cloud_gpu.adapters") / "offers" / "vast.csv").read_text()
    offers = [offer for row in csv.DictReader(text.splitlines()) if (offer := _offer(row))]
    return tuple(sorted(offers, key=lambda o: (o.gpu_class, o.gpus, o.price.value, o.instance)))


def _offer(row: dict[str, str]) -> Offer | None:
    gpus = int(row["count"])
    memory_mib = int(row["gpu_memory_total_mib"]) // gpus
    model = row["instance"].split("-")[1]  # "2x-A100_SXM4-32-65536": count, model, vCPUs, memory
    gpu_class = _CLASSES.get((model, memory_mib))
    if gpu_class is None or gpus not in _SLICES:
        return None
    return Offer(
        instance=row["instance"],
        gpu_class=gpu_class,
        gpus=gpus,
        gpu_memory_mib=memory_mib,
        price=price_per_gpu_hour(parse_tokens(row["price_per_hour_usd"]), gpus),
        region=_region(row["region"]),
    )


def _region(text: str) -> str:
    """ "Slovenia, SI, EU" is "SI/EU"."""
    words = [word.strip() for word in text.split(",")]
    return "/".join(word for word in words[-2:] if len(word) == 2 and word.isupper())


def single_gpus(offers: tuple[Offer, ...], gpu_class: GpuClass) -> tuple[Offer, ...]:
    """The class's instances cut into single GPUs, the cheapest first, each price once."""
    cheapest: dict[Price, Offer] = {}
    for offer in offers:
        if offer.gpu_class == gpu_class:
            cheapest.setdefault(offer.price, replace(offer, gpus=1))
    return tuple(cheapest[price] for price in sorted(cheapest, key=lambda price: price.value))


def dealt(offers: tuple[Offer, ...], nodes: int, each: int) -> tuple[tuple[Offer, ...], ...]:
    """The offers dealt out like cards, `each` to a node, from the start again when they run out."""
    cards = [offers[place % len(offers)] for place in range(nodes * each)]
    return tuple(tuple(cards[node::nodes]) for node in range(nodes))
