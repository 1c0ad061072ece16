"""Moves the wall clock of a Python program that a test starts; other clocks stay as they are.

Python imports a module of this name by itself. libfaketime cannot do it: under it, time.sleep of
Python 3.11 fails with EINVAL (0.9.10, Debian 12).
"""

import mmap
import os
import time

_REAL = time.time_ns


def _move_by(path: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123  # at every program's start: no more imports
        offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)

    def time_ns() -> int:
        return _REAL() + int.from_bytes(offset[:8], "little", signed=True)

    def time_s() -> float:
        return time_ns() / 1e9

    time.time_ns, time.time = time_ns, time_s


if path := os.environ.get("TEST_CLOCK"):
    _move_by(path)
