"""One lease from open to its last money, with its batches: what each side paid, got or lost.

Times are Unix seconds; None: did not happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.units import ZERO_TOKENS, Price, TokenAmount, total
from cloud_gpu.protocol.values import Address

BatchKey: TypeAlias = tuple[LeaseKey, int]
"""A batch: its lease and its number there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccusedSegment:
    """One segment that two verifiers found wrong."""

    i: int
    accused_at: int
    until: int
    """May be contested until then."""
    contested_at: int | None = None
    """A verifier took its word back: nobody is fined, and the segment is not paid."""
    convicted_at: int | None = None
    refund: TokenAmount = ZERO_TOKENS
    """Its price, back to the buyer."""
    fine: TokenAmount = ZERO_TOKENS
    """From the bond."""
    bounty: TokenAmount = ZERO_TOKENS
    """Of the fine, to an audit account; the rest was burnt."""
    from_bond: bool = False
    """The batch had been paid unverified: the refund came from the bond too."""

    @property
    def is_open(self) -> bool:
        """Neither contested nor convicted yet."""
        return self.contested_at is None and self.convicted_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentPoint:
    """One drawn point whose leaf a verifier asked for on chain, and nobody showed."""

    j: int
    convicted_at: int
    refund: TokenAmount
    """Its part of the batch, back to the buyer."""
    fine: TokenAmount
    """From the bond, burnt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLife:
    """One batch from commitment to its last conviction; the amounts after `ended_as` are 0 before,
    but for `inconclusive`.

    `value` = `left`, or convicted segments + provider + market + inconclusive + forfeited.
    """

    lease: LeaseKey
    batch_no: int
    n: int
    """Segments."""
    value: TokenAmount
    """Of the lease's pay."""
    locked: TokenAmount
    """Of the machine's bond, at first."""
    committed_at: int
    drawn_at: int | None = None
    accused: tuple[AccusedSegment, ...] = ()
    silent: tuple[SilentPoint, ...] = ()
    finalised_at: int | None = None
    ended_as: BatchState | None = None
    provider: TokenAmount = ZERO_TOKENS
    market: TokenAmount = ZERO_TOKENS
    audits: TokenAmount = ZERO_TOKENS
    """Out of the buyer's audit share, not out of `value`."""
    inconclusive: TokenAmount = ZERO_TOKENS
    """Back to the buyer: segments whose audits were contested or incomparable."""
    forfeited: TokenAmount = ZERO_TOKENS
    """Burnt: convicted more than once."""

    @property
    def state(self) -> BatchState:
        """As the contract tells it."""
        if self.ended_as is not None:
            return self.ended_as
        if any(segment.is_open for segment in self.accused):
            return BatchState.ACCUSED
        return BatchState.COMMITTED if self.drawn_at is None else BatchState.DRAWN

    @property
    def key(self) -> BatchKey:
        """Its name."""
        return self.lease, self.batch_no

    @property
    def convicted(self) -> TokenAmount:
        """Refunded to the buyer for convicted segments, out of held pay or the bond."""
        segments, points = self.accused, self.silent
        return total([each.refund for each in segments] + [each.refund for each in points])

    @property
    def fines(self) -> TokenAmount:
        """From the machine's bond, bounties included."""
        segments, points = self.accused, self.silent
        return total([each.fine for each in segments] + [each.fine for each in points])

    @property
    def bounties(self) -> TokenAmount:
        """Of the fines: not burnt."""
        return total([segment.bounty for segment in self.accused])

    @property
    def left(self) -> TokenAmount:
        """What of its value is still held."""
        if self.ended_as is not None:
            return ZERO_TOKENS
        return self.value - self.convicted - self.inconclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLife:
    """One lease as the chain tells it."""

    key: LeaseKey
    buyer: Address
    gpu_class: GpuClass
    gpus: int
    price: Price
    cap: TokenAmount
    duration: int
    market_id: int
    opened_at: int
    verified: bool = False
    started_at: int | None = None
    stopped_at: int | None = None
    """The buyer froze it by itself, without the provider's word."""
    closed_at: int | None = None
    paid: TokenAmount = ZERO_TOKENS
    """By the buyer for the provider's side, the market's fee included; held first if verified."""
    fee: TokenAmount = ZERO_TOKENS
    """The market's, so far."""
    penalty: TokenAmount = ZERO_TOKENS
    """From the machine's bond to the buyer."""
    reason: LeaseEndReason | None = None
    batches: tuple[BatchLife, ...] = ()
    returned: TokenAmount = ZERO_TOKENS
    """Held pay that nobody committed to, back to the buyer."""

    @property
    def refund(self) -> TokenAmount:
        """What came back of the cap; 0 while the lease is open."""
        return self.cap - self.paid if self.reason is not None else ZERO_TOKENS

    @property
    def held(self) -> TokenAmount:
        """Of `paid`: neither paid out nor returned yet, committed or not."""
        if not self.is_held:
            return ZERO_TOKENS
        taken = total([batch.value for batch in self.batches])
        return self.paid - self.returned - taken + total([batch.left for batch in self.batches])

    @property
    def paid_out(self) -> TokenAmount:
        """Of `paid`: reached the provider and the market; all of it unless verified."""
        if not self.is_held:
            return self.paid
        return total([batch.provider + batch.market for batch in self.batches])

    @property
    def is_held(self) -> bool:
        """Whether `paid` goes through audits: what a buyer that did not show up owes does not."""
        return self.verified and self.reason is not LeaseEndReason.BUYER_NO_SHOW

    @property
    def audit_share(self) -> TokenAmount:
        """Paid by the buyer to the verifiers' accounts."""
        return total([batch.audits for batch in self.batches])

    @property
    def convicted(self) -> TokenAmount:
        """Refunded to the buyer for convicted segments, out of held pay or the bond."""
        return total([batch.convicted for batch in self.batches])

    @property
    def convicted_from_bond(self) -> TokenAmount:
        """Of `convicted`: after the provider had been paid."""
        return total([segment.refund for segment in self._accused if segment.from_bond])

    @property
    def fines(self) -> TokenAmount:
        """From the machine's bond, bounties included."""
        return total([batch.fines for batch in self.batches])

    @property
    def inconclusive(self) -> TokenAmount:
        """Refunded to the buyer for segments whose audits did not come to a verdict."""
        return total([batch.inconclusive for batch in self.batches])

    @property
    def forfeited(self) -> TokenAmount:
        """Held pay, burnt."""
        return total([batch.forfeited for batch in self.batches])

    @property
    def _accused(self) -> list[AccusedSegment]:
        return [segment for batch in self.batches for segment in batch.accused]
