"""The keeper of an open lease: runs what other commands ask for, and notes what happened.

It lives in a process of its own, signs vouchers through its session, and ends the lease when it
is told to, when the lease is over, or when nobody has used it for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cloud_gpu.cli.failures import failure_of, refused_here
from cloud_gpu.cli.output import money
from cloud_gpu.protocol.codec import to_builtins
from cloud_gpu.protocol.errors import CloudGpuError

if TYPE_CHECKING:
    from cloud_gpu.cli.outside import OpenSession, RunningJob

_WATCH_S: Final = 0.5
_JOBS_KEPT: Final = 100


class KeptJob:
    """One command in a kept lease, with all it printed, for any number of readers."""

    def __init__(self, number: int, command: list[str]) -> None:
        self.number, self.command = number, command
        self.started_at = time.time()
        self.pieces: list[tuple[str, str]] = []
        """(stream, text), in the order they came."""
        self.end: dict[str, Any] | None = None
        """What the last answer says: exit code and cost, or a failure."""
        self.changed = threading.Condition()
        self._running: RunningJob | None = None

    @property
    def row(self) -> dict[str, Any]:
        """For `show`."""
        end = self.end or {}
        state = "running" if self.end is None else "failed" if "failure" in end else "ended"
        return {
            "job": self.number,
            "command": " ".join(self.command),
            "state": state,
            "exit_code": end.get("exit_code"),
            "started_at": int(self.started_at * 1000),
        }

    def run(self, session: OpenSession, request: Mapping[str, Any]) -> None:
        """Do all of it, in the caller's thread; never raises for what a lease does."""
        try:
            for local in request.get("put", ()):
                session.put(Path(local))
            self._running = session.popen(self.command, dict(request.get("env", {})))
            readers = [
                threading.Thread(target=self._read, args=(self._running, stream), daemon=True)
                for stream in ("stdout", "stderr")
            ]
            for reader in readers:
                reader.start()
            result = self._running.wait()
            for reader in readers:
                reader.join()
            fetched = []
            for remote, local in request.get("get", ()):
                fetched += [str(path) for path in session.get(remote, local)]
            end: dict[str, Any] = {
                "exit_code": result.code,
                "outcome": str(result.outcome),
                "seconds": round(result.duration_s, 3),
                "cost": money(result.cost),
                "fetched": fetched,
            }
        except CloudGpuError as error:
            end = {"failure": to_builtins(failure_of(error))}
        except (OSError, ValueError) as error:
            end = {"failure": to_builtins(failure_of(refused_here(error)))}
        with self.changed:
            self.end = end
            self.changed.notify_all()

    def say(self, text: str) -> None:
        """Tell its readers something about the lease, beside what it prints."""
        with self.changed:
            self.pieces.append(("stderr", f"cloud-gpu: {text}\n"))
            self.changed.notify_all()

    def kill(self) -> None:
        """End it by hand."""
        if self._running is not None:
            self._running.kill()

    def told(self, *, follow: bool) -> Iterator[dict[str, Any]]:
        """What it printed so far, with `follow` until its end; then how it ended, if it did."""
        shown = 0
        while True:
            with self.changed:
                while follow and shown == len(self.pieces) and self.end is None:
                    self.changed.wait()
                fresh, end = self.pieces[shown:], self.end
            for stream, text in fresh:
                yield {"stream": stream, "text": text}
            shown += len(fresh)
            if not fresh and (end is not None or not follow):
                if end is not None:
                    yield end
                return

    def _read(self, job: RunningJob, stream: str) -> None:
        try:
            for text in job.logs(stream):
                with self.changed:
                    self.pieces.append((stream, text))
                    self.changed.notify_all()
        except CloudGpuError as error:
            self.say(str(error))


class LeaseKeeper:
    """Answers other commands about one open session."""

    def __init__(self, session: OpenSession, idle_s: int) -> None:
        self._session, self._idle_s = session, idle_s
        self._jobs: dict[int, KeptJob] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._used_at = time.monotonic()
        self._asked_down = threading.Event()
        self._releasable_at = 0
        self.ended_by = ""
        """Why `wait` returned, in words."""

    def wait(self) -> None:
        """Until the lease should end."""
        while not self._asked_down.wait(_WATCH_S):
            with self._lock:
                running = [job for job in self._jobs.values() if job.end is None]
            self._warn(running)
            if running:
                self._used_at = time.monotonic()
            if self._session.lease.ending:
                self.ended_by = "the lease is over"
                return
            if time.monotonic() - self._used_at > self._idle_s:
                self.ended_by = f"nobody used it for {self._idle_s} s"
                return
        self.ended_by = "asked for"

    def _warn(self, running: list[KeptJob]) -> None:
        """Say once to whoever reads along that the provider gave notice."""
        lease = self._session.lease
        if lease.releasable_at != self._releasable_at:
            self._releasable_at = lease.releasable_at
            for job in running:
                job.say(lease.outlook)

    def answer(self, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """One request of another command."""
        self._used_at = time.monotonic()
        match request.get("do"):
            case "status":
                yield self._status()
            case "run":
                job = self._start(request)
                yield {"job": job.number}
                yield from job.told(follow=not request.get("detach"))
            case "logs" | "kill" as what:
                found = self._jobs.get(int(request.get("job") or self._count))
                if found is None:
                    yield {"missing": sorted(self._jobs)}
                elif what == "kill":
                    found.kill()
                else:
                    yield from found.told(follow=bool(request.get("follow")))
            case "down":
                self._asked_down.set()
            case other:
                yield {"unknown": str(other)}

    def _status(self) -> dict[str, Any]:
        cost = self._session.cost()
        return {
            "accrued": money(cost.accrued),
            "promised": money(cost.promised),
            "releasable_at": self._session.lease.releasable_at * 1000,
            "jobs": [job.row for job in list(self._jobs.values())],
        }

    def _start(self, request: Mapping[str, Any]) -> KeptJob:
        with self._lock:
            self._count += 1
            job = self._jobs[self._count] = KeptJob(self._count, list(request["command"]))
            for number in [n for n, old in self._jobs.items() if old.end is not None][:-_JOBS_KEPT]:
                del self._jobs[number]
        if self._releasable_at:
            job.say(self._session.lease.outlook)
        threading.Thread(target=job.run, args=(self._session, request), daemon=True).start()
        return job
