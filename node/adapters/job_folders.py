"""A job's folder: its inputs, what it printed, how it ended. Both runtimes lay it out alike.

Whatever is decided is on the disk before it is told, so that a daemon that starts again finds each
job as started, ended or collected, and tells the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import ArtifactRejected, ContainerFailed
from cloud_gpu.protocol.events import JobExited, OutputRead, ProviderEvent
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.limits import LOG_CHUNK_BYTES_MAX
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.ports import Artifacts
from cloud_gpu.protocol.values import Digest
from node.adapters.outputs import bring_inputs, collect
from node.adapters.supervisor import Ending

Post = Callable[[ProviderEvent], None]

STREAMS: Final = ("stdout", "stderr")

_FINGERPRINTED: Final = ("numpy", "scikit-learn", "torch")
"""Packages whose release changes what a job computes."""


class JobFolder:
    """One job of one lease on the disk.

    `folder` is ours; `work` is the job's, and lies with all else that strangers write on the disk
    of its lease.
    """

    def __init__(self, folder: Path, work: Path, lease: LeaseKey, job: Digest) -> None:
        self.folder, self.work, self.lease, self.job = folder, work, lease, job
        self.temporary = folder / "tmp"

    @property
    def is_started(self) -> bool:
        """Whether it was handed to the engine; it may have ended since."""
        return (self.folder / "spec.json").is_file()

    def log(self, stream: str) -> Path:
        """The file of what it prints on "stdout" or "stderr"."""
        return self.folder / stream

    def spec(self) -> JobSpec:
        """What to run; of a started job."""
        return from_json((self.folder / "spec.json").read_bytes(), JobSpec)

    def exited(self) -> JobExited | None:
        """How it ended, once that was collected."""
        path = self.folder / "exited.json"
        return from_json(path.read_bytes(), JobExited) if path.is_file() else None

    def lay_out(self, spec: JobSpec, store: Artifacts) -> None:
        """Make the folders anew with the job's inputs; raises `ContainerFailed`."""
        try:
            for each in (self.folder, self.work):
                shutil.rmtree(each, ignore_errors=True)
            for each in (self.work, self.temporary):
                each.mkdir(parents=True)
            marks = bring_inputs(spec, self.work, store)
            replace(self.folder / "marks.json", json.dumps(marks).encode())
        except (ArtifactRejected, OSError) as error:
            raise ContainerFailed(f"the job's inputs cannot be laid out: {error}") from error

    def mark_started(self, spec: JobSpec) -> None:
        """From here on the job counts as started, whatever happens to us."""
        replace(self.folder / "spec.json", to_json(spec))

    def read(self, stream: str, offset: int) -> bytes:
        """What it printed from a byte offset on, one chunk at most; empty: nothing (yet)."""
        try:
            with self.log(stream).open("rb") as file:
                file.seek(offset)
                return file.read(LOG_CHUNK_BYTES_MAX)
        except FileNotFoundError:
            return b""

    def printed(self, stream: str, offset: int) -> Iterator[OutputRead]:
        """All that it printed from a byte offset on."""
        while chunk := self.read(stream, offset):
            yield OutputRead(
                lease=self.lease, job=self.job, stream=stream, offset=offset, chunk=chunk
            )
            offset += len(chunk)

    def finish(self, ending: Ending, store: Artifacts, bytes_max: int) -> JobExited:
        """Collect what a job returns, when nothing of it runs any more."""
        spec = self.spec()
        marks = json.loads((self.folder / "marks.json").read_bytes())
        before = {path: (size, mtime_ns) for path, (size, mtime_ns) in marks.items()}
        details = [ending.detail]
        files: tuple[FileRef, ...] = ()
        try:
            returned = collect(spec, self.work, before, store, bytes_max)
            files = returned.files
            details.append(returned.left_out)
        except OSError as error:
            details.append(f"its files could not be read: {error}")
        logs = {stream: self._keep_log(stream, store, details) for stream in STREAMS}
        event = JobExited(
            lease=self.lease,
            job=self.job,
            outcome=JobOutcome(ending.outcome),
            exit_code=ending.exit_code,
            detail="; ".join(filter(None, details)),
            outputs=files,
            stdout=logs["stdout"],
            stderr=logs["stderr"],
            log_cut=ending.log_cut,
            started_at=ending.started_at,
            ended_at=ending.ended_at,
        )
        self.record(event)
        # What it printed and returned is in the store; the rest is nobody's any more.
        for path in (self.work, self.temporary):
            shutil.rmtree(path, ignore_errors=True)
        for stream in STREAMS:
            self.log(stream).unlink(missing_ok=True)
        return event

    def unstarted(self, outcome: JobOutcome, detail: str, store: Artifacts) -> JobExited:
        """The end of a job of which nothing ever ran."""
        now = time.time_ns() // 1_000_000
        empty = store.put_file(Path(os.devnull))
        event = JobExited(
            lease=self.lease,
            job=self.job,
            outcome=outcome,
            exit_code=127,
            detail=detail,
            outputs=(),
            stdout=FileRef(path="stdout", sha256=empty, size=0),
            stderr=FileRef(path="stderr", sha256=empty, size=0),
            log_cut=False,
            started_at=now,
            ended_at=now,
        )
        self.record(event)
        return event

    def record(self, event: JobExited) -> None:
        """Whoever asks again is told the same."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace(self.folder / "exited.json", to_json(event))

    def _keep_log(self, stream: str, store: Artifacts, details: list[str]) -> FileRef:
        path = self.log(stream)
        path.touch()
        try:
            sha256 = store.put_file(path)
        except ArtifactRejected as rejected:
            details.append(f"{stream} was not kept: {rejected}")
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return FileRef(path=stream, sha256=sha256, size=path.stat().st_size)


@dataclass(frozen=True, slots=True)
class LeaseFolders:
    """Where leases and their jobs lie."""

    root: Path

    def lease(self, lease: LeaseKey) -> Path:
        """A lease's folder, made or not."""
        return self.root / lease.id.raw.hex()[:24]

    def job(self, lease: LeaseKey, job: Digest) -> JobFolder:
        """A job's folder, made or not."""
        name = job.raw.hex()[:24]
        return JobFolder(
            self.lease(lease) / "jobs" / name, self.disk(lease) / "jobs" / name, lease, job
        )

    def jobs(self, lease: LeaseKey) -> list[JobFolder]:
        """The jobs of a lease that were started."""
        return [
            self.job(lease, from_json((folder / "spec.json").read_bytes(), JobSpec).id)
            for folder in sorted((self.lease(lease) / "jobs").glob("*"))
            if (folder / "spec.json").is_file()
        ]

    def keep_report(self, report: RuntimeReport) -> None:
        """What was prepared for a lease: told again after a restart, word for word."""
        replace(self.lease(report.lease) / "report.json", to_json(report))

    def report(self, lease: LeaseKey) -> RuntimeReport | None:
        """What was prepared for a lease, if it was."""
        path = self.lease(lease) / "report.json"
        return from_json(path.read_bytes(), RuntimeReport) if path.is_file() else None

    def reports(self) -> list[RuntimeReport]:
        """What was prepared and not removed."""
        paths = sorted(self.root.glob("*/report.json"))
        return [from_json(path.read_bytes(), RuntimeReport) for path in paths]

    def disk(self, lease: LeaseKey) -> Path:
        """Where all that a lease's jobs write lies: one bound for all of it."""
        return self.lease(lease) / "disk"

    def checkpoints(self, lease: LeaseKey) -> Path:
        """A folder that all jobs of a lease share."""
        return self.disk(lease) / "checkpoints"


def environment_of(
    spec: JobSpec, *, gpus: int, path: str, temporary: str, checkpoints: str
) -> dict[str, str]:
    """What a job sees: a fixed list, its own variables and ours, and never the provider's."""
    ends_at = int(time.time()) + spec.runtime_s_max
    return {
        "PATH": path,
        "HOME": temporary,
        "TMPDIR": temporary,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": str(spec.seed % 2**32),
        **spec.environment,
        "CLOUD_GPU_JOB_ID": str(spec.id),
        "CLOUD_GPU_SEED": str(spec.seed),
        "CLOUD_GPU_RANK": "0",
        "CLOUD_GPU_NODES": "1",
        "CLOUD_GPU_GPUS": str(gpus),
        "CLOUD_GPU_MAIN_ADDRESS": "127.0.0.1",
        "CLOUD_GPU_DEADLINE": str(ends_at),
        "CLOUD_GPU_CHECKPOINT_DIR": checkpoints,
        "CLOUD_GPU_RESUME": "0",
    }


def fingerprint_of(runtime: str, image: str) -> str:
    """What an audit must hold equal: runtime, image, interpreter, machine type and packages."""
    words = [runtime, image, platform.python_version(), platform.machine()]
    for name in _FINGERPRINTED:
        try:
            words.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            words.append(f"no {name}")
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]


def replace(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut.

    Two processes may write the same at once: a job's supervisor and the daemon that started it.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
