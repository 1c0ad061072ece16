"""The process runtime: jobs as processes of the node's own user. ISOLATION: NONE BUT THE PROCESS.

For development, demos and providers who trust their buyers: a job sees the provider's files and
network. It bounds what a well-meaning job uses, and it says so in the report that `Ready` binds.
Each job has a folder and a supervisor that outlives the daemon, so that a restart loses nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import trio

from cloud_gpu.protocol.errors import ContainerFailed
from cloud_gpu.protocol.events import JobExited
from cloud_gpu.protocol.hardware import HardwareProfile, Isolation
from cloud_gpu.protocol.job import JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.limits import JOB_LOG_BYTES_MAX
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.ports import Artifacts
from cloud_gpu.protocol.values import Digest
from node.adapters.job_folders import (
    STREAMS,
    JobFolder,
    LeaseFolders,
    Post,
    environment_of,
    fingerprint_of,
    replace,
)
from node.adapters.process_tree import is_alive, kill_marked, signal_below, started_ticks
from node.adapters.supervisor import Ending, Order
from node.adapters.watching import Watchers

_LOOK_S: Final = 0.05
_STOP_S: Final = 5.0
_OPEN_FILES_MAX: Final = 4_096


class ProcessRuntime:
    """A `Runtime`. Its tasks live in the nursery it is given."""

    def __init__(
        self, nursery: trio.Nursery, folder: Path, store: Artifacts, post: Post, *, cpu_cores: int
    ) -> None:
        self._store, self._post = store, post
        self._folders = LeaseFolders(folder / "leases")
        self._shims = _write_shims(folder / "bin")
        self._cpu_cores = cpu_cores
        self._watchers = Watchers(nursery, post)

    async def prepare(self, lease: LeaseKey, profile: HardwareProfile) -> RuntimeReport:
        """See `Runtime`."""
        report = self._folders.report(lease) or RuntimeReport(
            lease=lease,
            profile=profile,
            runtime="process",
            isolation=Isolation.PROCESS,
            image="",
            python=platform.python_version(),
            fingerprint=fingerprint_of("process", ""),
        )
        try:
            self._folders.checkpoints(lease).mkdir(parents=True, exist_ok=True)
            self._folders.keep_report(report)
        except OSError as error:
            raise ContainerFailed(f"the lease's folder cannot be made: {error}") from error
        return report

    async def adopt(self) -> Sequence[RuntimeReport]:
        """See `Runtime`."""
        return self._folders.reports()

    async def start_job(self, spec: JobSpec) -> None:
        """See `Runtime`."""
        if self._watchers.has(spec.id):
            return
        folder = self._folders.job(spec.lease, spec.id)
        if (exited := folder.exited()) is not None:
            self._post(exited)
            return
        self._watchers.claim(folder)
        child: int | None = None
        if not folder.is_started:
            try:
                child = await trio.to_thread.run_sync(self._launch, spec, folder)
            except ContainerFailed as failed:
                self._watchers.give_up(spec.id)
                self._post(folder.unstarted(JobOutcome.FAILED_TO_START, str(failed), self._store))
                return
        self._watchers.begin(spec.id, partial(_ended, folder, child), partial(self._finish, folder))

    async def kill_job(self, lease: LeaseKey, job: Digest) -> None:
        """See `Runtime`."""
        folder = self._folders.job(lease, job)
        if (exited := folder.exited()) is not None:
            self._post(exited)
        elif not folder.is_started:
            self._post(folder.unstarted(JobOutcome.KILLED, "it had not started", self._store))
        else:
            _terminate(folder)

    async def read_output(
        self, lease: LeaseKey, job: Digest, stdout_from: int, stderr_from: int
    ) -> None:
        """See `Runtime`."""
        folder = self._folders.job(lease, job)
        for stream, offset in zip(STREAMS, (stdout_from, stderr_from), strict=True):
            for event in islice(folder.printed(stream, offset), 1):
                self._post(event)

    async def pause(self, lease: LeaseKey) -> None:
        """See `Runtime`."""
        await trio.to_thread.run_sync(self._signal_all, lease, signal.SIGSTOP)

    async def resume(self, lease: LeaseKey) -> None:
        """See `Runtime`."""
        await trio.to_thread.run_sync(self._signal_all, lease, signal.SIGCONT)

    async def remove(self, lease: LeaseKey) -> None:
        """See `Runtime`."""
        await self.end_jobs(lease)
        folder = self._folders.lease(lease)
        await trio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))

    async def end_jobs(self, lease: LeaseKey) -> None:
        """See `Runtime`."""
        for job in self._folders.jobs(lease):
            _terminate(job)
        with trio.move_on_after(_STOP_S):
            # Not by their watchers alone: at the daemon's own end those have stopped already.
            while any(map(_supervisor_of, self._folders.jobs(lease))):  # noqa: ASYNC110
                await trio.sleep(_LOOK_S)
        await self._watchers.settle(lease, _STOP_S)

    def _signal_all(self, lease: LeaseKey, number: signal.Signals) -> None:
        for job in self._folders.jobs(lease):
            if (supervisor := _supervisor_of(job)) is not None:
                signal_below(supervisor, number)

    def _launch(self, spec: JobSpec, folder: JobFolder) -> int:
        """Lay out the job's folder and start its supervisor, whose pid this is.

        Raises `ContainerFailed`.
        """
        if spec.image:
            raise ContainerFailed("the process runtime has no images")
        folder.lay_out(spec, self._store)
        try:
            order = self._order(spec, folder)
            path = folder.folder / "order.json"
            replace(path, json.dumps(asdict(order)).encode())
            folder.mark_started(spec)
            supervisor = _spawn(path, folder.folder / "supervisor.log")
            # It writes the same a moment later by itself, should we be gone by then.
            named = {"pid": supervisor, "ticks": started_ticks(supervisor)}
            replace(folder.folder / "pid.json", json.dumps(named).encode())
            return supervisor
        except OSError as error:
            raise ContainerFailed(f"the job cannot be started: {error}") from error

    def _order(self, spec: JobSpec, folder: JobFolder) -> Order:
        profile = self._profile(spec.lease)
        return Order(
            command=list(spec.command),
            folder=str(folder.work),
            # Output is seen as it is printed; on gVisor this would lose some, see `rootfs`.
            environment={"PYTHONUNBUFFERED": "1"}
            | environment_of(
                spec,
                gpus=len(profile.gpus),
                path=f"{self._shims}:/usr/local/bin:/usr/bin:/bin",
                temporary=str(folder.temporary),
                checkpoints=str(self._folders.checkpoints(spec.lease)),
            ),
            stdout=str(folder.log("stdout")),
            stderr=str(folder.log("stderr")),
            log_bytes_max=JOB_LOG_BYTES_MAX,
            wall_s=spec.runtime_s_max,
            limits={
                "RLIMIT_CORE": 0,
                "RLIMIT_CPU": spec.runtime_s_max * self._cpu_cores + 1,
                "RLIMIT_FSIZE": profile.disk_mib * 2**20,
                "RLIMIT_NOFILE": _OPEN_FILES_MAX,
                "RLIMIT_DATA": profile.memory_mib * 2**20,
            },
            pid_file=str(folder.folder / "pid.json"),
            end_file=str(folder.folder / "end.json"),
        )

    def _profile(self, lease: LeaseKey) -> HardwareProfile:
        report = self._folders.report(lease)
        if report is None:
            raise ContainerFailed(f"lease {lease} is not prepared")
        return report.profile

    def _finish(self, folder: JobFolder, ending: Ending) -> JobExited:
        bytes_max = self._profile(folder.lease).disk_mib * 2**20
        return folder.finish(ending, self._store, bytes_max)


async def _ended(folder: JobFolder, child: int | None) -> Ending:
    """When and how a job ended; `child` is its supervisor, if this daemon must reap it."""
    while _supervisor_of(folder) is not None:  # noqa: ASYNC110 it may be no child of ours
        await trio.sleep(_LOOK_S)
    return await trio.to_thread.run_sync(_ending_of, folder, child)


def _spawn(order: Path, log: Path) -> int:
    """Start a supervisor that no signal of ours reaches and that outlives us; its pid."""
    # -P: a job's folder must not lend its modules to the supervisor.
    command = [sys.executable, "-E", "-s", "-P", "-m", "node.adapters.supervisor", str(order)]
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return os.posix_spawn(
        sys.executable,
        command,
        {"PATH": os.defpath, "LANG": "C.UTF-8"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(log), log_flags, 0o600),
        ],
        setsid=True,
    )


def _supervisor_of(folder: JobFolder) -> int | None:
    """The pid of a job's supervisor while it lives."""
    try:
        found = json.loads((folder.folder / "pid.json").read_bytes())
    except FileNotFoundError:
        return None
    return int(found["pid"]) if is_alive(found["pid"], found["ticks"]) else None


def _terminate(folder: JobFolder) -> None:
    """Tell a job's supervisor to end it; what was paused must wake up to die."""
    if (supervisor := _supervisor_of(folder)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGTERM)
        signal_below(supervisor, signal.SIGCONT)


def _ending_of(folder: JobFolder, child: int | None) -> Ending:
    """How a job ended by its supervisor's word, or, if that was killed too, as lost."""
    if child is not None:
        with contextlib.suppress(ChildProcessError):  # somebody reaped it already
            os.waitpid(child, 0)
    path = folder.folder / "end.json"
    if path.is_file():
        return Ending(**json.loads(path.read_bytes()))
    kill_marked(f"CLOUD_GPU_JOB_ID={folder.job}")
    started_at = (folder.folder / "spec.json").stat().st_mtime_ns // 1_000_000
    return Ending(
        outcome=str(JobOutcome.KILLED),
        exit_code=137,
        detail="its supervisor was lost, by a restart of the machine or a signal",
        log_cut=False,
        started_at=started_at,
        ended_at=max(started_at, time.time_ns() // 1_000_000),
    )


def _write_shims(folder: Path) -> Path:
    """A folder for PATH in which `python` is the node's own interpreter, packages included."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        shim = folder / name
        # A link would lose the virtual environment: Python looks for it beside its own name.
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        shim.chmod(0o755)
    return folder
