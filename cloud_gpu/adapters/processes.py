"""Child processes of a devnet: started tethered, watched until ready, ended in reverse, none left.

A child ends when its launcher dies, however that happens (Linux: PR_SET_PDEATHSIG). It is in a
process group of its own, so that Ctrl-C reaches the launcher alone, which then ends the children
in order. Output goes to files: nobody has to drain a pipe.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TypeVar

import msgspec
import psutil

from cloud_gpu.protocol.errors import OutsideWorldError

AnswerT = TypeVar("AnswerT")

_POLL_S = 0.02
_TAIL_LINES = 12

# Set in the child before the program itself: `preexec_fn` would run between fork and exec of a
# process that may have threads. The check covers a launcher that died before the call.
_TETHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


class ChildFailed(OutsideWorldError):
    """A process of the devnet ended, or was not ready in time; the text shows its last lines."""


class ProcessMark(msgspec.Struct, frozen=True):
    """A process as a later command may find it: the pid alone may long be another's."""

    name: str
    pid: int
    created: float
    """Unix seconds at which the system started it."""

    def find(self) -> psutil.Process | None:
        """The process, if it still is this one."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.created) < 0.5 and process.is_running():
                return None if process.status() == psutil.STATUS_ZOMBIE else process
        return None


def mark_of(pid: int, name: str) -> ProcessMark:
    """The mark of a process that runs now; raises psutil.NoSuchProcess."""
    return ProcessMark(name=name, pid=pid, created=psutil.Process(pid).create_time())


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Ending:
    """Whether an ending signal must wait, and whether one waits; of the main thread."""

    undivided = 0
    waits = False


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, the first ending signal raises KeyboardInterrupt; more of them change nothing.

    So that what was started is ended in order, also when a terminal closes or a service manager
    loses patience. For the main thread.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        if _Ending.undivided:
            _Ending.waits = True
        else:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        _Ending.waits = False
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undivided() -> Iterator[None]:
    """An ending signal waits for the end of this block: nothing is started and then not known."""
    _Ending.undivided += 1
    try:
        yield
    finally:
        _Ending.undivided -= 1
    if _Ending.waits and not _Ending.undivided:
        _Ending.waits = False
        raise KeyboardInterrupt


class Child:
    """One running program with its two output files."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self.stdout = folder / f"{name}.out"
        self.stderr = folder / f"{name}.log"
        with self.stdout.open("wb") as out, self.stderr.open("ab") as err:
            self._process = subprocess.Popen(
                [*_tether(), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=dict(environ),
                process_group=0,
            )
        self.mark = mark_of(self._process.pid, name)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def tail(self) -> str:
        """The last lines it wrote, errors last."""
        lines = [
            line
            for path in (self.stdout, self.stderr)
            for line in path.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        return "\n".join(line[:400] for line in lines[-_TAIL_LINES:])

    def wait_for(self, read: Callable[[str], AnswerT | None], within_s: float) -> AnswerT:
        """Poll its standard output until `read` finds what it looks for. Raises ChildFailed."""
        deadline = time.monotonic() + within_s
        while True:
            answer = read(self.stdout.read_text(errors="replace"))
            if answer is not None:
                return answer
            if self.exit_code is not None:
                raise ChildFailed(f"{self.name} ended with {self.exit_code}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ChildFailed(
                    f"{self.name} was not ready in {within_s:g} s ({self.stderr}):\n{self.tail()}"
                )
            time.sleep(_POLL_S)

    def ready_line(self, within_s: float) -> dict[str, object]:
        """The JSON object that a daemon prints once it is up. Raises ChildFailed."""
        return self.wait_for(_ready_object, within_s)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it still runs."""
        if self.exit_code is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as a crash would; jobs and other children of it are left to their own."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def end(self, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after the grace, to it; what it left behind goes too."""
        left = _descendants(self.pid)
        self.signal(signal.SIGCONT)  # a stopped process would not see the SIGTERM
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()
        _kill(left)


def _tether() -> list[str]:
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid())]


def _ready_object(written: str) -> dict[str, object] | None:
    for line in written.splitlines(keepends=True):
        if line.endswith("\n") and line.startswith("{"):
            with suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict) and found.get("ready") is True:
                    return found
    return None


def _descendants(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:  # psutil compares start times: never another process of that pid
        with suppress(psutil.Error):
            process.kill()


def running_with(configs: Collection[str]) -> set[str]:
    """Those settings files that some process runs with now: `--config FILE`."""
    if not configs:
        return set()
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    named = {word for line in lines for flag, word in pairwise(line) if flag == "--config"}
    return named & set(configs)


def end_marked(marks: Iterable[ProcessMark], grace_s: float) -> list[str]:
    """End processes that another launcher started and left; the names of those found."""
    found = [(mark.name, process) for mark in marks if (process := mark.find()) is not None]
    left = [child for _, process in found for child in _descendants(process.pid)]
    for _, process in found:
        with suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs([process for _, process in found], timeout=grace_s)
    _kill([*alive, *left])
    return [name for name, _ in found]
