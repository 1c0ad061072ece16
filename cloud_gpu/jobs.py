"""One command in a lease, as a user holds it: its output, its result, its end by hand.

The result is the one that the node signed; what came before it is a preview of the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Protocol

from cloud_gpu.outcomes import RunResult
from cloud_gpu.protocol import notices as told
from cloud_gpu.protocol.errors import RunError
from cloud_gpu.protocol.events import BuyerEvent, KillWanted
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobResult, JobSpec
from cloud_gpu.protocol.values import Digest

Echo = Callable[[str, bytes], None]
"""(stream, bytes): show what a job prints, as it comes."""


class OfLease(Protocol):
    """What a job needs of its lease."""

    def post(self, event: BuyerEvent) -> None:
        """Tell the party a fact."""

    async def wait(self) -> None:
        """Until something changed."""

    async def read(self, file: FileRef) -> bytes:
        """A small file of the node."""

    @property
    def is_taken_back(self) -> bool:
        """Whether its provider's notice has run out and ended it."""

    def interruption(self, detail: str) -> Exception:
        """Its end, as an error of a job that it cut short."""

    def refusal(self, refused: told.JobRefused) -> Exception:
        """Why a job has no result."""

    def result_of(self, result: JobResult, whole: Mapping[str, bytes]) -> RunResult:
        """A node's result in a user's terms."""


class Job:
    """One command in a lease, running or ended."""

    def __init__(self, lease: OfLease, spec: JobSpec, echo: Echo | None) -> None:
        self._lease, self.spec, self._echo = lease, spec, echo
        self._printed = {"stdout": bytearray(), "stderr": bytearray()}
        self._result: JobResult | None = None
        self._refused: told.JobRefused | None = None
        self._final: RunResult | None = None

    @property
    def id(self) -> Digest:
        """The digest of its spec."""
        return self.spec.id

    @property
    def running(self) -> bool:
        """Whether its result is still to come."""
        return self._result is None and self._refused is None

    def take(self, notice: told.JobOutput | told.JobDone | told.JobRefused) -> None:
        """The party told something about it."""
        match notice:
            case told.JobOutput():
                self._printed[notice.stream] += notice.chunk
                if self._echo is not None:
                    self._echo(notice.stream, notice.chunk)
            case told.JobDone():
                self._result = self._result or notice.result.body
            case told.JobRefused():
                self._refused = notice

    async def piece(self, stream: str, after: int) -> bytes:
        """What it printed after so many bytes, once there is some; empty: that was all."""
        while len(self._printed[stream]) <= after and self.running:
            await self._lease.wait()
        if len(self._printed[stream]) > after or self._result is None:
            return bytes(self._printed[stream][after:])
        return (await self._whole(self._result))[stream][after:]

    async def wait(self, check: bool = False) -> RunResult:
        """Its result. Raises `LeaseInterrupted`, `Rejected`, and with `check` `RunError`."""
        while self._result is None:
            if self._refused is not None:
                raise self._lease.refusal(self._refused)
            await self._lease.wait()
        if self._final is None:
            whole = await self._whole(self._result)
            self._show_rest(whole)
            self._final = self._lease.result_of(self._result, whole)
        if check and self._final.outcome is JobOutcome.KILLED and self._lease.is_taken_back:
            raise self._lease.interruption(f"{self._final}; `get` fetches what it wrote until then")
        if check and (self._final.code or self._final.outcome is not JobOutcome.EXITED):
            raise RunError(self._final.code or 1, self._final.tail)
        return self._final

    async def kill(self) -> None:
        """End it now; `wait` then tells how it ended."""
        if self.running:
            self._lease.post(KillWanted(job=self.id))

    def _show_rest(self, whole: Mapping[str, bytes]) -> None:
        for stream, text in whole.items():
            rest = text[len(self._printed[stream]) :]
            self._printed[stream] += rest
            if rest and self._echo is not None:
                self._echo(stream, rest)

    async def _whole(self, result: JobResult) -> dict[str, bytes]:
        """Both streams as the node signed them; what was told on the way is only a preview."""
        whole = {}
        for stream, file in (("stdout", result.stdout), ("stderr", result.stderr)):
            printed = bytes(self._printed[stream])
            is_here = hashlib.sha256(printed).hexdigest() == file.sha256
            whole[stream] = printed if is_here else await self._lease.read(file)
        return whole
