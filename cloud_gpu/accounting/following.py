"""Leases followed through the events that concern them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cloud_gpu.accounting.lives import AccusedSegment, BatchKey, BatchLife, LeaseLife, SilentPoint
from cloud_gpu.protocol import limits
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    ChainEvent,
    HeldReturned,
    LeaseClosed,
    LeaseOpened,
    LeaseSettled,
    LeaseStarted,
    LeaseStopped,
    MachineAdded,
    MarketRegistered,
    PenaltyPaid,
    ProductRegistered,
    SegmentAccused,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.settlement import settle
from cloud_gpu.protocol.units import Price, TokenAmount, total
from cloud_gpu.protocol.values import Address

_SECONDS_PER_HOUR = 3600


def lease_lives(events: Iterable[ChainEvent]) -> tuple[LeaseLife, ...]:
    """Every lease of a deployment, from all its events since the first block, oldest first."""
    ledger = _Ledger()
    for event in events:
        ledger.apply(event)
    return ledger.told()


def market_accounts(events: Iterable[ChainEvent]) -> dict[int, Address]:
    """Market id -> the account that its fees go to."""
    return {e.market_id: e.account for e in events if isinstance(e, MarketRegistered)}


class _Ledger:
    """What the events so far made of every lease and batch."""

    def __init__(self) -> None:
        self.lives: dict[LeaseKey, LeaseLife] = {}
        self.batches: dict[BatchKey, BatchLife] = {}
        self.products: dict[int, ProductRegistered] = {}
        self.machines: dict[MachineKey, int] = {}
        self.markets: dict[int, MarketRegistered] = {}

    def told(self) -> tuple[LeaseLife, ...]:
        """Every lease with its batches."""
        return tuple(
            replace(life, batches=tuple(b for b in self.batches.values() if b.lease == key))
            for key, life in self.lives.items()
        )

    def apply(self, event: ChainEvent) -> None:
        match event:
            case ProductRegistered():
                self.products[event.product] = event
            case MachineAdded():
                self.machines[event.machine] = event.product
            case MarketRegistered():
                self.markets[event.market_id] = event
            case LeaseOpened(terms=terms):
                self.lives[terms.key] = self._opened(terms)
            case LeaseStarted():
                self._change(event.lease, started_at=event.started_at)
            case LeaseSettled():
                self._paid(event.lease, event.paid, fee_free=False)
            case PenaltyPaid():
                self._change(event.lease, penalty=event.amount)
            case LeaseClosed():
                no_show = event.reason is LeaseEndReason.BUYER_NO_SHOW
                self._paid(event.lease, event.paid, fee_free=no_show)
                self._change(event.lease, reason=event.reason, closed_at=event.at)
            case HeldReturned():
                self._returned(event.lease)
            case LeaseStopped():  # the cap's rest is back; `refund` tells it when the lease ends
                self._change(event.lease, stopped_at=event.at)
            case _:
                self._audited(event)

    def _audited(self, event: ChainEvent) -> None:
        match event:
            case BatchCommitted():
                batch = BatchLife(
                    lease=event.lease,
                    batch_no=event.batch_no,
                    n=event.n,
                    value=event.value,
                    locked=event.locked,
                    committed_at=event.at,
                )
                self.batches[batch.key] = batch
            case BatchDrawn():
                self._change_batch((event.lease, event.batch_no), drawn_at=event.at)
            case SegmentAccused():
                key = (event.lease, event.batch_no)
                segment = AccusedSegment(i=event.i, accused_at=event.at, until=event.until)
                self._change_batch(key, accused=(*self.batches[key].accused, segment))
            case AccusationContested():
                self._change_segment(event, contested_at=event.at)
                key = (event.lease, event.batch_no)
                before = self.batches[key].inconclusive
                self._change_batch(key, inconclusive=before + event.refund)
            case SegmentConvicted():
                self._change_segment(
                    event,
                    convicted_at=event.at,
                    refund=event.refund,
                    fine=event.fine,
                    bounty=event.bounty,
                    from_bond=self.batches[event.lease, event.batch_no].ended_as is not None,
                )
            case SilenceConvicted(j=j, refund=refund, fine=fine):
                key = (event.lease, event.batch_no)
                point = SilentPoint(j=j, convicted_at=event.at, refund=refund, fine=fine)
                self._change_batch(key, silent=(*self.batches[key].silent, point))
            case BatchFinalised():
                self._finalised(event)
            case _:
                pass

    def _opened(self, terms: LeaseTerms) -> LeaseLife:
        product = self.products[self.machines[terms.key.machine]]
        return LeaseLife(
            key=terms.key,
            buyer=terms.buyer,
            gpu_class=product.gpu_class,
            gpus=product.slice_gpus,
            price=_price_of(terms.cap, product.slice_gpus * terms.duration),
            cap=terms.cap,
            duration=terms.duration,
            market_id=terms.market_id,
            opened_at=terms.opened_at,
            verified=terms.is_verified,
        )

    def _paid(self, lease: LeaseKey, paid: TokenAmount, *, fee_free: bool) -> None:
        life = self.lives[lease]
        fee = life.fee
        market = self.markets.get(life.market_id)
        if market is not None and not fee_free and not life.verified:
            split = settle(life.cap, life.paid, paid, paid, market.fee, close=False)
            fee = fee + split.market
        self._change(lease, paid=paid, fee=fee)

    def _returned(self, lease: LeaseKey) -> None:
        """All pay that no batch took; its audit share, in the same amount, was the buyer's."""
        life = self.lives[lease]
        taken = total([b.value for b in self.batches.values() if b.lease == lease])
        self._change(lease, returned=life.paid - taken)

    def _finalised(self, event: BatchFinalised) -> None:
        key = (event.lease, event.batch_no)
        batch = self.batches[key]
        if batch.ended_as is not None:  # fraud, after it was paid unverified
            self._change_batch(key, ended_as=event.state)
            return
        self._change(event.lease, fee=self.lives[event.lease].fee + event.market)
        self._change_batch(
            key,
            finalised_at=event.at,
            ended_as=event.state,
            provider=event.provider,
            market=event.market,
            audits=event.audits,
            inconclusive=batch.inconclusive + _rest(batch, event),
            forfeited=event.burnt,
        )

    def _change(self, lease: LeaseKey, **changes: object) -> None:
        self.lives[lease] = replace(self.lives[lease], **changes)  # type: ignore[arg-type]

    def _change_batch(self, key: BatchKey, **changes: object) -> None:
        self.batches[key] = replace(self.batches[key], **changes)  # type: ignore[arg-type]

    def _change_segment(
        self, event: AccusationContested | SegmentConvicted, **changes: object
    ) -> None:
        key = (event.lease, event.batch_no)
        accused = tuple(
            replace(segment, **changes) if segment.i == event.i else segment  # type: ignore[arg-type]
            for segment in self.batches[key].accused
        )
        self._change_batch(key, accused=accused)


def _rest(batch: BatchLife, event: BatchFinalised) -> TokenAmount:
    """Of the pay: neither paid nor burnt at the end, so the buyer's again."""
    return batch.left - event.provider - event.market - event.burnt


def _price_of(cap: TokenAmount, gpu_seconds: int) -> Price:
    """The price whose floor(price * GPU-seconds / 3600) is the cap: one tick fits, the next."""
    scaled = cap.value * _SECONDS_PER_HOUR
    return Price(-(-scaled // (gpu_seconds * limits.PRICE_TICK)) * limits.PRICE_TICK)
