"""NVIDIA GPUs, by way of a child process that is killed when the driver does not answer."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from cloud_gpu.protocol.hardware import Gpu
from node.inventory import GpuReading

_CHILD: Final = (sys.executable, "-P", "-m", "node.adapters.nvml_child")
_ANSWER_S: Final = 2.0
_FIRST_ANSWER_S: Final = 15.0
"""Without the persistence daemon the driver wakes every GPU first."""


class NvidiaSilent(Exception):
    """The driver did not answer, or said that it cannot; the text says which."""


class NvidiaProbe:
    """Asks for all GPUs, again and again; blocking, from any thread."""

    def __init__(self, child: Sequence[str] = _CHILD) -> None:
        self._command = list(child)
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def read(self) -> tuple[GpuReading, ...]:
        """Every GPU, sorted by its UUID; the driver's own order changes. Raises `NvidiaSilent`."""
        with self._lock:
            limit_s = _ANSWER_S if self._child is not None else _FIRST_ANSWER_S
            try:
                answer = self._ask(limit_s)
            except (OSError, ValueError) as error:
                self.close()
                raise NvidiaSilent(f"the NVIDIA driver: {error}") from error
            if "error" in answer:
                self.close()
                raise NvidiaSilent(f"the NVIDIA driver: {answer['error']}")
        return tuple(sorted((_reading(g, answer) for g in answer["gpus"]), key=lambda g: g.uuid))

    def close(self) -> None:
        """End the child, also one that hangs in the kernel: then it is the kernel's to bury."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            child.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return  # uninterruptible; killed as soon as the driver lets it go

    def _ask(self, limit_s: float) -> dict[str, Any]:
        if self._child is None:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"read\n")
        child.stdin.flush()
        line, deadline = b"", time.monotonic() + limit_s
        while not line.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([child.stdout], [], [], left_s)[0]:
                raise OSError(f"no answer within {limit_s} s")
            piece = child.stdout.read1(65_536)  # type: ignore[attr-defined]
            if not piece:
                raise OSError("the asking process ended")
            line += piece
        answer: dict[str, Any] = json.loads(line)
        return answer


def _reading(found: dict[str, Any], answer: dict[str, Any]) -> GpuReading:
    memory_mib, fault = found["memory_mib"], found["fault"]
    return GpuReading(
        uuid=found["uuid"],
        gpu=Gpu(
            model=found["model"],
            memory_mib=memory_mib or 1,
            driver=answer["driver"],
            cuda=answer["cuda"],
            compute_capability=found["compute_capability"],
            architecture=found["architecture"],
        ),
        temperature_c=found["temperature_c"],
        power_w=found["power_w"],
        fault=fault if memory_mib else "the driver does not say how much memory it has",
    )
