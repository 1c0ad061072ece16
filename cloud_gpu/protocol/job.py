"""A job inside a lease: content-addressed request, result and usage.

A job is its digest: image, command, inputs, environment, seed and comparison rule. A run is one
attempt at it. Files are named by sha256 (the artefact store's address), documents by keccak.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import ClassVar, Final, NewType

from msgspec import field

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Statement
from cloud_gpu.protocol.units import GpuSeconds
from cloud_gpu.protocol.values import Digest, Value, keccak256

JobId = NewType("JobId", Digest)

_SHA256 = re.compile(r"[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class FileRef(Value, frozen=True, kw_only=True):
    """A file of the job's folder, by content."""

    path: str
    """Relative, POSIX, inside the job's folder."""
    sha256: str
    size: int
    """Bytes."""
    executable: bool = False

    def __post_init__(self) -> None:
        check_job_path("file.path", self.path)
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"file.sha256 is 64 lower-case hex digits, found {self.sha256[:80]!r}")
        if not 0 <= self.size <= limits.ARTIFACT_BYTES_MAX:
            raise ValueError(f"file.size is 0 to {limits.ARTIFACT_BYTES_MAX}, found {self.size}")


def check_job_path(what: str, path: str) -> None:
    """Raise ValueError unless the path is relative and stays inside the job's folder."""
    parts = PurePosixPath(path).parts
    if (
        not path
        or len(path) > 512
        or path.startswith("/")
        or ".." in parts
        or "\0" in path
        or "\\" in path
    ):
        raise ValueError(f"{what} is a relative path inside the job's folder, found {path[:80]!r}")


class JobSpec(Value, frozen=True, kw_only=True):
    """What to run, signed by the buyer's side as a statement."""

    KIND: ClassVar[str] = "cloud-gpu/job-spec"
    lease: LeaseKey
    number: int
    """Counts the jobs of a lease from 1: the same command twice is two jobs."""
    image: str = ""
    """Image digest "sha256:…"; empty: the runtime's default image."""
    command: tuple[str, ...]
    inputs: tuple[FileRef, ...] = ()
    outputs: tuple[str, ...] = ()
    """Paths, folders or glob patterns below the job's folder to return; empty: what changed."""
    environment: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    comparison: str = "bytes"
    """Comparator class by which an audit compares results."""
    runtime_s_max: int
    egress: tuple[str, ...] = ()
    """Host names the job may reach through the proxy."""

    def __post_init__(self) -> None:
        if not self.command or sum(map(len, self.command)) > limits.JOB_COMMAND_BYTES_MAX:
            raise ValueError(
                f"job.command has 1 to {limits.JOB_COMMAND_BYTES_MAX} characters in all"
            )
        if any("\0" in word for word in self.command):
            raise ValueError("job.command holds no NUL character")
        if len(self.inputs) > limits.JOB_FILES_MAX or len(self.outputs) > limits.JOB_FILES_MAX:
            raise ValueError(
                f"job.inputs and job.outputs hold at most {limits.JOB_FILES_MAX} files"
            )
        if len({file.path for file in self.inputs}) != len(self.inputs):
            raise ValueError("job.inputs names one path twice")
        for pattern in self.outputs:
            check_job_path("job.outputs", pattern)
        if len(self.environment) > limits.JOB_ENVIRONMENT_MAX:
            raise ValueError(
                f"job.environment holds at most {limits.JOB_ENVIRONMENT_MAX} variables"
            )
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"job.environment: {name[:80]!r} is no variable name")
        if not 0 < self.runtime_s_max <= limits.JOB_RUNTIME_S_MAX:
            raise ValueError(f"job.runtime_s_max is 1 to {limits.JOB_RUNTIME_S_MAX} s")

    @property
    def id(self) -> JobId:
        """keccak256 of the canonical JSON."""
        return JobId(keccak256(to_json(self)))


SignedJobSpec = Statement[JobSpec]


class JobOutcome(StrEnum):
    """How a run ended."""

    EXITED = "exited"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"
    """By the buyer, or because its lease ended."""
    FAILED_TO_START = "failed-to-start"


class ResultContent(Value, frozen=True, kw_only=True):
    """What a run computed, without when, where or in which lease: what two runs are compared by."""

    outcome: JobOutcome
    exit_code: int
    outputs: tuple[FileRef, ...] = ()

    @property
    def digest(self) -> Digest:
        """keccak256 over outcome, exit code and the outputs' paths and sha256, by path."""
        files = sorted((file.path, file.sha256) for file in self.outputs)
        return keccak256(to_json((self.outcome, self.exit_code, files)))


class JobResult(Value, frozen=True, kw_only=True):
    """What a run returned, signed by the node as a statement."""

    KIND: ClassVar[str] = "cloud-gpu/job-result"
    lease: LeaseKey
    job: Digest
    outcome: JobOutcome
    exit_code: int
    detail: str = ""
    outputs: tuple[FileRef, ...] = ()
    stdout: FileRef
    stderr: FileRef
    log_cut: bool = False
    """The job printed more than the limit; the beginning is kept."""
    started_at: int
    ended_at: int
    """Unix milliseconds, on the node's clock."""
    used: GpuSeconds
    environment_fingerprint: str = ""
    """Runtime, image, interpreter: what an audit must hold equal."""

    @property
    def digest(self) -> Digest:
        """Of what the job computed, not of when or where: outcome, code and outputs' contents."""
        content = (
            self.job,
            self.outcome,
            self.exit_code,
            [(f.path, f.sha256) for f in self.outputs],
        )
        return keccak256(to_json(content))

    @property
    def content(self) -> ResultContent:
        """What a re-execution in another lease must equal."""
        return ResultContent(outcome=self.outcome, exit_code=self.exit_code, outputs=self.outputs)


SignedJobResult = Statement[JobResult]


class JobState(StrEnum):
    """A job's life on the node."""

    RECEIVED = "received"
    """Its spec is accepted; inputs are on their way."""
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"


class JobStep(StrEnum):
    """What happens to a job."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    FINISH = "finish"


JOB_TABLE: Final = MappingProxyType(
    {
        (JobState.RECEIVED, JobStep.START): JobState.RUNNING,
        (JobState.RECEIVED, JobStep.FINISH): JobState.FINISHED,
        (JobState.RUNNING, JobStep.PAUSE): JobState.PAUSED,
        (JobState.RUNNING, JobStep.FINISH): JobState.FINISHED,
        (JobState.PAUSED, JobStep.RESUME): JobState.RUNNING,
        (JobState.PAUSED, JobStep.FINISH): JobState.FINISHED,
    }
)
"""(state, step) -> state; a missing entry is refused."""
