"""The provider's party: announces its free machines, and works for the leases that they become.

It routes facts to the ledger (what the chain says), the leases and the asks, then reviews what is
left to do. Money is the contracts' business, hardware the runtime's, time an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    ChainEvent,
    DelegationChanged,
    LeaseClosed,
    LeaseOpened,
    LeaseReady,
    LeaseSettled,
    LeaseStarted,
    LeaseStopped,
    NoticeGiven,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import (
    ProbeMachine,
    ProviderEffect,
    RemoveContainer,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import (
    AuditMessageReceived,
    ContainerFailed,
    ContainerReady,
    DeadlinePassed,
    DrainAsked,
    JobExited,
    JobStarted,
    MachineProbed,
    MessageReceived,
    NodeStarted,
    NoticeWanted,
    OutputRead,
    ProviderEvent,
    SendFailed,
)
from cloud_gpu.protocol.identity import PeerId, Signer
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.messages import (
    AcceptGiven,
    CloseAsked,
    JobAsked,
    JobFinished,
    JobKilled,
    JobPrinted,
    JobSubmitted,
    OpenSession,
    Preparing,
    VoucherGiven,
    lease_of,
)
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.units import Instant, unix_seconds
from node.announcing import Announcements
from node.commitments import Commitments
from node.leases import LeaseWork
from node.ledger import Ledger
from node.notices import NoticeOutlook, due, outlook
from node.review import Review
from node.sessions import BuyerMessage, Session, is_news, lease_behind, unknown_lease
from node.standing import NodeStanding, standing_of

PROBE_EVERY_MS: Final = 60_000
_SOON_MS: Final = 20
"""No deadline is nearer: a decision that waits for a fact must not spin."""


class Provider:
    """A `Party` over `ProviderEvent` and `ProviderEffect`."""

    def __init__(
        self,
        *,
        deployment: Deployment,
        key: Signer,
        peer: PeerId,
        announcements: Announcements,
    ) -> None:
        self._deployment, self._key, self._peer = deployment, key, peer
        self._announcements = announcements
        self._account = announcements.provider
        self._ledger = Ledger(self._account)
        self._commitments = Commitments(deployment, key)
        self._works: dict[LeaseKey, LeaseWork] = {}
        self._orphans: set[LeaseKey] = set()
        """Leases that the runtime holds something of and the chain did not show yet."""
        self._probe_at: Instant | None = None
        self._now: Instant = 0
        """When something last happened."""
        self._wake: Instant | None = None

    @property
    def deadline(self) -> Instant | None:
        """When something is due though nothing happens."""
        return self._wake

    def handle(self, event: ProviderEvent, now: Instant) -> Sequence[ProviderEffect]:
        """See `Party`."""
        self._now = now
        effects = [*self._apply(event, now)]
        review = Review(now)
        self._review(review)
        self._wake = None if review.wake is None else max(review.wake, now + _SOON_MS)
        return [*effects, *review.effects]

    # Facts.

    def _apply(self, event: ProviderEvent, now: Instant) -> Sequence[ProviderEffect]:
        match event:
            case DeadlinePassed():
                return []
            case MessageReceived():
                return self._receive(event, now)
            case SendFailed():
                for work in self._works.values():
                    if event.peer in work.peers:
                        work.is_peer_silent = True
                return []
            case NodeStarted():
                return self._restart(event, now)
            case MachineProbed():
                self._announcements.probed(event)
                return []
            case ContainerReady():
                return self._container_ready(event)
            case ContainerFailed():
                return self._container_failed(event)
            case JobStarted():
                if (started := self._works.get(event.lease)) is not None:
                    started.jobs.started(event.job)
                return []
            case OutputRead():
                return self._print(event)
            case JobExited():
                return self._job_exited(event, now)
            case NoticeWanted(lease=lease):
                if (wanted := self._works.get(lease)) is not None:
                    wanted.is_notice_wanted = True
                return []
            case DrainAsked():
                self._announcements.drain()
                return []
            case AuditMessageReceived(peer=peer, message=message):
                return self._commitments.answer(peer, message, self._ledger, now)
            case _:
                return self._follow(event)

    def _follow(self, event: ChainEvent) -> Sequence[ProviderEffect]:
        self._ledger.apply(event)
        if not isinstance(event, LeaseOpened) or event.terms.key.provider != self._account:
            return []
        key = event.terms.key
        known = self._works.get(key)
        if known is not None and known.terms == event.terms:
            return []
        interval_s = self._deployment.voucher_interval_s
        self._works[key] = LeaseWork(event.terms, self._deployment.domain, self._key, interval_s)
        self._commitments.forget(key)
        # After a reorganisation the same number may be another buyer's: nothing is handed on.
        return [] if known is None else [RemoveContainer(lease=key)]

    def _restart(self, event: NodeStarted, now: Instant) -> Sequence[ProviderEffect]:
        self._ledger.start_over(event.at)
        for work in self._works.values():
            work.restarted()
        self._probe_at = now
        return []

    def _container_ready(self, event: ContainerReady) -> Sequence[ProviderEffect]:
        work = self._works.get(event.lease)
        if work is None:
            self._orphans.add(event.lease)
            return []
        return work.prepared(event.report)

    def _container_failed(self, event: ContainerFailed) -> Sequence[ProviderEffect]:
        work = self._works.get(event.lease)
        if work is None:
            return []
        work.unprepared()
        detail = f"the container could not be prepared: {event.detail}"[:500]
        return work.tell(Preparing(lease=event.lease, detail=detail))

    def _print(self, event: OutputRead) -> Sequence[ProviderEffect]:
        work = self._works.get(event.lease)
        if work is None or work.is_peer_silent:
            return []
        return work.tell(
            JobPrinted(
                lease=event.lease,
                job=event.job,
                stream=event.stream,
                offset=event.offset,
                chunk=event.chunk,
            )
        )

    def _job_exited(self, event: JobExited, now: Instant) -> Sequence[ProviderEffect]:
        work = self._works.get(event.lease)
        if work is None or work.report is None:
            return []
        result = work.jobs.exited(event, work.report, self._deployment.domain, self._key)
        if result is None:
            return []
        self._commitments.returned(result, now)
        return work.tell(JobFinished(result=result))

    def _receive(self, event: MessageReceived, now: Instant) -> Sequence[ProviderEffect]:
        message = event.message
        if not isinstance(
            message,
            OpenSession
            | AcceptGiven
            | VoucherGiven
            | JobSubmitted
            | JobAsked
            | JobKilled
            | CloseAsked,
        ):
            return []  # nodes do not talk to each other, so there is nobody to answer
        try:
            lease = lease_of(message)
        except ValueError:
            return []  # it names no possible lease, so that no answer could name it either
        session = Session(self._peer, event.peer, self._deployment.domain, self._ledger, now)
        work = self._works.get(lease)
        if work is None:
            return self._answer_stranger(session, lease, message)
        try:
            answer = session.receive(work, message)
            if isinstance(message, JobSubmitted):
                self._commitments.taken(work, message.spec)
            return answer
        except (ValueError, OverflowError) as error:
            # Numbers that JSON carries and EIP-712 or RFC 8785 does not: nothing was taken in.
            rejection = Rejection(
                reason=RejectReason.MALFORMED,
                field=type(message).__name__,
                found=str(error)[:160],
                needed="a message that can be hashed",
                next="Send what the protocol's types allow.",
            )
            return session.decline(lease, rejection)

    def _answer_stranger(
        self, session: Session, lease: LeaseKey, message: BuyerMessage
    ) -> Sequence[ProviderEffect]:
        """About a lease that the chain does not show, perhaps not yet: a buyer may be faster."""
        is_expected = lease.provider == self._account and (
            self._ledger.is_catching_up or lease.seq >= self._ledger.next_seq(lease.index)
        )
        if is_expected and isinstance(message, OpenSession):
            detail = "the opening has not been seen on chain yet"
            return session.reply(Preparing(lease=lease, detail=detail))
        return session.decline(lease, unknown_lease(lease))

    # Decisions.

    def _review(self, review: Review) -> None:
        if not self._ledger.is_catching_up:
            self._review_notices(review)
        claim_s = self._deployment.windows.claim
        for key, work in list(self._works.items()):
            # While history is read again the ledger shows old states: act on what was known.
            is_history = self._ledger.is_catching_up
            chain = work.chain if is_history else self._ledger.leases.get(key)
            if not (is_history and chain is None):
                work.review(chain, claim_s, review)
            if not is_history:
                self._commitments.review(work, self._ledger, review)
            is_wanted = self._commitments.needs(key, self._ledger, review.now)
            if work.is_forgettable(claim_s, review.now) and not is_wanted:
                del self._works[key]
                self._ledger.forget(key)
                self._commitments.forget(key)
        if self._ledger.is_catching_up:
            return
        for key in self._orphans - self._works.keys():
            review.do(RemoveContainer(lease=key))
        self._orphans.clear()
        self._review_probes(review)
        self._announcements.review(self._ledger, self._leaving(), review)

    def _review_notices(self, review: Review) -> None:
        leaving = self._leaving()
        room = self._announcements.room(self._ledger, leaving, review.now)
        for key in due(self._ledger, leaving, room, review):
            if key in self._works:
                self._works[key].is_notice_wanted = True

    def _leaving(self) -> frozenset[LeaseKey]:
        return frozenset(key for key, work in self._works.items() if work.is_notice_wanted)

    def _review_probes(self, review: Review) -> None:
        if self._probe_at is None or review.now >= self._probe_at:
            self._probe_at = review.now + PROBE_EVERY_MS
            review.do(*(ProbeMachine(index=index) for index in self._announcements.indexes))
        review.look_at(self._probe_at)

    # Questions; they change nothing.

    @property
    def adverts(self) -> Sequence[SignedAdvert]:
        """What is for rent now."""
        return self._announcements.current

    @property
    def standing(self) -> NodeStanding:
        """For the operator."""
        return NodeStanding(
            provider=self._account,
            peer=self._peer,
            is_draining=self._announcements.is_draining,
            is_catching_up=self._ledger.is_catching_up,
            machines=self._announcements.standings(self._ledger),
            leases=tuple(map(standing_of, self._works.values())),
        )

    def notice_for(self, target: str) -> NoticeOutlook | Rejection:
        """What notice to a machine's lease would do: "3", or "3/7" for its lease 7."""
        return outlook(target, self._ledger, unix_seconds(self._now))

    def remembers(self, event: ProviderEvent) -> bool:
        """Whether a fact that was kept is about something that is not over and forgotten."""
        lease = lease_behind(event)
        return lease is None or lease in self._works

    def may_push(self, peer: PeerId, size: int) -> bool:
        """Whether a peer may bring a file of this many bytes: a job's input."""
        return any(
            peer in work.peers
            and work.takes_work
            and work.report is not None
            and size <= work.report.profile.disk_mib * 2**20
            for work in self._works.values()
        )

    def may_fetch(self, peer: PeerId, sha256: str) -> bool:
        """Whether a peer may have this file: of a job of its own lease, or of its audit."""
        return self._commitments.may_fetch(peer, sha256) or any(
            peer in work.peers and work.jobs.has_file(sha256) for work in self._works.values()
        )

    def keeps_file(self, sha256: str) -> bool:
        """Whether a job of some lease still needs this file, or its buyer may still fetch it."""
        return any(work.jobs.has_file(sha256) for work in self._works.values())

    def must_survive(self, event: ProviderEvent) -> bool:
        """Whether a fact is worth the journal: what neither chain nor runtime could tell again."""
        match event:
            case LeaseOpened(terms=terms):
                return terms.key.provider == self._account
            case LeaseReady() | LeaseStarted() | LeaseSettled() | LeaseStopped() | LeaseClosed():
                return event.lease.provider == self._account
            case NoticeGiven() | BatchCommitted() | BatchDrawn() | BatchFinalised():
                return event.lease.provider == self._account
            case AuditMessageReceived(peer=peer, message=message):
                return self._commitments.is_new(peer, message, self._ledger, self._now)
            case (
                DelegationChanged() | ContainerReady() | JobStarted() | JobExited() | NoticeWanted()
            ):
                return True
            case MessageReceived(peer=peer, message=message):
                return is_news(self._works, peer, message)
            case _:
                return False
