"""Buyer: the party that wants one lease, from its bids to the chain's word that it ended.

It believes the chain alone: a fact that a longer chain takes back is taken back here too. What a
market or a node says is asked for, checked and repeated. Time, keys and the network are its
caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias, assert_never

from cloud_gpu.holding import Holding, HoldPhase
from cloud_gpu.placing import Placement
from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol.calls import CancelOne
from cloud_gpu.protocol.effects import BuyerEffect, Tell, Transact
from cloud_gpu.protocol.events import (
    BidAcknowledged,
    BidRefused,
    BidReported,
    BuyerEvent,
    CloseWanted,
    DeadlinePassed,
    InputsNotPushed,
    InputsPushed,
    JobWanted,
    KillWanted,
    LeaseGiven,
    LeaseWanted,
    MarketSilent,
    MessageReceived,
    SendFailed,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.lease import LeaseTerms
from cloud_gpu.protocol.notices import JobRefused, LeaseFunded, LeaseNotOpened
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.units import GpuSeconds, Instant, unix_seconds
from cloud_gpu.rhythm import ChainTime, Rhythm
from cloud_gpu.spending import Purse, Tab, price_of

_MarketEvent: TypeAlias = BidAcknowledged | BidRefused | BidReported | MarketSilent
_LeaseFact: TypeAlias = (
    chain.LeaseStarted | chain.NoticeGiven | chain.LeaseStopped | chain.LeaseClosed
)


class Phase(StrEnum):
    """How far the one lease is."""

    IDLE = "idle"
    PLACING = "placing"
    HOLDING = "holding"
    OVER = "over"


class _Fact(StrEnum):
    """What the chain said of our lease, in the order in which it can."""

    OPENED = "opened"
    STARTED = "started"
    NOTICED = "noticed"
    STOPPED = "stopped"
    ENDED = "ended"


class Buyer:
    """One buyer's side of one lease. See `protocol.party.Party`."""

    def __init__(self, *, purse: Purse, peer: PeerId, rhythm: Rhythm) -> None:
        self._purse, self._own, self._rhythm = purse, peer, rhythm
        self._time = ChainTime()
        self._placement: Placement | None = None
        self._holding: Holding | None = None
        self._is_over = self._closing = False
        self._cancel_again_at: Instant = 0
        self._block = 0
        self._member = 0
        self._opened_after: list[int] = []
        """The same for each lease that opened of our bids, in their order: a gang has several."""
        self._said_after: dict[_Fact, int] = {}
        """The newest block when a fact came: it is of a later one."""

    @property
    def phase(self) -> Phase:
        """How far the lease is."""
        if self._is_over:
            return Phase.OVER
        if self._holding is not None:
            return Phase.HOLDING
        return Phase.IDLE if self._placement is None else Phase.PLACING

    @property
    def is_running(self) -> bool:
        """Whether jobs may run in the lease."""
        return self._holding is not None and self._holding.phase is HoldPhase.RUNNING

    @property
    def tab(self) -> Tab | None:
        """The lease's vouchers, once its meter runs."""
        return self._holding.tab if self._holding else None

    @property
    def node(self) -> PeerId | None:
        """The node of the lease, once known."""
        return self._holding.node if self._holding else None

    @property
    def deadline(self) -> Instant | None:
        """See `Party`."""
        match self.phase:
            case Phase.IDLE | Phase.OVER:
                return None
            case Phase.PLACING:
                assert self._placement is not None
                return self._placement.deadline
            case Phase.HOLDING:
                assert self._holding is not None
                return self._holding.deadline
            case _:
                assert_never(self.phase)

    def handle(self, event: BuyerEvent, now: Instant) -> Sequence[BuyerEffect]:
        """See `Party`."""
        return [*self._on(event, now), *self._advance(now)]

    def _on(self, event: BuyerEvent, now: Instant) -> list[BuyerEffect]:
        match event:
            case DeadlinePassed() | SendFailed():
                return []  # what was not delivered is said again in its time
            case LeaseWanted():
                return self._want(event, now)
            case LeaseGiven():
                return self._take_up(event, now)
            case CloseWanted():
                self._closing = True
                self._is_over = self._is_over or self.phase is Phase.IDLE
                return []
            case JobWanted() | KillWanted() | InputsPushed() | InputsNotPushed():
                if self._holding is not None and not self._is_over:
                    return self._holding.on_job(event, now)
                return _refused(event, self.phase)
            case BidAcknowledged() | BidRefused() | BidReported() | MarketSilent():
                return self._on_market(event, now)
            case MessageReceived():
                return self._holding.on_message(event, now) if self._holding else []
            case _:
                return self._on_chain(event, now)

    def _want(self, event: LeaseWanted, now: Instant) -> list[BuyerEffect]:
        if self.phase is not Phase.IDLE:
            return []  # a buyer is of one lease; wanted twice is wanted once
        self._member = event.member
        self._placement = Placement(
            event.bids,
            event.slice_gpus,
            event.adverts,
            self._purse.domain,
            self._rhythm,
            is_quiet=event.member > 0,
        )
        return self._placement.start(now)

    def _take_up(self, event: LeaseGiven, now: Instant) -> list[BuyerEffect]:
        if self.phase is not Phase.IDLE:
            return []
        # Not a fact that a longer chain takes back: nobody would tell it again.
        funded = self._hold(event.terms, event.order, event.gpus)
        assert self._holding is not None
        return [funded, *self._holding.met(event.advert, now)]

    def _hold(self, terms: LeaseTerms, order: SignedBid, gpus: int) -> Tell:
        self._holding = Holding(
            terms,
            order,
            gpus=gpus,
            purse=self._purse,
            peer=self._own,
            rhythm=self._rhythm,
            time=self._time,
        )
        funded = LeaseFunded(
            lease=terms.key,
            gpus=gpus,
            price=price_of(terms.cap, GpuSeconds(gpus * order.bid.payload.duration)),
            cap=terms.cap,
            duration=terms.duration,
        )
        return Tell(notice=funded)

    def _on_market(self, event: _MarketEvent, now: Instant) -> list[BuyerEffect]:
        placement = self._placement
        if placement is None:
            return []
        match event:
            case BidAcknowledged():
                placement.acknowledged(event.receipt, unix_seconds(now))
            case BidRefused():
                placement.refused(event.bid, event.rejection)
            case BidReported():
                placement.reported(event.report)
            case MarketSilent():
                placement.silent(event.detail)
            case _:
                assert_never(event)
        return self._meet(now)

    def _meet(self, now: Instant) -> list[BuyerEffect]:
        if self._holding is None or self._placement is None:
            return []
        advert = self._placement.advert_of(self._holding.terms)
        return self._holding.met(advert, now) if advert else []

    # The chain.

    def _on_chain(self, event: chain.ChainEvent, now: Instant) -> list[BuyerEffect]:
        match event:
            case chain.ChainAdvanced():
                self._block = event.block
                self._time.saw(event.at, now)
                return []
            case chain.ChainReorganised():
                return self._take_back(event.block)
            case chain.LeaseOpened():
                return self._opened(event, now)
            case chain.BidsCancelled():
                return self._cancelled(event)
            case chain.EntrySkipped() | chain.TransactionFailed():
                return self._holding.failed(event.call, now) if self._holding else []
            case (
                chain.LeaseStarted()
                | chain.NoticeGiven()
                | chain.LeaseStopped()
                | chain.LeaseClosed()
            ):
                return self._on_lease(event, now)
            case _:
                return []  # of others

    def _opened(self, event: chain.LeaseOpened, now: Instant) -> list[BuyerEffect]:
        placement = self._placement
        order = placement.order(event.bid) if placement else None
        if placement is None or order is None or self.phase is not Phase.PLACING:
            return []
        place, gpus = len(self._opened_after), placement.gpus_of(event.bid)
        self._opened_after.append(self._block)
        if self._member * gpus >= order.bid.payload.count:
            self._over()
            return [Tell(notice=LeaseNotOpened(kind="fewer", detail="fewer machines were matched"))]
        if place != self._member:
            return []
        self._said_after[_Fact.OPENED] = self._block
        return [self._hold(event.terms, order, gpus), *self._meet(now)]

    def _on_lease(self, event: _LeaseFact, now: Instant) -> list[BuyerEffect]:
        holding = self._holding
        if holding is None or event.lease != holding.terms.key or self._is_over:
            return []
        match event:
            case chain.LeaseStarted():
                self._said_after[_Fact.STARTED] = self._block
                return holding.started(event.started_at)
            case chain.NoticeGiven():
                self._said_after[_Fact.NOTICED] = self._block
                return holding.noticed(event.releasable_at)
            case chain.LeaseStopped():
                self._said_after[_Fact.STOPPED] = self._block
                return holding.stopped(event, now)
            case chain.LeaseClosed():
                self._over()
                return holding.closed(event)
            case _:
                assert_never(event)

    def _cancelled(self, event: chain.BidsCancelled) -> list[BuyerEffect]:
        placement = self._placement
        if self.phase is not Phase.PLACING or placement is None:
            return []
        nonce = placement.nonce
        dead = nonce < event.nonce if event.below else nonce == event.nonce
        if event.account != self._purse.account or not dead:
            return []
        self._over()
        return [Tell(notice=LeaseNotOpened(kind="cancelled", detail="the bids were cancelled"))]

    def _over(self) -> None:
        self._said_after[_Fact.ENDED] = self._block
        self._is_over = True

    def _take_back(self, block: int) -> list[BuyerEffect]:
        """A longer chain replaced every block after this one."""
        self._opened_after = [after for after in self._opened_after if after < block]
        undone = {fact for fact, after in self._said_after.items() if after >= block}
        for fact in undone:
            del self._said_after[fact]
        if _Fact.ENDED in undone:
            self._is_over = False
        if _Fact.OPENED in undone:
            self._holding = None
        if self._holding is not None and _Fact.STOPPED in undone:
            self._holding.stopped_not()
        if self._holding is not None and _Fact.STARTED in undone:
            self._holding.started_not()
        if self._holding is not None and _Fact.NOTICED in undone:
            return self._holding.noticed(0)
        return []

    # What follows.

    def _advance(self, now: Instant) -> list[BuyerEffect]:
        """Do what is due, and give up what cannot come any more."""
        if self._is_over:
            return []
        if self._holding is not None:
            self._holding.closing = self._closing
            return self._holding.advance(now)
        placement = self._placement
        if placement is None:
            return []
        block_at = self._time.block_at
        gave_up = placement.gave_up(block_at, self._time.at(now) if block_at else unix_seconds(now))
        if gave_up is not None:
            self._over()
            return [Tell(notice=gave_up)]
        effects = placement.on_time(now)
        if self._closing and now >= self._cancel_again_at:
            self._cancel_again_at = now + self._rhythm.chain_patience
            effects.append(Transact(call=CancelOne(nonce=placement.nonce)))
        return effects


def _refused(event: object, phase: Phase) -> list[BuyerEffect]:
    if not isinstance(event, JobWanted):
        return []
    return [
        Tell(notice=JobRefused(job=event.spec.id, detail=f"there is no lease to run in: {phase}"))
    ]
