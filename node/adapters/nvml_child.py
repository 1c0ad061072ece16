"""Asks the NVIDIA driver, in a process that may hang: `python -m node.adapters.nvml_child`.

A lost GPU holds a caller of NVML in the kernel, and a driver that was replaced under us is seen by
new processes only. Each line on stdin is answered by one line of JSON; what the driver cannot say
is null, which is not 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

_MIB: Final = 2**20
_ARCHITECTURES: Final = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}


def read_all(nvml: ModuleType | Any) -> dict[str, Any]:
    """Every GPU that can be rented: whole ones, and the slices of those that are cut (MIG).

    Raises `nvml.NVMLError` when the driver must be asked by a new process.
    """
    opt = _optional(nvml)
    driver = _text(opt(nvml.nvmlSystemGetDriverVersion)) or ""
    cuda = opt(nvml.nvmlSystemGetCudaDriverVersion)
    gpus = []
    for number in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        whole = _read_gpu(nvml, opt, handle, handle)
        slices = _slices(nvml, opt, handle)
        gpus += [_read_gpu(nvml, opt, each, handle) for each in slices] or [whole]
    return {
        "driver": driver,
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        "gpus": gpus,
    }


def _read_gpu(nvml: Any, opt: Callable[..., Any], handle: Any, board: Any) -> dict[str, Any]:
    """One GPU or slice; what only the board knows is asked of the board."""
    memory = opt(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2) or opt(
        nvml.nvmlDeviceGetMemoryInfo, handle
    )
    capability = opt(nvml.nvmlDeviceGetCudaComputeCapability, board)
    power_mw = opt(nvml.nvmlDeviceGetPowerUsage, board)
    return {
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "model": _text(opt(nvml.nvmlDeviceGetName, handle)) or "unknown",
        "memory_mib": memory.total // _MIB if memory is not None else None,
        "compute_capability": ".".join(map(str, capability)) if capability else "",
        "architecture": _ARCHITECTURES.get(opt(nvml.nvmlDeviceGetArchitecture, board), ""),
        "temperature_c": opt(nvml.nvmlDeviceGetTemperatureV, board, nvml.NVML_TEMPERATURE_GPU),
        "power_w": power_mw // 1000 if power_mw is not None else None,
        "fault": _fault(nvml, opt, board),
    }


def _slices(nvml: Any, opt: Callable[..., Any], handle: Any) -> list[Any]:
    """The slices of a GPU that is cut. The most that there can be says nothing about how many."""
    mode = opt(nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return []
    found = []
    for number in range(opt(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        each = opt(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if each is None:
            break
        found.append(each)
    return found


def _fault(nvml: Any, opt: Callable[..., Any], board: Any) -> str:
    """Why the GPU must not be rented out now; empty: it may."""
    rows = opt(nvml.nvmlDeviceGetRemappedRows, board)
    if rows is not None and rows[3]:
        return "memory rows could not be remapped: replace it"
    if rows is not None and rows[2]:
        return "remapped memory rows are pending: reset it"
    errors = opt(
        nvml.nvmlDeviceGetTotalEccErrors,
        board,
        nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        nvml.NVML_VOLATILE_ECC,
    )
    return f"{errors} uncorrectable memory errors: reset it" if errors else ""


def _optional(nvml: Any) -> Callable[..., Any]:
    """A caller that answers None where this GPU or driver has no such thing."""
    missing = {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    missing |= {nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_NO_DATA}

    def opt(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except nvml.NVMLError as error:
            if error.value in missing:
                return None
            raise

    return opt


def _text(found: str | bytes | None) -> str | None:
    return found.decode(errors="replace") if isinstance(found, bytes) else found


def main() -> None:
    """Answer until stdin ends, or until the driver wants a new process."""
    try:
        import pynvml as nvml  # type: ignore[import-untyped]

        nvml.nvmlInit()
    except Exception as error:  # no library, no driver, no permission: all are an answer
        _say({"error": f"{type(error).__name__}: {error}"})
        return
    for _ in sys.stdin:
        try:
            _say(read_all(nvml))
        except nvml.NVMLError as error:
            _say({"error": f"{type(error).__name__}: {error}"})
            return


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
