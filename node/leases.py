"""One lease's life on the node: prepared, accepted, paid by vouchers, worked, closed.

Nothing here remembers what was sent: after every fact `review` compares what the chain and the
buyer said with what was done, and says what is still to do and when to look again. Everything it
says may be repeated, so lost messages, restarts and replaced blocks need no code of their own.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.calls import (
    Begin,
    ChainCall,
    CloseBatch,
    Closing,
    ExpireLease,
    GiveNotice,
    PostReady,
    RefundUnstarted,
    ReleaseLease,
    SettleBatch,
)
from cloud_gpu.protocol.effects import (
    KillJob,
    PauseContainer,
    PrepareContainer,
    ProviderEffect,
    RemoveContainer,
    ResumeContainer,
    Send,
    StartJob,
    Transact,
)
from cloud_gpu.protocol.identity import PeerId, Signer
from cloud_gpu.protocol.job import JobStep
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseState, LeaseTerms
from cloud_gpu.protocol.messages import (
    LeaseEndedHere,
    Message,
    ReadyOffered,
    RuntimeReport,
    VoucherAcknowledged,
)
from cloud_gpu.protocol.signing import Domain, Signed, sign
from cloud_gpu.protocol.units import ZERO_TOKENS, Instant, TokenAmount, instant
from cloud_gpu.protocol.voucher import Accept, Ready, Voucher
from cloud_gpu.protocol.voucher import Final as FinalWord
from node.jobs import JobBook
from node.ledger import LeaseOnChain
from node.metering import (
    END_AFTER_MISSED,
    PAUSE_AFTER_MISSED,
    missed_at,
    missed_intervals,
    paid_seconds,
)
from node.review import Retries, Review

UNCONFIRMED_S_MAX: Final = 180
"""Work on the buyer's word alone, until `begin` is on chain."""

CLOCK_SKEW_S: Final = 2
"""The chain's clock and ours; the contract judges by the chain's."""

VANISHED_S_MAX: Final = 60
"""A lease that a reorganisation took away usually comes back."""

LAST_RESULTS_S_MAX: Final = 15
"""How long results of killed jobs are waited for before the container is removed."""

PEERS_MAX: Final = 4
"""That one buyer's side may use for a lease."""


class LeaseWork:
    """What the node holds of one lease, and decides about it."""

    def __init__(self, terms: LeaseTerms, domain: Domain, key: Signer, interval_s: int) -> None:
        self.terms = terms
        self._domain, self._key, self._interval_s = domain, key, interval_s
        self.chain: LeaseOnChain | None = None
        """As last seen; None before the first review."""
        self.jobs = JobBook()
        self.peers: tuple[PeerId, ...] = ()
        """Of the buyer's side, newest last."""
        self.is_peer_silent = False
        self.report: RuntimeReport | None = None
        """What was prepared: fixed, once `Ready` binds it."""
        self.ready: Signed[Ready] | None = None
        self.accept: Signed[Accept] | None = None
        self.accepted_at: Instant = 0
        self.voucher: Signed[Voucher] | None = None
        self.ended: LeaseEndReason | None = None
        """Why work ended here; the lease itself may still be open on chain."""
        self.is_notice_wanted = False
        """The provider wants its machine back."""
        self.is_prepared = False
        """The container is there; after a restart not before the runtime says so."""
        self.is_paused = False
        self._is_pause_told = False
        self._may_exist = False
        """The runtime may hold something for it."""
        self._ended_at: Instant = 0
        self._vanished_at: Instant | None = None
        self._retries = Retries()

    @property
    def key(self) -> LeaseKey:
        """Its name."""
        return self.terms.key

    @property
    def amount(self) -> TokenAmount:
        """What the best voucher says, base units."""
        return self.voucher.payload.amount if self.voucher else ZERO_TOKENS

    @property
    def started_at(self) -> int:
        """Unix seconds, by the chain or, until that is there, by the buyer's word; 0: not yet."""
        if self.chain is not None and self.chain.started_at:
            return self.chain.started_at
        return self.accept.payload.started_at if self.accept else 0

    @property
    def takes_work(self) -> bool:
        """Whether the buyer may use it."""
        return self.accept is not None and self.ended is None and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether it ended on chain."""
        return self.chain is not None and self.chain.state is LeaseState.CLOSED

    def is_forgettable(self, claim_s: int, now: Instant) -> bool:
        """Whether nobody has a claim on anything here any more."""
        if self._vanished_at is not None:
            return now >= self._vanished_at + instant(VANISHED_S_MAX)
        if self.chain is None or not self.is_over:
            return False
        return now >= instant(self.chain.closed_at + claim_s)

    # Facts.

    def prepared(self, report: RuntimeReport) -> list[ProviderEffect]:
        """The runtime has the container."""
        self.is_prepared = self._may_exist = True
        self._is_pause_told = False
        self._retries.forget("prepare")
        if self.report is None:
            self.report = report
            ready = Ready(
                provider=self.key.provider,
                index=self.key.index,
                seq=self.key.seq,
                runtime_hash=report.digest,
            )
            self.ready = sign(ready, self._domain, self._key)
        return self.tell(self.offer())

    def offer(self) -> Message:
        """The signed Ready with what it binds."""
        assert self.ready is not None, f"{self.key} is not prepared"
        assert self.report is not None, f"{self.key} is not prepared"
        return ReadyOffered(ready=self.ready, report=self.report)

    def unprepared(self) -> None:
        """The container could not be prepared, or is gone."""
        self.is_prepared = False
        self.jobs.ask_again()

    def restarted(self) -> None:
        """What the runtime was told before may not have happened."""
        self.unprepared()
        self._retries = Retries()

    def bind(self, peer: PeerId) -> None:
        """The buyer's side speaks through this peer."""
        others = tuple(other for other in self.peers if other != peer)
        self.peers = (*others, peer)[-PEERS_MAX:]

    def tell(self, message: Message) -> list[ProviderEffect]:
        """To the buyer's side, when it is known."""
        return [Send(peer=self.peers[-1], message=message)] if self.peers else []

    def acknowledgement(self) -> Message:
        """The best voucher held, and whether work is paused."""
        return VoucherAcknowledged(lease=self.key, amount=self.amount, paused=self.is_paused)

    def end(self, reason: LeaseEndReason, now: Instant, why: str = "") -> list[ProviderEffect]:
        """Stop working for it, for good; the last results still come.

        `why` tells the buyer's side, in words; empty when it knows.
        """
        if self.ended is not None:
            return []
        self.ended, self._ended_at = reason, now
        effects: list[ProviderEffect] = [
            KillJob(lease=self.key, job=job) for job in self.jobs.unfinished()
        ]
        if why:
            effects += self.tell(LeaseEndedHere(lease=self.key, reason=reason, detail=why))
        return effects

    # Decisions.

    def review(self, chain: LeaseOnChain | None, windows_claim_s: int, review: Review) -> None:
        """Say what is to do now, given how the chain shows the lease (None: not at all)."""
        if chain is None:
            self._review_vanished(review)
            return
        self._vanished_at = None
        self.chain = chain
        match chain.state:
            case LeaseState.FUNDED:
                self._review_funded(chain, review)
            case LeaseState.ACTIVE:
                self._review_active(chain, windows_claim_s, review)
            case LeaseState.STOPPED:
                review.do(*self.end(LeaseEndReason.STOPPED, review.now))
                self._close(chain.stopped_at + windows_claim_s, review)
            case LeaseState.CLOSED:
                reason = chain.reason or LeaseEndReason.END_OF_TIME
                review.do(*self.end(reason, review.now))
                self._remove_when_idle(review)
                review.look_at(instant(chain.closed_at + windows_claim_s))

    def _review_vanished(self, review: Review) -> None:
        if self._vanished_at is None:
            self._vanished_at = review.now
        # The chain that showed it is gone: its last picture must not be acted on.
        gone_at = self._vanished_at + instant(VANISHED_S_MAX)
        if review.now >= gone_at:
            self._remove(review)
        review.look_at(gone_at)

    def _review_funded(self, chain: LeaseOnChain, review: Review) -> None:
        deadline = self.terms.start_deadline
        retry_s = max(2, min(15, (deadline - self.terms.opened_at) // 5))
        if review.now >= instant(deadline + CLOCK_SKEW_S):
            why = "it did not begin by its start deadline"
            review.do(*self.end(LeaseEndReason.RELEASED_UNSTARTED, review.now, why))
            self._remove_when_idle(review)
            self._transact("refund", RefundUnstarted(lease=self.key), retry_s, review)
            return
        review.look_at(instant(deadline + CLOCK_SKEW_S))
        self._prepare(review)
        if self.ready is None or review.now > instant(deadline):
            return
        if self.accept is not None:
            begin = Begin(ready=None, accept=self.accept)
            self._transact("begin", begin, retry_s, review)
            self._work(review)
        elif not chain.is_ready_posted:
            window_s = deadline - self.terms.opened_at
            post_at = instant(deadline - max(3, min(120, window_s // 4)))
            if review.now >= post_at:
                self._transact("post-ready", PostReady(ready=self.ready), retry_s, review)
            review.look_at(post_at)

    def _review_active(self, chain: LeaseOnChain, claim_s: int, review: Review) -> None:
        ends_at = chain.ends_at
        if review.now >= instant(ends_at):
            review.do(*self.end(LeaseEndReason.END_OF_TIME, review.now, "its time is over"))
            if review.now >= instant(ends_at + CLOCK_SKEW_S):
                self._close(ends_at + claim_s, review)
            review.look_at(instant(ends_at + CLOCK_SKEW_S))
            return
        review.look_at(instant(ends_at))
        self._retries.forget("begin")
        if chain.releasable_at:
            review.look_at(instant(chain.releasable_at))
            if review.now >= instant(chain.releasable_at):
                self._release(chain.releasable_at, review)
                return
        elif self.is_notice_wanted:
            self._transact("notice", GiveNotice(lease=self.key), 15, review)
        self._prepare(review)
        self._work(review)
        if self.ended is LeaseEndReason.NO_VOUCHERS and chain.paid < self.amount:
            assert self.voucher is not None, f"{self.key} owes {self.amount} on no voucher"
            self._transact("settle", SettleBatch(vouchers=(self.voucher,)), 30, review)

    def _release(self, at: int, review: Review) -> None:
        """Have the machine back, now that notice makes it free; the best voucher is redeemed."""
        why = "the notice that its provider gave has run out"
        review.do(*self.end(LeaseEndReason.NOTICE, review.now, why))
        self._remove_when_idle(review)
        if review.now >= instant(at + CLOCK_SKEW_S):
            reason = LeaseEndReason.RELEASED  # the chain makes it NOTICE
            release = ReleaseLease(lease=self.key, voucher=self.voucher, reason=reason)
            self._transact("release", release, 15, review)
        review.look_at(instant(at + CLOCK_SKEW_S))

    def _prepare(self, review: Review) -> None:
        if self.is_prepared or self.ended is not None:
            return
        if self._retries.due("prepare", review.now, first_s=5):
            self._may_exist = True
            review.do(PrepareContainer(lease=self.key))
        review.look_at(self._retries.at("prepare"))

    def _work(self, review: Review) -> None:
        """Pause, resume or end work by what was paid; start the jobs that wait."""
        if self.ended is not None:
            self._remove_when_idle(review)
            return
        paid_s = paid_seconds(self.amount, self.terms.cap, self.terms.duration)
        missed = missed_intervals(paid_s, self.started_at, self._interval_s, review.now)
        if paid_s >= self.terms.duration:
            missed = 0
        if missed >= END_AFTER_MISSED:
            why = f"{missed} voucher intervals were missed"
            review.do(*self.end(LeaseEndReason.NO_VOUCHERS, review.now, why))
            self._remove_when_idle(review)
            return
        for threshold in (PAUSE_AFTER_MISSED, END_AFTER_MISSED):
            review.look_at(missed_at(paid_s, self.started_at, self._interval_s, threshold))
        confirm_by = self.accepted_at + instant(UNCONFIRMED_S_MAX)
        is_confirmed = self.chain is not None and self.chain.state is LeaseState.ACTIVE
        if not is_confirmed:
            review.look_at(confirm_by)
        self._pause(
            missed >= PAUSE_AFTER_MISSED or not (is_confirmed or review.now < confirm_by), review
        )
        if self.is_prepared and not self.is_paused and self.voucher is not None:
            review.do(*(StartJob(spec=spec) for spec in self.jobs.to_start()))

    def _pause(self, pause: bool, review: Review) -> None:
        if pause != self.is_paused:
            self.is_paused = pause
            self._is_pause_told = False
            self.jobs.step_all(JobStep.PAUSE if pause else JobStep.RESUME)
            review.do(*self.tell(self.acknowledgement()))
        if self.is_prepared and not self._is_pause_told:
            self._is_pause_told = True
            effect = PauseContainer if pause else ResumeContainer
            review.do(effect(lease=self.key))

    def _close(self, expires_at: int, review: Review) -> None:
        """Redeem the best voucher; without one, free the machine when the claim window is over."""
        self._remove_when_idle(review)
        if self.voucher is not None:
            closing = Closing(voucher=self.voucher, final=self.final())
            self._transact("close", CloseBatch(closings=(closing,)), 15, review)
        elif review.now >= instant(expires_at + CLOCK_SKEW_S):
            self._transact("expire", ExpireLease(lease=self.key), 15, review)
        else:
            review.look_at(instant(expires_at + CLOCK_SKEW_S))

    def final(self) -> Signed[FinalWord]:
        """The provider's word that it closes at the best voucher."""
        word = FinalWord(
            provider=self.key.provider,
            index=self.key.index,
            seq=self.key.seq,
            amount=self.amount,
        )
        return sign(word, self._domain, self._key)

    def _transact(self, what: str, call: ChainCall, first_s: int, review: Review) -> None:
        if self._retries.due(what, review.now, first_s):
            review.do(Transact(call=call))
        review.look_at(self._retries.at(what))

    def _remove_when_idle(self, review: Review) -> None:
        latest = self._ended_at + instant(LAST_RESULTS_S_MAX)
        if not self.jobs.unfinished() or review.now >= latest:
            self._remove(review)
        else:
            review.look_at(latest)

    def _remove(self, review: Review) -> None:
        if self._may_exist:
            self._may_exist = self.is_prepared = False
            review.do(RemoveContainer(lease=self.key))
