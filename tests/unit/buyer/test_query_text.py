"""Queries: what they mean, what they refuse and where, and that they hold machines to it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.orders import Scope
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import Address
from cloud_gpu.query import Query, Span
from cloud_gpu.query_text import QueryUnclear, parse_query

ADA = "0x" + "0a" * 20


def said(text: str) -> dict[str, Any]:
    """What the query sets."""
    query, empty = parse_query(text), Query()
    return {
        field.name: getattr(query, field.name)
        for field in fields(Query)
        if getattr(query, field.name) != getattr(empty, field.name)
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("A100", {"classes": (("A100", Span()),)}),
        ("RTX 4090", {"classes": (("RTX 4090", Span()),)}),
        ("A100|H100", {"classes": (("A100", Span()), ("H100", Span()))}),
        ("A100:80GB:2", {"classes": (("A100", Span(77_824)),), "count": 2}),
        ("A100:80GB..", {"classes": (("A100", Span(77_824)),)}),
        ("A100:40GB..80GB", {"classes": (("A100", Span(38_912, 81_920)),)}),
        ("A100:80", {"classes": (("A100", Span(77_824)),)}),
        ("A100:8", {"classes": (("A100", Span()),), "count": 8}),
        (
            "gpu in [A100,H100] vram>=40GB region!=CN",
            {
                "classes": (("A100", Span()), ("H100", Span())),
                "gpu_memory": Span(38_912),
                "excluded_regions": ("CN",),
            },
        ),
        ("gpu not in [A100, L4]", {"excluded_classes": ("A100", "L4")}),
        ("vram = 24GB..48GB", {"gpu_memory": Span(23_347, 49_152)}),
        ("vram<=24GB and vram>=16GB", {"gpu_memory": Span(15_564, 24_576)}),
        ("vram>=500MB", {"gpu_memory": Span(475)}),
        ("need=30GB", {"gpu_memory_need_mib": 30_720}),
        ("ram>=64GB, disk>=1TB", {"memory_mib_min": 65_536, "disk_mib_min": 1_048_576}),
        ("cuda>=12.1 cuda<=12.9", {"cuda": Span("12.1", "12.9")}),
        ("driver=535..550.54.15", {"driver": Span("535", "550.54.15")}),
        ("region in [EU,US]", {"regions": ("EU", "US")}),
        ("network=rdma", {"networks": ("rdma",)}),
        ("ISOLATION >= gVisor", {"isolation": Isolation.GVISOR}),
        ("price<=1.20 count=4", {"max_price": Price(1_200_000), "count": 4}),
        (
            "count=8..16 scope=fabric chunk=8 interruptible=yes",
            {"count": 16, "min_count": 8, "scope": Scope.FABRIC, "chunk": 8, "interruptible": True},
        ),
        (f"provider={ADA}", {"provider": Address.parse(ADA)}),
        (f"provider != {ADA}", {"excluded_providers": (Address.parse(ADA),)}),
        ("verified=yes simulated=no", {"verified": True, "simulated_allowed": False}),
    ],
)
def test_a_query_means(text: str, expected: dict[str, Any]) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("A100 vrm>=40GB", 6, "no such name: vrm, did you mean vram"),
        ("xyz=1", 1, "no such name: xyz; known are gpu, count"),
        ("A100 region", 12, "region: found no operator"),
        ("region=", 8, "region =: found nothing"),
        ("gpu in [A100", 8, "the list is not closed"),
        ("gpu in [A100,]", 8, "needed a word or a list"),
        ("A100 gpu=H100", 10, "a class was named before"),
        ("gpu=A100 H100", 10, "a class was named before"),
        ("gpu=A100:80GB", 5, "write the memory as its own limit"),
        ("A100:x", 1, "needed a class like A100, A100:80GB or A100:80GB:2"),
        ("A100 | :80GB", 7, "needed a class"),
        ("A100:2|H100:4", 1, "several counts"),
        ("A100:2 count=4", 14, "count: named twice"),
        ("count=0", 7, "needed a number of GPUs"),
        ("count=16..8", 7, "needed the fewest first, like 8..16"),
        ("count=8..", 7, "found '', needed a number of GPUs"),
        ("scope=rack", 7, "needed one of node, fabric, region, any"),
        ("chunk>=8", 6, "needed one of ="),
        ("vram>=lots", 7, "needed a size like 40GB"),
        ("vram>40GB", 5, "found '>', needed one of =, in, >=, <="),
        ("vram>=40GB vram>=24GB", 12, "vram >=: named twice"),
        ("vram>=40GB vram=24GB..48GB", 17, "named twice"),
        ("vram=..", 6, "a range without ends"),
        ("ram<=4GB", 4, "needed one of >="),
        ("cuda>=12.x", 7, "needed a version like 12.4"),
        ("isolation>=glass", 12, "needed one of process, container, gvisor, vm"),
        ("price<=1,20", 8, 'a price is written like "1.20"'),
        ("price>=1.20", 6, "needed one of <="),
        ("provider=bob", 10, "needed 0x and 40 hex digits"),
        ("verified=maybe", 10, "needed yes or no"),
    ],
)
def test_what_cannot_be_meant_is_named_with_its_column(
    text: str, column: int, problem: str
) -> None:
    with pytest.raises(QueryUnclear) as caught:
        parse_query(text)
    assert problem in caught.value.problem
    shown = str(caught.value).splitlines()
    assert f"(column {column})" in shown[0]
    assert shown[1:] == ["  " + text, "  " + " " * (column - 1) + "^"]


@given(st.text(alphabet="A10:|,.[]<>=! vramgpuincotGB", max_size=40))
def test_any_text_is_a_query_or_unclear(text: str) -> None:
    try:
        parse_query(text)
        column = 0
    except QueryUnclear as error:
        column = error.column
    assert 0 <= column <= len(text)


def machine(region: str = "DE/EU", memory: int = 81_559, **changes: Any) -> HardwareProfile:
    gpu = Gpu(model="A100", memory_mib=memory, driver="550.54.15", cuda="12.4")
    given: dict[str, Any] = {
        "gpu_class": GpuClass("A100-SXM4-80GB"),
        "gpus": (gpu,),
        "cpu_model": "",
        "cpu_architecture": "x86_64",
        "cpu_cores": 8,
        "memory_mib": 65_536,
        "disk_mib": 100_000,
        "region": region,
        "isolation": Isolation.CONTAINER,
        "simulated": False,
    }
    return HardwareProfile(**(given | changes))


@pytest.mark.parametrize(
    ("text", "unmet"),
    [
        ("A100:80GB region!=CN driver>=535 cuda=12.0..12.9", None),
        ("vram<=48GB", "gpu_memory_mib_max: found 81559, needed 49152"),
        ("A100:24GB..48GB", "gpu_memory_mib_max"),
        ("H100|A100:96GB", "gpu_memory_mib_min"),
        ("cuda<=12.3", "cuda_max: found 12.4, needed 12.3"),
        ("driver>=551", "driver_min: found 550.54.15, needed 551"),
        ("driver<=535", "driver_max"),
        ("region not in [CN,DE]", "excluded_regions: found DE/EU, needed none of DE"),
        ("region=US", "regions"),
        ("network=rdma", "network_classes"),
    ],
)
def test_a_machine_is_held_to_a_query(text: str, unmet: str | None) -> None:
    profile, query = machine(), parse_query(text)
    assert query.wants(profile.gpu_class)
    found = query.terms(profile.gpu_class).unmet_by(profile, Address.parse(ADA))
    assert (found or "").startswith(unmet or "")
    assert (found is None) is (unmet is None)


def test_an_excluded_class_is_not_meant() -> None:
    assert not parse_query("gpu!=A100").wants(GpuClass("A100-SXM4-80GB"))
    assert parse_query("gpu!=A100").wants(GpuClass("H100-SXM5-80GB"))
    assert parse_query("gpu!=A100").names == ("",)
