"""A process and all that descends from it, as /proc shows them: listed, signalled, ended.

A job may leave its session and its parent; it cannot leave its supervisor, which is the reaper of
everything below it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_STILL_S = 0.01
_ENDING_S_MAX = 10.0


def started_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None: there is no such process.

    With the pid it names one process for ever: pids are used again, starts are not.
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] == "Z" else int(fields[19])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether this very process is still running."""
    return started_ticks(pid) == ticks


def descendants(root: int) -> list[int]:
    """Every process below `root`, itself not included, zombies not either."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        fields = _stat(int(entry.name))
        if fields is not None and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def signal_below(root: int, number: signal.Signals) -> None:
    """Signal every descendant, also those born meanwhile, until no new one is found."""
    signalled: set[int] = set()
    while new := [pid for pid in descendants(root) if pid not in signalled]:
        for pid in new:
            _kill(pid, number)
            signalled.add(pid)


def end_below(root: int, reaped: dict[int, int]) -> bool:
    """Kill every descendant and wait until they are gone; False after ten seconds of trying.

    `reaped` gets the wait status of each of our own children.
    """
    give_up = time.monotonic() + _ENDING_S_MAX
    while alive := descendants(root):
        # Stopped first, a fork bomb cannot outrun its killer.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in alive:
                _kill(pid, number)
        _reap(reaped)
        if time.monotonic() > give_up:
            return False
        time.sleep(_STILL_S)
    _reap(reaped)
    return True


def kill_marked(variable: str) -> None:
    """Kill every process that was started with this `NAME=value` in its environment."""
    mark = variable.encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                _kill(int(entry.name), signal.SIGKILL)


def _reap(reaped: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):  # there are no children, or no more
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            reaped[found[0]] = found[1]


def _kill(pid: int, number: signal.Signals) -> None:
    # Gone meanwhile, or a set-uid program that only its owner may end.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the name before may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()
