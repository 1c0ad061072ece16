"""The jobs of one lease: which are taken, where each is, and the signed result it returned.

It follows `JOB_TABLE`; whether work is paid for and running is the lease's to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import JobExited
from cloud_gpu.protocol.hardware import Isolation
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.job import (
    JOB_TABLE,
    JobResult,
    JobSpec,
    JobState,
    JobStep,
    SignedJobResult,
)
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.signing import Domain, state
from cloud_gpu.protocol.units import unix_seconds
from cloud_gpu.protocol.values import Digest
from node.metering import gpu_seconds

JOBS_MAX: Final = 4_096
"""Of one lease: their results are kept until its claims end."""

UNFINISHED_MAX: Final = 16
"""At once: each holds a folder, and processes once it runs."""

FILES_MAX: Final = 65_536
"""Named by all jobs of a lease, so that no buyer fills the node's memory with names."""

_RESULT_LIFE_S: Final = 30 * 24 * 3600


@dataclass(slots=True)
class _Run:
    spec: JobSpec | None
    """Until it finished: its command and environment are of no use afterwards."""
    number: int
    inputs: tuple[str, ...]
    state: JobState = JobState.RECEIVED
    is_asked: bool = False
    """The runtime was told to start it."""
    result: SignedJobResult | None = None


class JobBook:
    """The jobs that one lease has taken."""

    def __init__(self) -> None:
        self._runs: dict[Digest, _Run] = {}
        self._numbers: set[int] = set()
        self._files = 0

    def take(self, spec: JobSpec, report: RuntimeReport) -> Rejection | None:
        """Enter a job whose signature was checked; again is no change. Or say why not."""
        if spec.id in self._runs:
            return None
        refusal = self._refusal(spec, report)
        if refusal is None:
            inputs = tuple(file.sha256 for file in spec.inputs)
            self._runs[spec.id] = _Run(spec=spec, number=spec.number, inputs=inputs)
            self._numbers.add(spec.number)
            self._files += len(inputs)
        return refusal

    def _refusal(self, spec: JobSpec, report: RuntimeReport) -> Rejection | None:
        unfinished = sum(run.state is not JobState.FINISHED for run in self._runs.values())
        if not 1 <= spec.number <= JOBS_MAX or spec.number in self._numbers:
            return Rejection(
                reason=RejectReason.STALE_SEQUENCE,
                field="job.number",
                found=str(spec.number),
                needed=f"1 to {JOBS_MAX}, each once in a lease",
                next="Count the jobs of a lease up from 1.",
            )
        if unfinished >= UNFINISHED_MAX:
            return Rejection(
                reason=RejectReason.RATE_LIMITED,
                field="lease.jobs",
                found=f"{unfinished} jobs that have not finished",
                needed=f"at most {UNFINISHED_MAX}",
                next="Wait for a job to finish, or kill one.",
            )
        if self._files + len(spec.inputs) > FILES_MAX:
            return Rejection(
                reason=RejectReason.RATE_LIMITED,
                field="lease.files",
                found=f"{self._files} files in the jobs so far",
                needed=f"at most {FILES_MAX} in one lease",
                next="Open another lease, or pack small files into one.",
            )
        if spec.egress and report.isolation is not Isolation.PROCESS:
            return Rejection(
                reason=RejectReason.RUNTIME_UNAVAILABLE,
                field="job.egress",
                found=", ".join(spec.egress)[:160],
                needed="no host: this node's containers have no network",
                next="Send what the job needs as inputs.",
            )
        return None

    def to_start(self) -> Iterator[JobSpec]:
        """Jobs that wait to be handed to the runtime; each is named once."""
        for run in self._runs.values():
            if run.spec is not None and not run.is_asked:
                run.is_asked = True
                yield run.spec

    def ask_again(self) -> None:
        """The runtime may have forgotten what it was told: unfinished jobs are named anew."""
        for run in self._runs.values():
            run.is_asked = False

    def step_all(self, step: JobStep) -> None:
        """Pause or resume what runs."""
        for job in self._runs:
            self._step(job, step)

    def started(self, job: Digest) -> None:
        """The runtime started it."""
        if job in self._runs:
            self._step(job, JobStep.START)

    def exited(
        self, event: JobExited, report: RuntimeReport, domain: Domain, key: Signer
    ) -> SignedJobResult | None:
        """The signed result of a run that ended, the same for the same event; None: not ours."""
        run = self._runs.get(event.job)
        if run is None:
            return None
        if run.result is None:
            self._step(event.job, JobStep.FINISH)
            result = JobResult(
                lease=event.lease,
                job=event.job,
                outcome=event.outcome,
                exit_code=event.exit_code,
                detail=event.detail,
                outputs=event.outputs,
                stdout=event.stdout,
                stderr=event.stderr,
                log_cut=event.log_cut,
                started_at=event.started_at,
                ended_at=event.ended_at,
                used=gpu_seconds(len(report.profile.gpus), event.started_at, event.ended_at),
                environment_fingerprint=report.fingerprint,
            )
            run.result = state(
                result,
                domain,
                key,
                nonce=run.number,
                expiry=unix_seconds(event.ended_at) + _RESULT_LIFE_S,
            )
            run.spec = None
            self._files += len(event.outputs)
        return run.result

    def state_of(self, job: Digest) -> JobState | None:
        """Where a job is; None: not taken here."""
        run = self._runs.get(job)
        return run.state if run else None

    def result_of(self, job: Digest) -> SignedJobResult | None:
        """The result of a finished job."""
        run = self._runs.get(job)
        return run.result if run else None

    def unfinished(self) -> list[Digest]:
        """Jobs without a result yet."""
        return [job for job, run in self._runs.items() if run.state is not JobState.FINISHED]

    def has_file(self, sha256: str) -> bool:
        """Whether some job took or returned a file with these bytes."""
        return any(sha256 in _files_of(run) for run in self._runs.values())

    def _step(self, job: Digest, step: JobStep) -> None:
        run = self._runs[job]
        run.state = JOB_TABLE.get((run.state, step), run.state)


def _files_of(run: _Run) -> Iterator[str]:
    yield from run.inputs
    if run.result is not None:
        body = run.result.body
        for file in (*body.outputs, body.stdout, body.stderr):
            yield file.sha256
