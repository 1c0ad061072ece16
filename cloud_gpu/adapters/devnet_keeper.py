"""Keeps one devnet running: here until a signal, or in a process of its own in the background.

`python -m cloud_gpu.adapters.devnet_keeper FOLDER NODES RUNTIME` is that process. Its log lies
beside the folder; the lock and the state file tell everybody else how to find it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import psutil

from cloud_gpu.adapters.devnet import Devnet, Plan, Say, launched
from cloud_gpu.adapters.devnet_state import (
    DevnetRunning,
    DevnetState,
    clear,
    held,
    keeper_of,
    running,
    write_state,
)
from cloud_gpu.adapters.processes import ChildFailed, ended_by_signals
from cloud_gpu.protocol.errors import CloudGpuError

_POLL_S: Final = 0.05
_WATCH_S: Final = 1.0
_END_WITHIN_S: Final = 60.0
_ROOM_MIB: Final = 64
"""A devnet's databases, logs and artefacts need that at least."""


def keep(
    folder: Path, nodes: int, runtime: str, say: Say, ready: Callable[[DevnetState], None]
) -> None:
    """Run a devnet in `folder` until an ending signal. Raises DevnetRunning, ChildFailed."""
    with held(folder):
        for name in clear(folder):
            say(f"ended {name}, which an earlier devnet had left")
        plan = Plan(folder=folder, nodes=nodes, runtime=runtime)
        try:
            with ended_by_signals(), suppress(KeyboardInterrupt), launched(plan, say) as devnet:
                state = devnet.state()
                write_state(state)
                ready(state)
                _watch(devnet, say)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _watch(devnet: Devnet, say: Say) -> NoReturn:
    """Tell who ends. A node or the market may be started again by hand; a chain may not."""
    gone: set[str] = set()
    while "chain" not in gone:
        for child in devnet.children.values():
            if child.exit_code is not None and child.name not in gone:
                gone.add(child.name)
                say(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")
        time.sleep(_WATCH_S)
    raise ChildFailed("the devnet's chain is gone, so the devnet ends")


def up(
    folder: Path, nodes: int, runtime: str, say: Say, within_s: float
) -> tuple[DevnetState, bool]:
    """Start one in the background unless it runs; True: it was started now.

    Raises ChildFailed when it fails or is not up in time; then nothing of it is left.
    """
    log = folder.with_name(f"{folder.name}.log")
    folder.parent.mkdir(parents=True, exist_ok=True)
    started = keeper_of(folder) is None
    if started:
        with log.open("wb") as out:
            process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(folder), str(nodes), runtime],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder.parent,
                start_new_session=True,
            )
    else:
        process = None
    try:
        return _await_state(folder, log, process, say, within_s), started
    except BaseException:  # also Ctrl-C: whoever gave up waiting wants no half devnet
        if process is not None:
            down(folder, say)
        raise


def _await_state(
    folder: Path, log: Path, process: subprocess.Popen[bytes] | None, say: Say, within_s: float
) -> DevnetState:
    deadline, told = time.monotonic() + within_s, 0
    while True:
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        if process is not None:
            for line in lines[told:]:
                say(line)
            told = len(lines)
        state = running(folder)
        if state is not None:
            return state
        if process is not None and process.poll():  # 0: somebody else was faster with theirs
            raise ChildFailed(f"the devnet ended with {process.returncode}:\n{_why(lines, log)}")
        if time.monotonic() > deadline:
            raise ChildFailed(
                f"the devnet was not up in {within_s:g} s ({log}):\n{_why(lines, log)}"
            )
        time.sleep(_POLL_S)


def _why(lines: list[str], log: Path) -> str:
    """What it said last; on a full disk it could say nothing."""
    free_mib = shutil.disk_usage(log.parent).free // 2**20
    if free_mib < _ROOM_MIB:
        lines = [*lines, f"the disk of {log.parent} is full: {free_mib} MiB are free; make room"]
    return "\n".join(lines[-15:])


def status(folder: Path) -> DevnetState | None:
    """Where it is; None: it does not run, or is not up yet."""
    return running(folder)


def down(folder: Path, say: Say) -> bool:
    """End it and remove its data; False: it did not run. Mends what a crash left."""
    keeper = keeper_of(folder)
    process = keeper.find() if keeper is not None else None
    if process is not None:
        say("ending the devnet")
        with suppress(psutil.Error):
            process.terminate()
        _, alive = psutil.wait_procs([process], timeout=_END_WITHIN_S)
        for stubborn in alive:
            with suppress(psutil.Error):
                stubborn.kill()
    if folder.exists():
        with held(folder):
            for name in clear(folder):
                say(f"ended {name}, whose keeper was gone")
        shutil.rmtree(folder, ignore_errors=True)
    return process is not None


def main() -> int:
    """The background process."""
    folder, nodes, runtime = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    try:
        keep(folder, nodes, runtime, say, lambda _: None)
    except DevnetRunning:
        return 0  # somebody was faster; whoever waits finds theirs
    except CloudGpuError as error:
        say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
