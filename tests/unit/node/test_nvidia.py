"""NVML through a child process: what it cannot say is None, and a driver that hangs is said."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from node.adapters.nvidia import NvidiaProbe, NvidiaSilent
from node.adapters.nvml_child import read_all


class FakeNvml:
    """A driver with two GPUs, the second one cut into slices; `errors` make calls fail."""

    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_NO_DATA = 27
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    nvmlMemory_v2 = 0x2000028

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"NVML error {value}")
            self.value = value

    def __init__(self, **errors: int) -> None:
        self._errors = errors
        self.ecc = 0
        self.rows = (0, 0, 0, 0)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name in self._errors:
                raise self.NVMLError(self._errors[name])
            return self._answer(name, *arguments)

        return call

    def _answer(self, name: str, *arguments: Any) -> Any:
        handle = arguments[0] if arguments else None
        match name:
            case "nvmlSystemGetDriverVersion":
                return b"580.95"
            case "nvmlSystemGetCudaDriverVersion":
                return 13_000
            case "nvmlDeviceGetCount":
                return 2
            case "nvmlDeviceGetHandleByIndex":
                return f"GPU-{handle}"
            case "nvmlDeviceGetUUID":
                return handle
            case "nvmlDeviceGetName":
                return "NVIDIA H100"
            case "nvmlDeviceGetMemoryInfo":
                return SimpleNamespace(total=80 * 2**30)
            case "nvmlDeviceGetCudaComputeCapability":
                return (9, 0)
            case "nvmlDeviceGetArchitecture":
                return 9
            case "nvmlDeviceGetTemperatureV":
                return 0
            case "nvmlDeviceGetPowerUsage":
                return 71_500
            case "nvmlDeviceGetMigMode":
                return (1 if handle == "GPU-1" else 0, 0)
            case "nvmlDeviceGetMaxMigDeviceCount":
                return 7
            case "nvmlDeviceGetMigDeviceHandleByIndex":
                if arguments[1] > 1:
                    raise self.NVMLError(self.NVML_ERROR_NOT_FOUND)
                return f"MIG-{arguments[1]}"
            case "nvmlDeviceGetRemappedRows":
                return self.rows
            case "nvmlDeviceGetTotalEccErrors":
                return self.ecc
            case _:
                raise AssertionError(name)


def test_whole_gpus_and_slices_are_listed_by_uuid() -> None:
    answer = read_all(FakeNvml())
    assert (answer["driver"], answer["cuda"]) == ("580.95", "13.0")
    assert [gpu["uuid"] for gpu in answer["gpus"]] == ["GPU-0", "MIG-0", "MIG-1"]
    first = answer["gpus"][0]
    assert (first["memory_mib"], first["architecture"]) == (81_920, "hopper")
    assert (first["temperature_c"], first["power_w"]) == (0, 71), "0 is a reading"
    assert first["fault"] == ""


@pytest.mark.parametrize("missing", [3, 13, 6, 27])
def test_what_a_gpu_does_not_support_is_none_and_not_0(missing: int) -> None:
    answer = read_all(
        FakeNvml(
            nvmlDeviceGetTemperatureV=missing,
            nvmlDeviceGetPowerUsage=missing,
            nvmlDeviceGetMigMode=missing,
            nvmlDeviceGetTotalEccErrors=missing,
            nvmlDeviceGetRemappedRows=missing,
        )
    )
    first = answer["gpus"][0]
    assert (first["temperature_c"], first["power_w"], first["fault"]) == (None, None, "")


def test_a_lost_gpu_wants_a_new_process() -> None:
    with pytest.raises(FakeNvml.NVMLError):
        read_all(FakeNvml(nvmlDeviceGetTemperatureV=15))


def test_memory_errors_are_faults() -> None:
    nvml = FakeNvml()
    nvml.ecc = 2
    assert "2 uncorrectable" in read_all(nvml)["gpus"][0]["fault"]
    nvml.ecc, nvml.rows = 0, (0, 1, 1, 0)
    assert "reset" in read_all(nvml)["gpus"][0]["fault"]
    nvml.rows = (0, 1, 1, 1)
    assert "replace" in read_all(nvml)["gpus"][0]["fault"]


ANSWER = """
import json, sys
gpus = [{"uuid": u, "model": "H100", "memory_mib": m, "compute_capability": "9.0",
         "architecture": "hopper", "temperature_c": None, "power_w": None, "fault": ""}
        for u, m in (("GPU-b", 1000), ("GPU-a", None))]
for _ in sys.stdin:
    print(json.dumps({"driver": "580", "cuda": "13.0", "gpus": gpus}), flush=True)
"""


def child(tmp_path: Path, program: str) -> NvidiaProbe:
    path = tmp_path / "child.py"
    path.write_text(program)
    return NvidiaProbe([sys.executable, str(path)])


def test_a_probe_sorts_by_uuid_and_asks_the_same_child_again(tmp_path: Path) -> None:
    probe = child(tmp_path, ANSWER)
    first = probe.read()
    assert [reading.uuid for reading in first] == ["GPU-a", "GPU-b"]
    assert "how much memory" in first[0].fault
    assert first[1].fault == ""
    assert probe.read() == first
    probe.close()


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import time\nfor _ in __import__('sys').stdin: time.sleep(60)", "no answer within"),
        ("raise SystemExit(3)", "the NVIDIA driver"),
        ("print('no json', flush=True); input(); input()", "the NVIDIA driver"),
        ('print(\'{"error": "NVMLError_DriverNotLoaded"}\', flush=True); input()', "NotLoaded"),
    ],
)
def test_a_driver_that_does_not_answer_is_said(
    tmp_path: Path, program: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.adapters.nvidia._FIRST_ANSWER_S", 0.5)
    probe = child(tmp_path, program)
    with pytest.raises(NvidiaSilent, match=says):
        probe.read()
    probe.close()


def test_the_real_child_says_why_there_is_no_driver_or_lists_gpus() -> None:
    probe = NvidiaProbe()
    said = ""
    try:
        found = [reading.uuid for reading in probe.read()]
    except NvidiaSilent as silent:
        found, said = [], str(silent)
    probe.close()
    assert all(found)
    assert found or "NVML" in said
