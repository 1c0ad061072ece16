"""Jobs inside a lease, as the buyer's side follows them: inputs, request, output, result.

Everything may be lost on the way, so a job is asked for again until the node knows it, and asked
about again until its result is here. What a job prints is told once, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.effects import BuyerEffect, PushInputs, Send, Tell
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.identity import KeyRole, OnlyKey, PeerId
from cloud_gpu.protocol.job import JobSpec, SignedJobResult, SignedJobSpec
from cloud_gpu.protocol.messages import (
    Declined,
    JobAsked,
    JobFinished,
    JobKilled,
    JobPrinted,
    JobReported,
    JobSubmitted,
)
from cloud_gpu.protocol.notices import JobDone, JobOutput, JobRefused
from cloud_gpu.protocol.signing import verify_statement
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest
from cloud_gpu.rhythm import Rhythm
from cloud_gpu.spending import Purse

STREAMS: Final = ("stdout", "stderr")
_PUSHES_MAX: Final = 5
"""A node that will not take the inputs so often will not take them at all."""

_PASSING: Final = frozenset({RejectReason.WRONG_STATE, RejectReason.RATE_LIMITED})
"""Refusals that time mends: the lease's beginning has not reached the node, or we are too fast."""

_MENDED_MS: Final = 30_000
"""What has not passed by then will not pass."""


class _Step(Enum):
    PUSHING = auto()
    ASKED_FOR = auto()
    KNOWN = auto()


@dataclass(slots=True)
class _Run:
    signed: SignedJobSpec
    step: _Step = _Step.PUSHING
    again_at: Instant = 0
    pushes: int = 0
    kill: bool = False
    refused_at: Instant = 0
    """Since when the node refuses it for a reason that may pass."""
    told: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))


class Runs:
    """The unfinished jobs of one running lease."""

    def __init__(
        self, *, node: PeerId, keys: OnlyKey, purse: Purse, rhythm: Rhythm, expiry: int
    ) -> None:
        self._node, self._keys, self._purse, self._rhythm = node, keys, purse, rhythm
        self._expiry = expiry
        self._runs: dict[Digest, _Run] = {}

    @property
    def unfinished(self) -> tuple[Digest, ...]:
        """Jobs whose result is not here."""
        return tuple(self._runs)

    @property
    def deadline(self) -> Instant | None:
        """When `on_time` has something to do."""
        return min((r.again_at for r in self._runs.values()), default=None)

    def want(self, spec: JobSpec, now: Instant) -> list[BuyerEffect]:
        """Take a job up; asked for twice, it is one job."""
        if spec.id in self._runs:
            return []
        run = self._runs[spec.id] = _Run(self._purse.job(spec, expiry=self._expiry))
        return self._push(run, now)

    def kill(self, job: Digest, now: Instant) -> list[BuyerEffect]:
        """End a job; its result still comes."""
        if run := self._runs.get(job):
            run.kill = True
            run.again_at = now
        return self.on_time(now)

    def pushed(self, job: Digest, now: Instant) -> list[BuyerEffect]:
        """The node holds all inputs of a job."""
        run = self._runs.get(job)
        if run is None or run.step is not _Step.PUSHING:
            return []
        run.step, run.again_at = _Step.ASKED_FOR, now
        return self.on_time(now)

    def not_pushed(self, job: Digest, detail: str, now: Instant) -> list[BuyerEffect]:
        """Some inputs did not reach the node: try again, but not for ever."""
        run = self._runs.get(job)
        if run is None or run.step is not _Step.PUSHING:
            return []
        if run.pushes < _PUSHES_MAX:
            run.again_at = now + self._rhythm.resend * run.pushes
            return []
        del self._runs[job]
        return [Tell(notice=JobRefused(job=job, detail=f"its inputs were not taken: {detail}"))]

    def on_time(self, now: Instant) -> list[BuyerEffect]:
        """Ask again for what is not known to have arrived."""
        effects: list[BuyerEffect] = []
        for run in self._runs.values():
            if now >= run.again_at:
                effects += self._again(run, now)
        return effects

    def _again(self, run: _Run, now: Instant) -> list[BuyerEffect]:
        spec = run.signed.body
        if run.step is _Step.PUSHING:
            return self._push(run, now)
        run.again_at = now + self._rhythm.resend
        if run.step is _Step.ASKED_FOR:
            return [Send(peer=self._node, message=JobSubmitted(spec=run.signed))]
        asked = JobAsked(
            lease=spec.lease,
            job=spec.id,
            stdout_from=run.told["stdout"],
            stderr_from=run.told["stderr"],
        )
        sent: list[BuyerEffect] = [Send(peer=self._node, message=asked)]
        if run.kill:
            killed = JobKilled(lease=spec.lease, job=spec.id)
            sent.insert(0, Send(peer=self._node, message=killed))
        return sent

    def _push(self, run: _Run, now: Instant) -> list[BuyerEffect]:
        run.pushes += 1
        # The adapter answers in the end, however large the files are; should it not, ask again.
        run.again_at = now + 600_000
        return [PushInputs(peer=self._node, spec=run.signed.body)]

    def reported(self, message: JobReported, now: Instant) -> list[BuyerEffect]:
        """The node knows the job."""
        self._known(message.job, now)
        return []

    def printed(self, message: JobPrinted, now: Instant) -> list[BuyerEffect]:
        """A piece of output: tell what is new of it; ask for what is missing before it."""
        run = self._known(message.job, now)
        if run is None or message.stream not in STREAMS:
            return []
        told = run.told[message.stream]
        if message.offset > told:
            run.again_at = min(run.again_at, now + self._rhythm.resend // 4)
            return []
        new = message.chunk[told - message.offset :][: limits.JOB_LOG_BYTES_MAX - told]
        if not new:
            return []
        run.told[message.stream] = told + len(new)
        return [Tell(notice=JobOutput(job=message.job, stream=message.stream, chunk=new))]

    def finished(self, message: JobFinished, at: int) -> list[BuyerEffect]:
        """A result: taken only with the node's signature under it; `at` in Unix seconds."""
        result = message.result
        run = self._runs.get(result.body.job)
        if run is None or result.body.lease != run.signed.body.lease:
            return []
        if not self._is_the_nodes(result, at):
            return []  # asked about again; a node that cannot sign its results is paid for nothing
        del self._runs[result.body.job]
        longest = max(result.body.stdout.size, result.body.stderr.size)
        if longest > limits.JOB_LOG_BYTES_MAX:
            detail = f"its node signed for {longest} bytes of output, more than a job may print"
            return [Tell(notice=JobRefused(job=result.body.job, detail=detail))]
        return [Tell(notice=JobDone(result=result))]

    def declined(self, message: Declined, now: Instant) -> list[BuyerEffect]:
        """The node refuses something about a job."""
        job = message.job
        run = self._runs.get(job) if job else None
        if run is None or job is None:
            return []
        reason = message.rejection.reason
        if reason is RejectReason.UNKNOWN_JOB:
            # It lost the job, and maybe its files, in a restart: hand both over again.
            if run.step is _Step.KNOWN or run.pushes < _PUSHES_MAX:
                run.step, run.again_at = _Step.PUSHING, now
            return self.on_time(now)
        run.refused_at = run.refused_at or now
        if reason in _PASSING and now < run.refused_at + _MENDED_MS:
            run.again_at = max(run.again_at, now + self._rhythm.resend)
            return []
        del self._runs[job]
        rejection = message.rejection
        return [Tell(notice=JobRefused(job=job, detail=str(rejection), rejection=rejection))]

    def abandon(self, detail: str) -> list[BuyerEffect]:
        """The lease is gone: no result will come any more."""
        lost: list[BuyerEffect] = [
            Tell(notice=JobRefused(job=job, detail=detail)) for job in self._runs
        ]
        self._runs.clear()
        return lost

    def _known(self, job: Digest, now: Instant) -> _Run | None:
        run = self._runs.get(job)
        if run is not None and run.step is not _Step.PUSHING:
            run.step, run.refused_at = _Step.KNOWN, 0
            if not run.kill:
                run.again_at = now + self._rhythm.resend
        return run

    def _is_the_nodes(self, result: SignedJobResult, at: int) -> bool:
        (account, _, role) = self._keys.held
        assert role is KeyRole.NODE
        found = verify_statement(
            result, self._purse.domain, account=account, keys=self._keys, role=role, at=at
        )
        return found is None
