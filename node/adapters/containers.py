"""One job's container: its output, its end, and the few things that are done to it. Blocking."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, TypeVar

import docker.errors
import docker.models.containers
from docker.types.daemon import CancellableStream

from cloud_gpu.protocol.job import JobOutcome
from cloud_gpu.protocol.limits import JOB_LOG_BYTES_MAX
from node.adapters.job_folders import STREAMS, JobFolder, replace
from node.adapters.supervisor import Ending

PieceT = TypeVar("PieceT")

Container = docker.models.containers.Container


Live: TypeAlias = "CancellableStream[tuple[bytes | None, bytes | None]]"
"""Pieces of stdout and stderr as they come."""


@contextmanager
def closing(stream: CancellableStream[PieceT]) -> Iterator[CancellableStream[PieceT]]:
    """Close a stream and, which docker-py leaves to the garbage collector, its connection."""
    try:
        yield stream
    finally:
        stream.close()
        stream._response.close()  # type: ignore[attr-defined]


_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_KILLED: Final = 137
_UNSTARTED_YEAR: Final = "0001"
"""The engine's time of what never happened."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job's container and folder."""

    container: Container
    folder: JobFolder
    wall_s: int
    live: Live | None = None
    """What it prints from its start on; None: this daemon did not start it."""

    def state(self) -> dict[str, Any]:
        """What the engine says of it now."""
        self.container.reload()
        found: dict[str, Any] = self.container.attrs["State"]
        return found

    def seconds_left(self, state: dict[str, Any]) -> float:
        """Until the wall clock ends it."""
        return max(0.0, _unix_ms(state["StartedAt"]) / 1000 + self.wall_s - time.time())

    def kill(self, outcome: JobOutcome) -> None:
        """End it; why is on the disk first, since a killed job cannot say it."""
        mark = self.folder.folder / "killed.json"
        if not mark.exists():
            replace(mark, json.dumps({"outcome": str(outcome)}).encode())
        unless_over(self.container.unpause)  # a frozen process does not die
        unless_over(self.container.kill)

    def ending(self, state: dict[str, Any], log_cut: bool) -> Ending:
        """How it ended, of a container that is not running."""
        code = int(state["ExitCode"])
        outcome, detail = JobOutcome.EXITED, str(state.get("Error") or "")
        mark = self.folder.folder / "killed.json"
        if state.get("OOMKilled") and code == _KILLED:
            outcome, detail = JobOutcome.OUT_OF_MEMORY, "it used more memory than it has"
        elif mark.is_file():
            outcome = JobOutcome(json.loads(mark.read_bytes())["outcome"])
            if outcome is JobOutcome.TIMED_OUT:
                detail = f"it ran longer than {self.wall_s} s"
        ended_at = _unix_ms(state["FinishedAt"])
        return Ending(
            outcome=str(outcome),
            exit_code=code,
            detail=detail,
            log_cut=log_cut,
            started_at=min(_unix_ms(state["StartedAt"]), ended_at),
            ended_at=ended_at,
        )


class ContainerLogs:
    """Copies what a container prints into its job's folder, up to the limit for both streams."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.is_cut = False

    def follow(self, live: Live) -> None:
        """Until the container ends. What exceeds the limit is read and dropped."""
        out, err = (self._folder.log(stream).open("ab", buffering=0) for stream in STREAMS)
        with out, err, closing(live):
            for pieces in live:
                for file, piece in zip((out, err), pieces, strict=True):
                    if piece:
                        self._write(file, piece)

    def follow_again(self, container: Container, stream: str) -> None:
        """From the engine's own log, going on where the file ends; until the container ends.

        The engine tells whole lines only, and forgets the oldest of a flood: the second best way.
        """
        with self._folder.log(stream).open("ab", buffering=0) as file:
            skip = file.tell()
            log = container.logs(
                stdout=stream == "stdout", stderr=stream == "stderr", stream=True, follow=True
            )
            with closing(log) as pieces:
                for piece in pieces:
                    self._write(file, piece[skip:])
                    skip = max(0, skip - len(piece))

    def _write(self, file: BinaryIO, piece: bytes) -> None:
        with self._lock:
            kept = piece[: self._left()]
            file.write(kept)
            self.is_cut = self.is_cut or len(kept) < len(piece)

    def _left(self) -> int:
        files = (self._folder.log("stdout"), self._folder.log("stderr"))
        return max(0, JOB_LOG_BYTES_MAX - sum(f.stat().st_size for f in files if f.exists()))


def unless_over(act: Callable[[], object]) -> None:
    """Do it, unless the container is not in the state that it needs any more."""
    try:
        act()
    except docker.errors.APIError as error:
        if error.status_code not in (_CONFLICT, _NOT_FOUND) and "is not" not in str(error):
            raise


def remove_container(container: Container) -> None:
    """End and delete it; gone already is as good."""
    try:
        container.remove(force=True, v=True)
    except docker.errors.APIError as error:
        if error.status_code not in (_CONFLICT, _NOT_FOUND):  # 409: its removal is under way
            raise


def give_to(folder: Path, user: int) -> None:
    """Hand a folder and all in it to the job's user; only root can."""
    if os.geteuid() != 0:
        return
    os.chown(folder, user, user)
    folder.chmod(0o700)
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(root) / name, user, user, follow_symlinks=False)


def _unix_ms(text: str) -> int:
    """The engine's time, RFC 3339 in nanoseconds, as Unix milliseconds; 0: never."""
    if text.startswith(_UNSTARTED_YEAR):
        return 0
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = datetime.fromisoformat(whole + "+00:00").timestamp()
    return int(seconds) * 1000 + int(fraction[:3].ljust(3, "0"))
