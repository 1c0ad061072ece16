"""One lease that its buyer holds: from escrow funded to the chain's word that it ended.

Starting, running, ending: each phase is left by a fact of the chain, or by its time-out. The
parts do the talking; here is which of them speaks now.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias, assert_never

from cloud_gpu.ending import Ending
from cloud_gpu.paying import Payments
from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol import messages as said
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.effects import BuyerEffect, Tell
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import (
    InputsNotPushed,
    InputsPushed,
    JobWanted,
    KillWanted,
    MessageReceived,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseTerms
from cloud_gpu.protocol.notices import (
    JobRefused,
    LeaseFailing,
    LeaseFrozen,
    LeaseNoticed,
    LeaseOver,
    LeaseUsable,
)
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.units import Instant
from cloud_gpu.rhythm import ChainTime, Rhythm
from cloud_gpu.runs import Runs
from cloud_gpu.spending import Purse, Tab
from cloud_gpu.starting import Start

JobEvent: TypeAlias = JobWanted | KillWanted | InputsPushed | InputsNotPushed

_STRANGERS: Final = frozenset({RejectReason.NOT_THE_BUYER, RejectReason.UNKNOWN_LEASE})


class HoldPhase(StrEnum):
    """How far a funded lease is."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"


class Holding:
    """One funded lease, as its buyer holds it."""

    def __init__(
        self,
        terms: LeaseTerms,
        order: SignedBid,
        *,
        gpus: int,
        purse: Purse,
        peer: PeerId,
        rhythm: Rhythm,
        time: ChainTime,
    ) -> None:
        self.terms = terms
        self.phase = HoldPhase.STARTING
        self.closing = False
        """The buyer wants to end it."""
        self._purse, self._rhythm, self._time = purse, rhythm, time
        self._start = Start(
            terms, order, gpus=gpus, purse=purse, peer=peer, rhythm=rhythm, time=time
        )
        self._payments: Payments | None = None
        self._runs: Runs | None = None
        self._ending: Ending | None = None
        self._told_late = self._is_noticed = False
        self._reopen_at: Instant = 0

    @property
    def tab(self) -> Tab | None:
        """Its vouchers, once the meter runs."""
        return self._payments.tab if self._payments else None

    @property
    def node(self) -> PeerId | None:
        """Its node's peer, once known."""
        return self._start.node

    @property
    def deadline(self) -> Instant:
        """When `advance` has something to do."""
        match self.phase:
            case HoldPhase.STARTING:
                return self._start.deadline
            case HoldPhase.RUNNING:
                assert self._payments is not None
                assert self._runs is not None
                ends = self._time.when(self._payments.tab.ends_at)
                asked = self._runs.deadline
                times = (self._payments.deadline, self._payments.gone_at, ends)
                return min(*times, ends if asked is None else asked)
            case HoldPhase.ENDING:
                assert self._ending is not None
                return self._ending.deadline
            case _:
                assert_never(self.phase)

    def advance(self, now: Instant) -> list[BuyerEffect]:
        """Do what is due, and leave a phase whose time is over."""
        match self.phase:
            case HoldPhase.STARTING:
                return self._advance_starting(now)
            case HoldPhase.RUNNING:
                return self._advance_running(now)
            case HoldPhase.ENDING:
                return self._advance_ending(now)
            case _:
                assert_never(self.phase)

    # What comes in.

    def met(self, advert: SignedAdvert, now: Instant) -> list[BuyerEffect]:
        """The ask behind the lease is known."""
        return self._start.met(advert, now)

    def on_job(self, event: JobEvent, now: Instant) -> list[BuyerEffect]:
        """Something about a job of ours."""
        if self.phase is not HoldPhase.RUNNING or self._runs is None:
            if isinstance(event, JobWanted):
                detail = f"the lease is {self.phase}, not running"
                return [Tell(notice=JobRefused(job=event.spec.id, detail=detail))]
            return []
        match event:
            case JobWanted():
                return self._runs.want(event.spec, now)
            case KillWanted():
                return self._runs.kill(event.job, now)
            case InputsPushed():
                return self._runs.pushed(event.job, now)
            case InputsNotPushed():
                return self._runs.not_pushed(event.job, event.detail, now)
            case _:
                assert_never(event)

    def on_message(self, event: MessageReceived, now: Instant) -> list[BuyerEffect]:
        """A peer said something; only the lease's node is heard."""
        message = event.message
        if event.peer != self._start.node:
            return []
        if self._payments is not None:
            self._payments.heard(now)
        if said.lease_of(message) != self.terms.key:
            return []  # of another lease at the same node
        match message:
            case said.ReadyOffered():
                if self.phase is not HoldPhase.STARTING:
                    return []
                return self._start.offered(message, now) + self._first_voucher(now)
            case said.VoucherAcknowledged():
                if self._payments is not None:
                    self._payments.acknowledged(message, now)
                return []
            case said.FinalOffered():
                return self._ending.offered(message, now) if self._ending else []
            case said.LeaseEndedHere():
                return self._ended_there(message, now)
            case said.Declined() if message.rejection.reason in _STRANGERS:
                return self._reopen(now)
            case _:
                return self._on_job_message(message, now)

    def _ended_there(self, message: said.LeaseEndedHere, now: Instant) -> list[BuyerEffect]:
        if self.phase is not HoldPhase.RUNNING:
            return []
        if message.reason is not LeaseEndReason.NOTICE or not self._is_noticed:
            return self._fail(message.reason, message.detail, now, gently=True)
        # It is released now: closing would only race that. What its jobs made so far still comes.
        self._begin_ending().await_release(now)
        failing = LeaseFailing(lease=self.terms.key, reason=message.reason, detail=message.detail)
        return [Tell(notice=failing)]

    def _on_job_message(self, message: said.Message, now: Instant) -> list[BuyerEffect]:
        if self._runs is None:
            return []
        match message:
            case said.JobReported():
                return self._runs.reported(message, now)
            case said.JobPrinted():
                return self._runs.printed(message, now)
            case said.JobFinished():
                return self._runs.finished(message, self._time.at(now))
            case said.Declined():
                return self._runs.declined(message, now)
            case _:
                return []  # progress in words, or what only we say

    def _reopen(self, now: Instant) -> list[BuyerEffect]:
        """The node does not know our peer, maybe after a restart: introduce it again."""
        if self.phase is HoldPhase.STARTING or now < self._reopen_at:
            return []  # while starting that happens anyhow
        self._reopen_at = now + self._rhythm.resend
        return [self._start.greeting()]

    def failed(self, call: ChainCall, now: Instant) -> list[BuyerEffect]:
        """A transaction of ours did not do what it was for."""
        return self._ending.failed(call, now) if self._ending else []

    # Facts of the chain.

    def started(self, at: int) -> list[BuyerEffect]:
        """The lease began at a time in Unix seconds."""
        start, payments = self._start, self._payments
        if self.phase is not HoldPhase.STARTING:
            return []
        start.began_at = at
        if payments is None:
            return []  # by an Accept of before it was opened again: its Ready is awaited
        node, keys = start.counterpart
        self.phase = HoldPhase.RUNNING
        if self._runs is None:
            self._runs = Runs(
                node=node,
                keys=keys,
                purse=self._purse,
                rhythm=self._rhythm,
                expiry=payments.tab.ends_at + self._rhythm.claim_s,
            )
        assert start.report is not None
        return [Tell(notice=LeaseUsable(lease=self.terms.key, report=start.report))]

    def noticed(self, releasable_at: int) -> list[BuyerEffect]:
        """Its provider may end it from then on, Unix seconds; 0: no more."""
        if not self.terms.is_interruptible:
            return []  # leaving has its price, as ever
        self._is_noticed = releasable_at > 0
        return [Tell(notice=LeaseNoticed(lease=self.terms.key, releasable_at=releasable_at))]

    def stopped(self, event: chain.LeaseStopped, now: Instant) -> list[BuyerEffect]:
        """Pay is frozen."""
        effects: list[BuyerEffect] = []
        if self.phase is HoldPhase.RUNNING:  # another process of ours stopped it
            effects = self._end(now, "the lease was stopped", gently=False)
        if self._ending is not None:
            self._ending.stopped(event.at)
        refund = self.terms.cap - event.ceiling
        frozen = LeaseFrozen(lease=event.lease, ceiling=event.ceiling, refund=refund)
        return [*effects, Tell(notice=frozen)]

    def closed(self, event: chain.LeaseClosed) -> list[BuyerEffect]:
        """The end."""
        lost = self._runs.abandon(f"the lease ended: {event.reason.text}") if self._runs else []
        refund = self.terms.cap - event.paid
        over = LeaseOver(lease=event.lease, reason=event.reason, paid=event.paid, refund=refund)
        return [*lost, Tell(notice=over)]

    def started_not(self) -> None:
        """A longer chain took the beginning back: say again what led to it."""
        self.phase, self._ending = HoldPhase.STARTING, None
        self._start.began_not()

    def stopped_not(self) -> None:
        """A longer chain took the stop back."""
        if self._ending is not None:
            self._ending.stopped(None)

    # What follows.

    def _first_voucher(self, now: Instant) -> list[BuyerEffect]:
        accept = self._start.accept
        if accept is None or self._payments is not None:
            return []
        began_at = self._start.began_at
        self._payments = Payments(
            Tab(
                self.terms,
                began_at or accept.payload.started_at,
                self._rhythm.voucher_interval_s,
            ),
            node=self._start.counterpart[0],
            purse=self._purse,
            rhythm=self._rhythm,
            time=self._time,
            now=now,
        )
        begun = self.started(began_at) if began_at else []
        return [*begun, *self._payments.on_time(now)]

    def _advance_starting(self, now: Instant) -> list[BuyerEffect]:
        effects = self._start.on_time(now)
        if not self._start.is_late:
            return effects + (self._payments.on_time(now) if self._payments else [])
        if not self._told_late:
            self._told_late = True
            failing = LeaseFailing(
                lease=self.terms.key,
                reason=LeaseEndReason.PROVIDER_NO_SHOW,
                detail=self._start.doubt or "its node was not ready before the start deadline",
            )
            effects.append(Tell(notice=failing))
        return effects

    def _advance_running(self, now: Instant) -> list[BuyerEffect]:
        payments, runs = self._payments, self._runs
        assert payments is not None
        assert runs is not None
        if self.closing:
            return self._end(now, "the lease was closed here", gently=True)
        if self._time.at(now) >= payments.tab.ends_at:
            return self._end(now, "the lease's time is over", gently=True)
        if now >= payments.gone_at:
            silence = f"its node was silent for {self._rhythm.node_silence // 1000} s"
            return self._fail(LeaseEndReason.STOPPED, silence, now, gently=False)
        return payments.on_time(now) + runs.on_time(now)

    def _fail(
        self, reason: LeaseEndReason, detail: str, now: Instant, *, gently: bool
    ) -> list[BuyerEffect]:
        failing = LeaseFailing(lease=self.terms.key, reason=reason, detail=detail)
        return [Tell(notice=failing), *self._end(now, detail, gently=gently)]

    def _end(self, now: Instant, detail: str, *, gently: bool) -> list[BuyerEffect]:
        assert self._runs is not None
        ending = self._begin_ending()
        begun = ending.ask(now) if gently else ending.stop(now)
        return self._runs.abandon(detail) + begun

    def _begin_ending(self) -> Ending:
        assert self._payments is not None
        node, keys = self._start.counterpart
        self.phase = HoldPhase.ENDING
        self._ending = Ending(
            self._payments.tab,
            node=node,
            keys=keys,
            purse=self._purse,
            rhythm=self._rhythm,
            time=self._time,
        )
        return self._ending

    def _advance_ending(self, now: Instant) -> list[BuyerEffect]:
        assert self._ending is not None
        effects = self._ending.on_time(now)
        if self._runs is None or self._ending.awaits_release:
            return effects
        return self._runs.abandon("the lease is over, and its node sent no result") + effects
