"""The Docker runtime: each job in a hardened container of its own, on runc or, better, on runsc.

Containers carry their lease as labels and outlive the daemon, which takes them up again. Create,
start, wait, read the logs, remove: an engine that removes by itself loses output. The engine is
asked from worker threads; what it cannot do is a `ContainerFailed`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
import docker
import docker.errors
import requests
import structlog
import trio

from cloud_gpu.protocol.errors import ContainerFailed
from cloud_gpu.protocol.events import JobExited
from cloud_gpu.protocol.hardware import HardwareProfile, Isolation
from cloud_gpu.protocol.job import JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.ports import Artifacts
from cloud_gpu.protocol.values import Digest
from node.adapters.containers import (
    Container,
    ContainerLogs,
    Live,
    RunningJob,
    give_to,
    remove_container,
    unless_over,
)
from node.adapters.disks import drop_disk, make_disk
from node.adapters.hardening import Bounds, hardened
from node.adapters.images import JobImage
from node.adapters.job_folders import (
    STREAMS,
    JobFolder,
    LeaseFolders,
    Post,
    environment_of,
    fingerprint_of,
)
from node.adapters.rootfs import USER
from node.adapters.supervisor import Ending
from node.adapters.watching import Watchers

_log = structlog.get_logger(adapter="docker")

_THREADS: Final = 256
"""Three for each running job: its end and its two streams."""
_STOP_S: Final = 10.0
_AGAIN_S: Final = 1.0
_TRIAL_S: Final = 60
_END_AFTER: Final = ("timeout", "-s", "KILL")
_GRACE_S: Final = 30
"""The container ends by itself so long after its time, should no daemon be there to end it."""
_PATH: Final = "/usr/local/bin:/bin"
_LABEL: Final = "cloud-gpu."
_TRIAL: Final = "import platform, os; print(platform.python_version(), os.uname().release)"
_GVISOR_KERNEL: Final = "4.4.0"
"""What runsc answers to uname; no Docker engine runs on a kernel that old."""

ResultT = TypeVar("ResultT")


class DockerRuntime:
    """A `Runtime` on one engine. Its tasks live in the nursery it is given."""

    def __init__(
        self,
        nursery: trio.Nursery,
        folder: Path,
        store: Artifacts,
        post: Post,
        *,
        client: docker.DockerClient,
        image: JobImage,
        name: str,
        gpus_of: Callable[[int], Sequence[str]] = lambda _: (),
    ) -> None:
        self._store, self._post = store, post
        self._client, self._image, self._name = client, image, name
        self._gpus_of = gpus_of
        self._folders = LeaseFolders(folder.resolve() / "leases")
        self._watchers = Watchers(nursery, post)
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._user = USER if os.geteuid() == 0 else os.geteuid()

    @property
    def isolation(self) -> Isolation:
        """What the runtime isolates."""
        return Isolation.GVISOR if self._name == "runsc" else Isolation.CONTAINER

    async def prepare(self, lease: LeaseKey, profile: HardwareProfile) -> RuntimeReport:
        """See `Runtime`. The first time, a container proves that the engine does as it is told."""
        report = self._folders.report(lease) or RuntimeReport(
            lease=lease,
            profile=profile,
            runtime=self._name,
            isolation=self.isolation,
            image=self._image.digest,
            python=await self._ask(self._try_out, lease, profile),
            fingerprint=fingerprint_of(self._name, self._image.digest),
        )
        try:
            await trio.to_thread.run_sync(self._lay_out, report)
        except OSError as error:
            raise ContainerFailed(f"the lease's folder cannot be made: {error}") from error
        return report

    def _lay_out(self, report: RuntimeReport) -> None:
        lease = report.lease
        make_disk(self._folders.disk(lease), report.profile.disk_mib)
        self._folders.checkpoints(lease).mkdir(exist_ok=True)
        give_to(self._folders.checkpoints(lease), self._user)
        self._folders.keep_report(report)

    async def adopt(self) -> Sequence[RuntimeReport]:
        """See `Runtime`. Containers of this node whose lease has no folder are removed."""
        reports = self._folders.reports()
        known = {report.lease.id.raw.hex() for report in reports}
        for container in await self._ask(self._containers):
            if container.labels.get(_LABEL + "lease-id") not in known:
                await self._ask(remove_container, container)
        return reports

    async def start_job(self, spec: JobSpec) -> None:
        """See `Runtime`."""
        if self._watchers.has(spec.id):
            return
        folder = self._folders.job(spec.lease, spec.id)
        if (exited := folder.exited()) is not None:
            self._post(exited)
            return
        self._watchers.claim(folder)
        try:
            job = await self._ask(self._launch, spec, folder)
        except ContainerFailed as failed:
            self._watchers.give_up(spec.id)
            self._post(folder.unstarted(JobOutcome.FAILED_TO_START, str(failed), self._store))
            return
        self._watchers.begin(spec.id, partial(self._ended, job), partial(self._finish, job))

    async def kill_job(self, lease: LeaseKey, job: Digest) -> None:
        """See `Runtime`."""
        folder = self._folders.job(lease, job)
        if (exited := folder.exited()) is not None:
            self._post(exited)
        elif not folder.is_started:
            self._post(folder.unstarted(JobOutcome.KILLED, "it had not started", self._store))
        else:
            for container in await self._ask(self._containers, lease, job):
                await self._ask(RunningJob(container, folder, 0).kill, JobOutcome.KILLED)

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
        for container in await self._ask(self._containers, lease):
            if container.status == "running":
                await self._ask(unless_over, container.pause)

    async def resume(self, lease: LeaseKey) -> None:
        """See `Runtime`."""
        for container in await self._ask(self._containers, lease):
            if container.status == "paused":
                await self._ask(unless_over, container.unpause)

    async def remove(self, lease: LeaseKey) -> None:
        """See `Runtime`."""
        await self.end_jobs(lease)
        for container in await self._ask(self._containers, lease):
            await self._ask(remove_container, container)
        folder = self._folders.lease(lease)
        await trio.to_thread.run_sync(drop_disk, self._folders.disk(lease))
        await trio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))

    async def end_jobs(self, lease: LeaseKey) -> None:
        """See `Runtime`."""
        for job in self._folders.jobs(lease):
            if job.exited() is None:
                await self.kill_job(lease, job.job)
        await self._watchers.settle(lease, _STOP_S)
        # At the daemon's own end the watchers have stopped before: what they left is kept here.
        for job in self._folders.jobs(lease):
            if job.exited() is None:
                for container in await self._ask(self._containers, lease, job.job):
                    await self._ask(self._keep, RunningJob(container, job, 0))

    # The engine.

    async def _ask(self, question: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """In a worker thread, which a shutdown does not wait for; raises `ContainerFailed`."""
        try:
            return await anyio.to_thread.run_sync(
                lambda: question(*arguments), limiter=self._threads, abandon_on_cancel=True
            )
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise ContainerFailed(f"the Docker engine: {error}") from error

    def _containers(
        self, lease: LeaseKey | None = None, job: Digest | None = None
    ) -> list[Container]:
        wanted = [f"{_LABEL}folder={self._folders.root}"]
        if lease is not None:
            wanted.append(f"{_LABEL}lease-id={lease.id.raw.hex()}")
        if job is not None:
            wanted.append(f"{_LABEL}job={job}")
        found: list[Container] = self._client.containers.list(
            all=True, filters={"label": wanted}, ignore_removed=True
        )
        return found

    def _labels(self, lease: LeaseKey, job: Digest | None = None) -> dict[str, str]:
        labels = {
            f"{_LABEL}folder": str(self._folders.root),
            f"{_LABEL}lease": str(lease),
            f"{_LABEL}lease-id": lease.id.raw.hex(),
        }
        return labels | ({f"{_LABEL}job": str(job)} if job is not None else {})

    def _bounds(
        self, profile: HardwareProfile, lease: LeaseKey, job: Digest | None = None
    ) -> Bounds:
        return Bounds(
            runtime=self._name,
            user=f"{self._user}:{self._user}",
            memory_mib=profile.memory_mib,
            cpu_cores=profile.cpu_cores,
            labels=self._labels(lease, job),
            gpus=tuple(self._gpus_of(lease.index)),
        )

    def _try_out(self, lease: LeaseKey, profile: HardwareProfile) -> str:
        return _said_in(self._client, self._image, self._bounds(profile, lease))

    def _launch(self, spec: JobSpec, folder: JobFolder) -> RunningJob:
        """Lay out the job and start its container, or find it; raises `ContainerFailed`."""
        if (found := self._containers(spec.lease, spec.id)) and folder.is_started:
            if found[0].status == "created":
                found[0].start()  # we ended between its creation and its start
            return RunningJob(found[0], folder, spec.runtime_s_max)
        if folder.is_started:
            raise ContainerFailed("its container is gone")
        if spec.image not in ("", self._image.digest):
            raise ContainerFailed(f"image {spec.image} is not here; this node has none but its own")
        report = self._folders.report(spec.lease)
        if report is None:
            raise ContainerFailed(f"lease {spec.lease} is not prepared")
        for left in found:
            remove_container(left)
        folder.lay_out(spec, self._store)
        give_to(folder.work, self._user)
        checkpoints = self._folders.checkpoints(spec.lease)
        container = self._client.containers.create(
            self._image.reference,
            [*_END_AFTER, str(spec.runtime_s_max + _GRACE_S), *spec.command],
            **hardened(
                self._bounds(report.profile, spec.lease, spec.id),
                environment_of(
                    spec,
                    gpus=len(report.profile.gpus),
                    path=_PATH,
                    temporary="/tmp",  # noqa: S108 the container's own
                    checkpoints="/ckpt",
                ),
                {str(folder.work): "/job", str(checkpoints): "/ckpt"},
            ),
        )
        try:
            # Before it starts, so that not a byte is missed.
            live = self._client.api.attach(str(container.id), stream=True, demux=True)
            folder.mark_started(spec)
            container.start()
        except BaseException:
            remove_container(container)
            raise
        return RunningJob(container, folder, spec.runtime_s_max, live)

    # One job.

    async def _ended(self, job: RunningJob) -> Ending:
        """Follow a container to its end, whatever the engine does meanwhile."""
        logs = ContainerLogs(job.folder)
        live = job.live
        while True:
            try:
                state = await self._ask(job.state)
                await self._until_exit(job, partial(self._copy, job, logs, live), state)
                return job.ending(await self._ask(job.state), logs.is_cut)
            except ContainerFailed as failed:
                _log.warning("job_not_followed", job=str(job.folder.job), error=str(failed))
                live = None
                await trio.sleep(_AGAIN_S)

    async def _until_exit(
        self, job: RunningJob, copy: Callable[[], Awaitable[None]], state: dict[str, Any]
    ) -> None:
        """Copy its output until it ends, by itself or by the clock; raises `ContainerFailed`."""
        failed: ContainerFailed | None = None
        async with trio.open_nursery() as nursery:
            if state["Running"]:  # so it is, too, while it is paused
                nursery.start_soon(self._end_after, job, job.seconds_left(state))
            async with trio.open_nursery() as copying:
                copying.start_soon(copy)
                try:
                    await self._ask(job.container.wait)
                except ContainerFailed as error:
                    failed = error
                # What it printed last is copied to the end, but no broken stream holds it up.
                copying.cancel_scope.deadline = trio.current_time() + _STOP_S
            nursery.cancel_scope.cancel()
        if failed is not None:
            raise failed

    async def _copy(self, job: RunningJob, logs: ContainerLogs, live: Live | None) -> None:
        if live is not None:
            await self._copy_quietly(job, logs.follow, live)
            return
        async with trio.open_nursery() as nursery:
            for stream in STREAMS:
                nursery.start_soon(
                    self._copy_quietly, job, logs.follow_again, job.container, stream
                )

    async def _copy_quietly(self, job: RunningJob, copy: Callable[..., None], *of: Any) -> None:
        try:
            await self._ask(copy, *of)
        except (ContainerFailed, OSError) as failed:
            _log.warning("output_not_copied", job=str(job.folder.job), error=str(failed))

    async def _end_after(self, job: RunningJob, left_s: float) -> None:
        await trio.sleep(left_s)
        try:
            await self._ask(job.kill, JobOutcome.TIMED_OUT)
        except ContainerFailed as failed:
            _log.error("job_not_ended", job=str(job.folder.job), error=str(failed))

    def _keep(self, job: RunningJob) -> None:
        job.container.wait(timeout=_STOP_S)
        self._finish(job, job.ending(job.state(), log_cut=False))

    def _finish(self, job: RunningJob, ending: Ending) -> JobExited:
        report = self._folders.report(job.folder.lease)
        disk_mib = report.profile.disk_mib if report else 0
        event = job.folder.finish(ending, self._store, disk_mib * 2**20)
        remove_container(job.container)
        return event


def try_out(client: docker.DockerClient, image: JobImage, name: str) -> None:
    """Whether jobs could run on a runtime of this engine at all; raises `ContainerFailed`."""
    user = f"{USER}:{USER}"
    bounds = Bounds(runtime=name, user=user, memory_mib=256, cpu_cores=1, labels={})
    try:
        _said_in(client, image, bounds)
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ContainerFailed(f"the Docker engine: {error}") from error


def _said_in(client: docker.DockerClient, image: JobImage, bounds: Bounds) -> str:
    """Run a word of Python, hardened as jobs are; its version. Raises `ContainerFailed`."""
    container = client.containers.create(
        image.reference,
        ["python", "-c", _TRIAL],
        **hardened(bounds, {"PATH": _PATH}, {}),
    )
    try:
        container.start()
        code = container.wait(timeout=_TRIAL_S)["StatusCode"]
        said = container.logs().decode(errors="replace")
    finally:
        remove_container(container)
    version, _, kernel = said.strip().partition(" ")
    if code != 0 or (bounds.runtime == "runsc") != (kernel == _GVISOR_KERNEL):
        raise ContainerFailed(f"a trial container on {bounds.runtime} said {said[:300]!r} ({code})")
    return version
