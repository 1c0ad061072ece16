"""What a buyer's side says about a lease, checked and taken in; junk is answered, never raised.

The overlay vouches for the peer that speaks, a signed `Access` binds that peer to the lease, and
each voucher, accept and job carries the buyer's own signature besides. Every message may come
twice: the second answer equals the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cloud_gpu.protocol.chain_events import LeaseOpened
from cloud_gpu.protocol.effects import KillJob, ProviderEffect, ReadOutput, Send
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import MessageReceived, ProviderEvent
from cloud_gpu.protocol.identity import KeyRing, KeyRole, PeerId
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.messages import (
    AcceptGiven,
    CloseAsked,
    Declined,
    FinalOffered,
    JobAsked,
    JobFinished,
    JobKilled,
    JobReported,
    JobSubmitted,
    Message,
    OpenSession,
    Preparing,
    VoucherGiven,
    lease_of,
)
from cloud_gpu.protocol.signing import Domain, Verified, verify, verify_statement
from cloud_gpu.protocol.units import Instant, unix_seconds
from cloud_gpu.protocol.values import Digest
from cloud_gpu.protocol.voucher import Voucher
from node.leases import CLOCK_SKEW_S, LeaseWork

BuyerMessage = (
    OpenSession | AcceptGiven | VoucherGiven | JobSubmitted | JobAsked | JobKilled | CloseAsked
)

OFFSET_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class Session:
    """One message's circumstances: who sent it, when, and who may sign for whom."""

    node: PeerId
    peer: PeerId
    domain: Domain
    keys: KeyRing
    now: Instant

    def receive(self, work: LeaseWork, message: BuyerMessage) -> Sequence[ProviderEffect]:
        """Take in one message about a lease that the node knows."""
        if isinstance(message, OpenSession):
            return self._open(work, message)
        if self.peer not in work.peers:
            return self.decline(
                work.key,
                Rejection(
                    reason=RejectReason.NOT_THE_BUYER,
                    field="peer",
                    found=self.peer,
                    needed="a peer that opened a session of this lease",
                    next="Send OpenSession first.",
                ),
            )
        work.is_peer_silent = False
        match message:
            case AcceptGiven():
                return self._accept(work, message)
            case VoucherGiven():
                return self._take_voucher(work, message)
            case JobSubmitted():
                return self._take_job(work, message)
            case JobAsked():
                return self._report_job(work, message)
            case JobKilled(job=job):
                if job in work.jobs.unfinished():
                    return [KillJob(lease=work.key, job=job)]
                return self._report_job(work, JobAsked(lease=work.key, job=job))
            case CloseAsked():
                return self._close(work)

    def reply(self, message: Message) -> list[ProviderEffect]:
        """To the peer that spoke."""
        return [Send(peer=self.peer, message=message)]

    def decline(
        self, lease: LeaseKey, rejection: Rejection, job: Digest | None = None
    ) -> list[ProviderEffect]:
        """Refuse what the peer sent."""
        return self.reply(Declined(lease=lease, rejection=rejection, job=job))

    def _open(self, work: LeaseWork, message: OpenSession) -> Sequence[ProviderEffect]:
        access = message.access
        refusal = verify_statement(
            access,
            self.domain,
            account=work.terms.buyer,
            keys=self.keys,
            role=KeyRole.SESSION,
            at=unix_seconds(self.now),
        )
        if refusal is None and (access.body.node, access.body.buyer_peer) != (self.node, self.peer):
            refusal = Rejection(
                reason=RejectReason.NOT_THE_BUYER,
                field="access",
                found=f"from {access.body.buyer_peer} to {access.body.node}"[:160],
                needed=f"from {self.peer} to {self.node}",
                next="Sign an Access that names both peers of this connection.",
            )
        if refusal is not None:
            return self.decline(work.key, refusal)
        work.bind(self.peer)
        work.is_peer_silent = False
        if work.ended is not None:
            return self.decline(work.key, _ended(work))
        if work.ready is None:
            detail = "the container is being prepared" if work.chain else "the opening is awaited"
            return self.reply(Preparing(lease=work.key, detail=detail))
        return self.reply(work.offer())

    def _accept(self, work: LeaseWork, message: AcceptGiven) -> Sequence[ProviderEffect]:
        if work.accept is not None:
            return self.reply(work.acknowledgement())
        if work.ended is not None or work.ready is None:
            return self.decline(work.key, _ended(work) if work.ended else _unready(work))
        at = unix_seconds(self.now)
        checked = verify(
            message.accept, self.domain, account=work.terms.buyer, keys=self.keys, at=at
        )
        if isinstance(checked, Rejection):
            return self.decline(work.key, checked)
        started_at = message.accept.payload.started_at
        latest = min(at + CLOCK_SKEW_S, work.terms.start_deadline)
        if not work.terms.opened_at <= started_at <= latest:
            return self.decline(
                work.key,
                Rejection(
                    reason=RejectReason.EXPIRED,
                    field="accept.started_at",
                    found=str(started_at),
                    needed=f"{work.terms.opened_at} to {latest}",
                    next="Sign an Accept with the chain's time now.",
                ),
            )
        work.accept, work.accepted_at = message.accept, self.now
        return self.reply(work.acknowledgement())

    def _take_voucher(self, work: LeaseWork, message: VoucherGiven) -> Sequence[ProviderEffect]:
        amount = message.voucher.payload.amount
        if amount > work.terms.cap:
            return self.decline(
                work.key,
                Rejection(
                    reason=RejectReason.CAP_OUT_OF_RANGE,
                    field="voucher.amount",
                    found=str(amount.value),
                    needed=f"at most the lease's cap {work.terms.cap.value}",
                    next="Sign a voucher within the cap.",
                ),
            )
        if amount > work.amount:
            checked = self._verify_voucher(work, message)
            if isinstance(checked, Rejection):
                return self.decline(work.key, checked)
            work.voucher = message.voucher
        return self.reply(work.acknowledgement())

    def _verify_voucher(
        self, work: LeaseWork, message: VoucherGiven
    ) -> Verified[Voucher] | Rejection:
        # A key that was good when the lease began pays for it to the end, revoked or not.
        at = work.started_at or unix_seconds(self.now)
        return verify(message.voucher, self.domain, account=work.terms.buyer, keys=self.keys, at=at)

    def _take_job(self, work: LeaseWork, message: JobSubmitted) -> Sequence[ProviderEffect]:
        spec = message.spec.body
        if (result := work.jobs.result_of(spec.id)) is not None:
            return self.reply(JobFinished(result=result))
        if not work.takes_work or work.report is None:
            refusal = _ended(work) if work.ended else _unready(work)
            return self.decline(work.key, refusal, spec.id)
        refused = verify_statement(
            message.spec,
            self.domain,
            account=work.terms.buyer,
            keys=self.keys,
            role=KeyRole.SESSION,
            at=unix_seconds(self.now),
        ) or work.jobs.take(spec, work.report)
        if refused is not None:
            return self.decline(work.key, refused, spec.id)
        job_state = work.jobs.state_of(spec.id)
        assert job_state is not None, f"job {spec.id} was taken and is not there"
        return self.reply(JobReported(lease=work.key, job=spec.id, state=job_state))

    def _report_job(self, work: LeaseWork, message: JobAsked) -> Sequence[ProviderEffect]:
        if (result := work.jobs.result_of(message.job)) is not None:
            return self.reply(JobFinished(result=result))
        job_state = work.jobs.state_of(message.job)
        if job_state is None:
            return self.decline(
                work.key,
                Rejection(
                    reason=RejectReason.UNKNOWN_JOB,
                    field="job",
                    found=str(message.job),
                    needed="a job that this lease has taken",
                    next="Submit it again.",
                ),
                message.job,
            )
        report = self.reply(JobReported(lease=work.key, job=message.job, state=job_state))
        if not (0 <= message.stdout_from < OFFSET_MAX and 0 <= message.stderr_from < OFFSET_MAX):
            return report
        read = ReadOutput(
            lease=work.key,
            job=message.job,
            stdout_from=message.stdout_from,
            stderr_from=message.stderr_from,
        )
        return [*report, read]

    def _close(self, work: LeaseWork) -> Sequence[ProviderEffect]:
        if work.voucher is None:
            return self.decline(work.key, _unready(work))
        ending = work.end(LeaseEndReason.STOPPED, self.now)
        return [*ending, *self.reply(FinalOffered(final=work.final()))]


def is_news(works: Mapping[LeaseKey, LeaseWork], peer: PeerId, message: object) -> bool:
    """Whether a message could change what is held: repeats and junk must not fill the disk."""
    if not isinstance(
        message, OpenSession | AcceptGiven | VoucherGiven | JobSubmitted | CloseAsked
    ):
        return False
    try:
        work = works.get(lease_of(message))
        if work is None or work.is_over:
            return False
        if isinstance(message, OpenSession):
            return peer not in work.peers
        if peer not in work.peers:
            return False
        if isinstance(message, AcceptGiven):
            return work.accept is None
        if isinstance(message, VoucherGiven):
            return message.voucher.payload.amount > work.amount
        if isinstance(message, JobSubmitted):
            return work.jobs.state_of(message.spec.body.id) is None
        return work.ended is None
    except (ValueError, OverflowError):
        return False  # it cannot be hashed; `handle` will say so to its sender


def lease_behind(event: ProviderEvent) -> LeaseKey | None:
    """The lease that a kept fact is about; None: it is about something else."""
    if isinstance(event, LeaseOpened):
        return event.terms.key
    if isinstance(event, MessageReceived):
        return lease_of(event.message) if isinstance(event.message, BuyerMessage) else None
    found = getattr(event, "lease", None)
    return found if isinstance(found, LeaseKey) else None


def unknown_lease(lease: LeaseKey) -> Rejection:
    """The refusal of a message about a lease that the chain does not show."""
    return Rejection(
        reason=RejectReason.UNKNOWN_LEASE,
        field="lease",
        found=str(lease),
        needed="an open lease of this node's machines",
        next="Check the lease on chain; it may have ended or belong to another node.",
    )


def _ended(work: LeaseWork) -> Rejection:
    reason = work.ended.text if work.ended is not None else "open"
    return Rejection(
        reason=RejectReason.WRONG_STATE,
        field="lease",
        found=f"work ended here: {reason}",
        needed="a lease that is worked for",
        next="Close the lease; open another one.",
    )


def _unready(work: LeaseWork) -> Rejection:
    return Rejection(
        reason=RejectReason.WRONG_STATE,
        field="lease",
        found="not prepared" if work.ready is None else "not accepted and paid",
        needed="Ready, Accept and a voucher",
        next="Open a session, check the Ready, then send Accept and the first voucher.",
    )
