"""Runs one job as a process and outlives the daemon: `python -m node.adapters.supervisor ORDER`.

It keeps the job's output within bounds, ends it by the wall clock, by SIGTERM or when its folder is
deleted, ends whatever the job leaves behind, and writes how it ended. Standard library only: it
starts with every job.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final

from node.adapters.process_tree import end_below, started_ticks

_PR_SET_CHILD_SUBREAPER: Final = 36
_READ_BYTES: Final = 65_536
_LOOK_S: Final = 1.0
"""How often the folder is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to run and within which limits; a JSON file in the job's folder."""

    command: list[str]
    folder: str
    environment: dict[str, str]
    stdout: str
    stderr: str
    log_bytes_max: int
    wall_s: int
    limits: dict[str, int]
    """By the name of the constant in `resource`; cut to what is allowed here."""
    pid_file: str
    end_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ended; the words are those of `JobOutcome`. Times in Unix milliseconds."""

    outcome: str
    exit_code: int
    detail: str
    log_cut: bool
    started_at: int
    ended_at: int


class _Log:
    """Both output streams, written until the limit that they share is reached."""

    def __init__(self, order: Order) -> None:
        self._left = order.log_bytes_max
        self.is_cut = False
        self._files: dict[int, BinaryIO] = {}
        self._order = order

    def add(self, pipe: int, path: str) -> None:
        self._files[pipe] = Path(path).open("wb", buffering=0)  # noqa: SIM115 closed at its end

    @property
    def pipes(self) -> list[int]:
        return list(self._files)

    def take(self, pipe: int) -> None:
        """Read what there is; beyond the limit it is dropped, so that nothing blocks."""
        content = os.read(pipe, _READ_BYTES)
        if not content:
            self._files.pop(pipe).close()
            os.close(pipe)
            return
        kept = content[: self._left]
        self.is_cut = self.is_cut or len(kept) < len(content)
        self._left -= len(kept)
        if kept:
            self._files[pipe].write(kept)


def supervise(order: Order) -> Ending:
    """Run the job to its end."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started_at = _now()
    wakeup, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    log = _Log(order)
    try:
        job = subprocess.Popen(
            order.command,
            cwd=order.folder,
            env=order.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: _limit(order.limits),
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        for path in (order.stdout, order.stderr):
            Path(path).touch()
        return Ending(
            outcome="failed-to-start",
            exit_code=127,
            detail=f"{order.command[0]}: {error}",
            log_cut=False,
            started_at=started_at,
            ended_at=_now(),
        )
    assert job.stdout is not None
    assert job.stderr is not None
    for pipe, path in ((job.stdout, order.stdout), (job.stderr, order.stderr)):
        log.add(os.dup(pipe.fileno()), path)
        pipe.close()
    outcome, detail = _follow(order, job.pid, log, wakeup)
    reaped: dict[int, int] = {}
    if not end_below(os.getpid(), reaped):
        detail = "some of its processes could not be ended"
    _drain(log)
    job.returncode = code = os.waitstatus_to_exitcode(reaped.get(job.pid, signal.SIGKILL))
    return Ending(
        outcome=outcome,
        exit_code=code if code >= 0 else 128 - code,
        detail=detail,
        log_cut=log.is_cut,
        started_at=started_at,
        ended_at=_now(),
    )


def _follow(order: Order, job: int, log: _Log, wakeup: int) -> tuple[str, str]:
    """Pump output until the job itself ends or must; why, in two words."""
    ends_at = time.monotonic() + order.wall_s
    exited = os.pidfd_open(job)
    poll = select.poll()
    for watched in (exited, wakeup, *log.pipes):
        poll.register(watched, select.POLLIN)
    while True:
        wait_s = min(_LOOK_S, max(0.0, ends_at - time.monotonic()))
        ready = [found for found, _ in poll.poll(wait_s * 1000)]
        for pipe in set(ready) & set(log.pipes):
            log.take(pipe)
            if pipe not in log.pipes:
                poll.unregister(pipe)
        if exited in ready:
            return "exited", ""
        if wakeup in ready and signal.SIGTERM in os.read(wakeup, 64):
            return "killed", ""
        if time.monotonic() >= ends_at:
            return "timed-out", f"it ran longer than {order.wall_s} s"
        if not Path(order.folder).is_dir():
            return "killed", "its folder was deleted"


def _drain(log: _Log) -> None:
    """The rest of the output; nobody is left who could write more, save what could not be ended."""
    give_up = time.monotonic() + _LOOK_S
    while log.pipes and time.monotonic() < give_up:
        for pipe in select.select(log.pipes, [], [], _LOOK_S)[0]:
            log.take(pipe)


def _limit(limits: dict[str, int]) -> None:
    for name, wanted in limits.items():
        number: int = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (value, value))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _write(path: str, content: object) -> None:
    aside = Path(f"{path}.{os.getpid()}.new")  # the daemon may write the same just now
    aside.write_text(json.dumps(content))
    aside.replace(path)


def main() -> None:
    """Supervise the order in the file named by the only argument."""
    order = Order(**json.loads(Path(sys.argv[1]).read_text()))
    _write(order.pid_file, {"pid": os.getpid(), "ticks": started_ticks(os.getpid())})
    ending = supervise(order)
    with contextlib.suppress(FileNotFoundError):  # the folder was deleted: nobody will read it
        _write(order.end_file, asdict(ending))


if __name__ == "__main__":
    main()
