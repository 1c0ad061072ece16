"""The gate before asks, and what of a probe gets into a profile."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.hardware import Gpu, GpuClass, Isolation
from node.health import EngineReading, engine_faults, slice_faults
from node.inventory import GpuReading, HostReading, SliceReading, assign, labels_of, profile_of

HOST = HostReading(
    cpu_model="EPYC",
    cpu_architecture="x86_64",
    cpu_cores=8,
    memory_mib=16_384,
    disk_mib=100_000,
    cpu_flags=("avx512f",),
)
H100 = Gpu(
    model="NVIDIA H100 80GB HBM3",
    memory_mib=81_559,
    driver="580.1",
    cuda="13.0",
    compute_capability="9.0",
    architecture="hopper",
)


def engine(**changes: str) -> EngineReading:
    fields = {"docker": "27.1.0", "runc": "1.3.3", "default_runtime": "runc"}
    return EngineReading(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "faulty"),
    [
        ({}, False),
        ({"docker": "25.0"}, False),
        ({"docker": "20.10.24+dfsg1"}, True),
        ({"runc": "1.1.5+ds1"}, True),
        ({"runc": "1.2.7"}, True),
        ({"runc": "1.2.8"}, False),
        ({"runc": "1.3.2"}, True),
        ({"runc": "1.4.0-rc.1"}, True),
        ({"runc": "1.4.0"}, False),
        ({"runc": "v1.5.1"}, False),
        ({"runc": ""}, False),
        ({"default_runtime": "nvidia"}, True),
        ({"nvidia_toolkit": "1.17.7"}, True),
        ({"nvidia_toolkit": "1.17.8"}, False),
        ({"docker": "unknown"}, True),
    ],
)
def test_engines_with_known_escapes_are_faulty(changes: dict[str, str], faulty: bool) -> None:
    assert bool(engine_faults(engine(**changes))) is faulty


def gpu(uuid: str = "GPU-1", **changes: object) -> GpuReading:
    return GpuReading(**{"uuid": uuid, "gpu": H100, **changes})  # type: ignore[arg-type]


def reading(*gpus: GpuReading, **changes: object) -> SliceReading:
    fields: dict[str, object] = {"host": HOST, "gpus": gpus or (gpu(),), "simulated": False}
    return SliceReading(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (reading(), None),
        (reading(gpu(temperature_c=60)), None),
        (reading(gpu(temperature_c=99)), "99 °C"),
        (reading(gpu(fault="XID 79: reset it")), "XID 79"),
        (reading(faults=("the driver does not answer",)), "does not answer"),
    ],
)
def test_what_is_wrong_with_a_machine_is_said(found: SliceReading, fault: str | None) -> None:
    faults = slice_faults(found)
    assert (fault is None) == (not faults)
    assert fault is None or fault in faults[0]


def test_a_machine_gets_its_share_of_the_host() -> None:
    profile = profile_of(
        reading(gpu("a"), gpu("b")),
        gpu_class=GpuClass("H100"),
        share=3,
        region="FR/EU",
        isolation=Isolation.GVISOR,
        fabric="ib0",
    )
    assert profile.fabric == "ib0"
    assert (profile.cpu_cores, profile.memory_mib, profile.disk_mib) == (2, 5_461, 33_333)
    assert len(profile.gpus) == 2
    assert not profile.simulated


def test_labels_are_those_of_kubernetes() -> None:
    labels = labels_of(reading(gpu("a"), gpu("b")))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/gpu.memory"] == "81559"
    assert labels["nvidia.com/gpu.count"] == "2"
    assert (labels["nvidia.com/gpu.compute.major"], labels["nvidia.com/gpu.compute.minor"]) == (
        "9",
        "0",
    )
    assert labels["kubernetes.io/arch"] == "amd64"
    assert labels["feature.node.kubernetes.io/cpu-cpuid.AVX512F"] == "true"
    assert all(len(value) <= 63 for value in labels.values())


def test_no_gpu_is_behind_two_machines() -> None:
    found = [gpu(uuid) for uuid in "abcd"]
    given = assign(found, {0: (1, ()), 1: (1, ("b",)), 2: (2, ()), 3: (1, ())})
    assert {index: [g.uuid for g in gpus] for index, gpus in given.items()} == {
        0: ["a"],
        1: ["b"],
        2: ["c", "d"],
        3: [],
    }
