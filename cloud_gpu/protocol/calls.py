"""Calls of the contracts that parties make by themselves, named after the functions.

The wallet's own calls (deposit, addMachine, …) belong to adapters. A call that fails comes back
as `TransactionFailed`, an entry of a batch that the contract skips as `EntrySkipped`.
"""

from __future__ import annotations

from typing import TypeAlias

from cloud_gpu.protocol.audit import Commit, Leaf, Opening, Results, Sibling, Verdict
from cloud_gpu.protocol.futures import FuturePair, Series
from cloud_gpu.protocol.group_buy import Campaign, Pledge
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import Address, Digest, Value
from cloud_gpu.protocol.voucher import Accept, Final, Ready, Voucher


class _Call(Value, frozen=True, kw_only=True, tag=True):
    pass


class MatchedOrders(Value, frozen=True, kw_only=True):
    """One entry of a batch."""

    ask: Signed[Ask]
    bid: Signed[Bid]


class OpenBatch(_Call, frozen=True, kw_only=True):
    """`price` 0: every entry at its ask's price (payAsAsk)."""

    product: int
    price: Price
    market_id: int
    matches: tuple[MatchedOrders, ...]


class OpenGang(_Call, frozen=True, kw_only=True):
    """One bid over several machines: a lease each, all or none.

    `price` counts for a bid that does not say that it pays each ask's own (PAY_AS_ASK).
    """

    product: int
    price: Price
    market_id: int
    bid: Signed[Bid]
    asks: tuple[Signed[Ask], ...]


OpeningCall: TypeAlias = OpenBatch | OpenGang
"""What makes leases of orders."""


def pairs_of(call: OpeningCall) -> tuple[MatchedOrders, ...]:
    """Ask and bid of every lease that a call would open."""
    if isinstance(call, OpenBatch):
        return call.matches
    return tuple(MatchedOrders(ask=ask, bid=call.bid) for ask in call.asks)


class PostReady(_Call, frozen=True, kw_only=True):
    ready: Signed[Ready]


class Begin(_Call, frozen=True, kw_only=True):
    """`ready` None: the provider or its node key sends it, whose call says as much."""

    ready: Signed[Ready] | None
    accept: Signed[Accept]


class SettleBatch(_Call, frozen=True, kw_only=True):
    vouchers: tuple[Signed[Voucher], ...]


class Closing(Value, frozen=True, kw_only=True):
    """One lease to close at the voucher's amount.

    `final` is the provider's word. Before the lease's end the buyer must agree too: its own Final
    of the same amount stands in for the voucher's signature.
    """

    voucher: Signed[Voucher]
    final: Signed[Final]
    buyer_final: Signed[Final] | None = None


class CloseBatch(_Call, frozen=True, kw_only=True):
    closings: tuple[Closing, ...]


class StopLease(_Call, frozen=True, kw_only=True):
    """The buyer ends it now."""

    lease: LeaseKey


class GiveNotice(_Call, frozen=True, kw_only=True):
    """The provider, or its node, will leave an interruptible lease after the product's notice."""

    lease: LeaseKey


class ReleaseLease(_Call, frozen=True, kw_only=True):
    """The provider gives it up; its node does, too, once the notice has run."""

    lease: LeaseKey
    voucher: Signed[Voucher] | None
    reason: LeaseEndReason


class RefundUnstarted(_Call, frozen=True, kw_only=True):
    lease: LeaseKey


class ExpireLease(_Call, frozen=True, kw_only=True):
    lease: LeaseKey


class CancelOne(_Call, frozen=True, kw_only=True):
    """The buyer voids its bids that carry this nonce."""

    nonce: int


class CommitBatch(_Call, frozen=True, kw_only=True):
    """Verification: the provider commits a lease's segments."""

    commit: Signed[Commit]


class Draw(Value, frozen=True, kw_only=True):
    """One batch to draw, with its preimage of the verifier's chain."""

    lease: LeaseKey
    batch_no: int
    preimage: Digest


class RevealPreimages(_Call, frozen=True, kw_only=True):
    """Verification: draw these batches; one that is drawn already is left out."""

    draws: tuple[Draw, ...]


class FallbackSeed(_Call, frozen=True, kw_only=True):
    """Verification: draw without the verifier."""

    lease: LeaseKey
    batch_no: int


class AccuseSegment(_Call, frozen=True, kw_only=True):
    """Verification: a leaf, its proof, and two verifiers' equal verdicts."""

    leaf: Leaf
    proof: tuple[Sibling, ...]
    first: Signed[Verdict]
    second: Signed[Verdict]


class ContestSegment(_Call, frozen=True, kw_only=True):
    verdict: Signed[Verdict]
    opening: Opening
    """The segment: the contract keeps no weights."""


class ConvictSegment(_Call, frozen=True, kw_only=True):
    lease: LeaseKey
    batch_no: int
    opening: Opening


class ChallengeLeaf(_Call, frozen=True, kw_only=True):
    """Verification: a verifier asks to see the leaf at point j of m."""

    lease: LeaseKey
    batch_no: int
    j: int
    m: int


class OpenLeaf(_Call, frozen=True, kw_only=True):
    """Verification: the leaf under a challenged point."""

    j: int
    leaf: Leaf
    proof: tuple[Sibling, ...]


class ConvictSilence(_Call, frozen=True, kw_only=True):
    """Verification: nobody showed the leaf at point j in time."""

    lease: LeaseKey
    batch_no: int
    j: int


class Ending(Value, frozen=True, kw_only=True):
    """One batch's end: with a verifier's signed results, or past the hard cap without."""

    lease: LeaseKey
    batch_no: int
    results: Signed[Results] | None
    openings: tuple[Opening, ...] = ()
    """Of the incomparable segments, unless nothing of the batch is paid."""


class FinaliseBatches(_Call, frozen=True, kw_only=True):
    """Verification: end these batches; one that has ended is left out."""

    endings: tuple[Ending, ...]


class ReturnHeld(_Call, frozen=True, kw_only=True):
    lease: LeaseKey


class OpenFutures(_Call, frozen=True, kw_only=True):
    """Futures: contracts of one series at one price; a pair that breaks a limit is left out."""

    series: Series
    price: Price
    pairs: tuple[FuturePair, ...]


class DeliverFuture(_Call, frozen=True, kw_only=True):
    """Futures: open the firm leases of a contract's nominated machines, in the nominated order."""

    contract: int
    machines: tuple[int, ...]


class SettleDefault(_Call, frozen=True, kw_only=True):
    """Futures: end a contract whose long did not fund, or whose short named nothing, in time."""

    contract: int


class LapseFuture(_Call, frozen=True, kw_only=True):
    """Futures: give everything back where nobody delivered in time."""

    contract: int


class SettleUnit(_Call, frozen=True, kw_only=True):
    """Futures: pay out the margins behind a firm lease that ended."""

    lease: LeaseKey


class LockPledge(_Call, frozen=True, kw_only=True):
    """GroupBuy: lock a buyer's pledge, whoever sends it."""

    campaign: Campaign
    pledge: Signed[Pledge]


class CloseCampaign(_Call, frozen=True, kw_only=True):
    """GroupBuy: open one lease an ask, to the pledges in their order; all or none."""

    campaign: Campaign
    providers: tuple[Address, ...]
    """As the campaign names them; empty: anybody may serve it."""
    asks: tuple[Signed[Ask], ...]


class RefundPledge(_Call, frozen=True, kw_only=True):
    """GroupBuy: give back one pledge of a campaign that missed its goal."""

    campaign: Campaign
    place: int


FutureCall: TypeAlias = OpenFutures | DeliverFuture | SettleDefault | LapseFuture | SettleUnit
GroupCall: TypeAlias = LockPledge | CloseCampaign | RefundPledge

AuditCall: TypeAlias = (
    CommitBatch
    | RevealPreimages
    | FallbackSeed
    | AccuseSegment
    | ContestSegment
    | ConvictSegment
    | ChallengeLeaf
    | OpenLeaf
    | ConvictSilence
    | FinaliseBatches
    | ReturnHeld
)
"""About verified leases."""

LeaseCall: TypeAlias = (
    OpenBatch
    | OpenGang
    | PostReady
    | Begin
    | SettleBatch
    | CloseBatch
    | StopLease
    | GiveNotice
    | ReleaseLease
    | RefundUnstarted
    | ExpireLease
    | CancelOne
)
"""About leases of any kind."""

ChainCall: TypeAlias = LeaseCall | AuditCall | FutureCall | GroupCall
