"""A node of a few lines: it keeps the protocol, runs commands from a script, and can misbehave.

Not a provider: it decides nothing, knows one machine, and closes when it is asked to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cloud_gpu.protocol import messages as said
from cloud_gpu.protocol.calls import Begin, CloseBatch, Closing
from cloud_gpu.protocol.chain_events import (
    ChainEvent,
    LeaseClosed,
    LeaseOpened,
    LeaseStarted,
    LeaseStopped,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.hardware import HardwareProfile
from cloud_gpu.protocol.identity import LocalKey, NodeBinding, PeerId
from cloud_gpu.protocol.job import (
    FileRef,
    JobOutcome,
    JobResult,
    JobSpec,
    JobState,
    SignedJobResult,
)
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.orders import Advert, Ask, SignedAdvert
from cloud_gpu.protocol.signing import Domain, Signed, sign, state
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount
from cloud_gpu.protocol.values import Address
from cloud_gpu.protocol.voucher import Accept, Ready, Voucher
from cloud_gpu.protocol.voucher import Final as FinalWord

_FAR_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a command does, for a script."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What it writes, by path."""
    takes_s: float = 0.1


Script = Callable[[JobSpec, Mapping[str, bytes]], Said]
"""(job, its input files by path) -> what it does."""


@dataclass(slots=True, kw_only=True)
class Faults:
    """How the node misbehaves."""

    never_ready: bool = False
    shows: HardwareProfile | None = None
    """The machine that its Ready describes, if another than was advertised."""
    never_begins: bool = False
    silent: bool = False
    """It hears nothing and says nothing."""
    no_final: bool = False
    greedy: bool = False
    """Its Final asks for more than was promised."""
    forged_results: bool = False
    refuses_jobs: Rejection | None = None


@dataclass(slots=True)
class _Work:
    terms: LeaseTerms
    ready: Signed[Ready]
    report: said.RuntimeReport
    accept: Signed[Accept] | None = None
    voucher: Signed[Voucher] | None = None
    started_at: int = 0
    ended: bool = False
    peer: PeerId | None = None
    results: dict[bytes, SignedJobResult] = field(default_factory=dict)
    running: dict[bytes, JobSpec] = field(default_factory=dict)
    vouchers: list[tuple[int, TokenAmount]] = field(default_factory=list)
    """(Unix milliseconds, amount) of every voucher that came."""


class PretendNode:
    """One machine's node."""

    def __init__(
        self,
        *,
        peer: PeerId,
        wallet: LocalKey,
        key: LocalKey,
        domain: Domain,
        product: int,
        price: Price,
        profile: HardwareProfile,
        matcher: Address,
        script: Script,
        now: Callable[[], int],
        transact: Callable[[Begin | CloseBatch], None],
        send: Callable[[PeerId, said.Message], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`now` gives Unix milliseconds; `later` calls back after so many seconds."""
        self.peer, self.profile, self.faults = peer, profile, Faults()
        self._wallet, self.key, self._domain = wallet, key, domain
        self._product, self._price, self.matcher = product, price, matcher
        self._script, self._now, self._transact = script, now, transact
        self._send, self._later = send, later
        self._seq = 0
        self._open: LeaseKey | None = None
        self.works: dict[LeaseKey, _Work] = {}
        self.files: dict[str, bytes] = {}
        """Its artefact store, by sha256."""

    @property
    def machine(self) -> MachineKey:
        """Its machine."""
        return MachineKey(provider=self._wallet.address, index=0)

    def advert(self, at: int) -> SignedAdvert | None:
        """Its ask, with everything; None while its machine is let. `at` in Unix seconds."""
        if self._open is not None:
            return None
        ask = Ask(
            provider=self._wallet.address,
            index=0,
            seq=self._seq + 1,
            product=self._product,
            min_price_per_hour=self._price,
            min_duration=1,
            max_duration=_FAR_S * 7,
            start_by=at + 600,
            matcher=self.matcher,
            max_fee_bps=BasisPoints(1_000),
        )
        binding = NodeBinding(
            provider=self._wallet.address, node_key=self.key.address, peer=self.peer
        )
        advert = Advert(
            ask=sign(ask, self._domain, self.key),
            profile=self.profile,
            peer=self.peer,
            addresses=(f"/memory/{self.peer}/p2p/{self.peer}",),
            binding=state(binding, self._domain, self._wallet, nonce=0, expiry=at + 30 * _FAR_S),
        )
        return state(advert, self._domain, self.key, nonce=ask.seq, expiry=at + 600)

    # The chain.

    def on_chain(self, event: ChainEvent) -> None:
        """Something happened to a lease."""
        match event:
            case LeaseOpened(terms=terms) if terms.key.machine == self.machine:
                self._seq, self._open = terms.key.seq, terms.key
                self.works[terms.key] = self._prepared(terms)
            case LeaseStarted(lease=lease, started_at=started_at) if lease in self.works:
                self.works[lease].started_at = started_at
            case LeaseStopped(lease=lease) if lease in self.works:
                self._close(self.works[lease])
            case LeaseClosed(lease=lease) if lease in self.works:
                self.works[lease].ended = True
                self._open = None
            case _:
                pass

    def _prepared(self, terms: LeaseTerms) -> _Work:
        profile = self.faults.shows or self.profile
        report = said.RuntimeReport(
            lease=terms.key,
            profile=profile,
            runtime="process",
            isolation=profile.isolation,
            image="",
            python="3.11",
        )
        key = terms.key
        ready = Ready(
            provider=key.provider, index=key.index, seq=key.seq, runtime_hash=report.digest
        )
        return _Work(terms, sign(ready, self._domain, self.key), report)

    def _close(self, work: _Work) -> None:
        if work.voucher is not None and not self.faults.silent and not work.ended:
            closing = Closing(voucher=work.voucher, final=self._final(work))
            self._transact(CloseBatch(closings=(closing,)))

    def _final(self, work: _Work) -> Signed[FinalWord]:
        assert work.voucher is not None
        amount = work.voucher.payload.amount
        if self.faults.greedy:
            amount += TokenAmount(1)
        key = work.terms.key
        final = FinalWord(provider=key.provider, index=key.index, seq=key.seq, amount=amount)
        return sign(final, self._domain, self.key)

    # Messages.

    def on_message(self, peer: PeerId, message: said.Message) -> None:
        """A peer said something."""
        work = self.works.get(said.lease_of(message))
        if self.faults.silent:
            return
        if work is None:
            unknown = Rejection(reason=RejectReason.UNKNOWN_LEASE, field="lease")
            self._send(peer, said.Declined(lease=said.lease_of(message), rejection=unknown))
            return
        match message:
            case said.OpenSession():
                work.peer = peer
                if self.faults.never_ready:
                    self._send(peer, said.Preparing(lease=work.terms.key, detail="still pulling"))
                else:
                    self._send(peer, said.ReadyOffered(ready=work.ready, report=work.report))
            case said.AcceptGiven(accept=accept):
                if work.accept is None and not self.faults.never_begins:
                    self._transact(Begin(ready=work.ready, accept=accept))
                work.accept = accept
            case said.VoucherGiven(voucher=voucher):
                self._take_voucher(work, peer, voucher)
            case said.CloseAsked():
                if not self.faults.no_final and work.voucher is not None:
                    self._send(peer, said.FinalOffered(final=self._final(work)))
            case _:
                self._on_job(work, peer, message)

    def _take_voucher(self, work: _Work, peer: PeerId, voucher: Signed[Voucher]) -> None:
        work.vouchers.append((self._now(), voucher.payload.amount))
        if work.voucher is None or voucher.payload.amount > work.voucher.payload.amount:
            work.voucher = voucher
        held = work.voucher.payload.amount
        told = said.VoucherAcknowledged(lease=work.terms.key, amount=held, paused=False)
        self._send(peer, told)

    def _on_job(self, work: _Work, peer: PeerId, message: said.Message) -> None:
        lease = work.terms.key
        match message:
            case said.JobSubmitted(spec=statement):
                job = statement.body.id
                if self.faults.refuses_jobs is not None:
                    refusal = self.faults.refuses_jobs
                    self._send(peer, said.Declined(lease=lease, rejection=refusal, job=job))
                elif job.raw in work.results:
                    self._send(peer, said.JobFinished(result=work.results[job.raw]))
                else:
                    if job.raw not in work.running:
                        self._begin_job(work, statement.body)
                    self._send(peer, said.JobReported(lease=lease, job=job, state=JobState.RUNNING))
            case said.JobAsked(job=job):
                if job.raw in work.results:
                    self._send(peer, said.JobFinished(result=work.results[job.raw]))
                elif job.raw in work.running:
                    self._send(peer, said.JobReported(lease=lease, job=job, state=JobState.RUNNING))
                else:
                    unknown = Rejection(reason=RejectReason.UNKNOWN_JOB, field="job")
                    self._send(peer, said.Declined(lease=lease, rejection=unknown, job=job))
            case said.JobKilled(job=job):
                if job.raw in work.running:
                    self._finish(work, work.running[job.raw], Said(code=-9), JobOutcome.KILLED)
            case _:
                pass

    # Jobs.

    def _begin_job(self, work: _Work, spec: JobSpec) -> None:
        work.running[spec.id.raw] = spec
        inputs = {file.path: self.files[file.sha256] for file in spec.inputs}
        result = self._script(spec, inputs)
        half = result.stdout.encode()[: len(result.stdout) // 2]
        if half and work.peer is not None:
            printed = said.JobPrinted(
                lease=work.terms.key, job=spec.id, stream="stdout", offset=0, chunk=half
            )
            self._send(work.peer, printed)
        self._later(result.takes_s, lambda: self._finish(work, spec, result, JobOutcome.EXITED))

    def _finish(self, work: _Work, spec: JobSpec, result: Said, outcome: JobOutcome) -> None:
        if work.running.pop(spec.id.raw, None) is None or work.ended or self.faults.silent:
            return
        at = self._now()
        body = JobResult(
            lease=work.terms.key,
            job=spec.id,
            outcome=outcome,
            exit_code=result.code,
            outputs=tuple(self._keep(path, found) for path, found in result.files.items()),
            stdout=self._keep("stdout", result.stdout.encode()),
            stderr=self._keep("stderr", result.stderr.encode()),
            started_at=at - int(result.takes_s * 1000),
            ended_at=at,
            used=GpuSeconds(len(self.profile.gpus)),
        )
        signer = self._wallet if self.faults.forged_results else self.key
        if self.faults.forged_results:
            signer = LocalKey(b"\x66" * 32)
        statement = state(body, self._domain, signer, nonce=spec.number, expiry=at // 1000 + _FAR_S)
        work.results[spec.id.raw] = statement
        if work.peer is not None:
            self._send(work.peer, said.JobFinished(result=statement))

    def _keep(self, path: str, content: bytes) -> FileRef:
        sha256 = hashlib.sha256(content).hexdigest()
        self.files[sha256] = content
        return FileRef(path=path, sha256=sha256, size=len(content))

    # What a test makes it do.

    def quit(self, lease: LeaseKey, reason: LeaseEndReason, detail: str) -> None:
        """End the work for a lease, and say so."""
        work = self.works[lease]
        if work.peer is not None:
            self._send(work.peer, said.LeaseEndedHere(lease=lease, reason=reason, detail=detail))

    def forget_jobs(self) -> None:
        """As after a restart without a journal."""
        for work in self.works.values():
            work.running.clear()
            work.results.clear()
