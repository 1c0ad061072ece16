"""Chain calls as calldata, for which contract, and what gas entries may need beyond an estimate.

The EIP-712 type strings fix the order of every struct's fields, here as in the digests.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, assert_never

from cloud_gpu.protocol.adapters.bindings import lease_book
from cloud_gpu.protocol.adapters.evm_abi import plain
from cloud_gpu.protocol.adapters.evm_audits import VerificationCall, audit_call
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_futures import future_call
from cloud_gpu.protocol.adapters.evm_group_buys import group_call
from cloud_gpu.protocol.adapters.evm_packing import (
    packed_closings,
    packed_matches,
    packed_starts,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    Begin,
    CancelOne,
    ChainCall,
    ChallengeLeaf,
    CloseBatch,
    CloseCampaign,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    ConvictSilence,
    DeliverFuture,
    ExpireLease,
    FallbackSeed,
    FinaliseBatches,
    FutureCall,
    GiveNotice,
    GroupCall,
    LapseFuture,
    LeaseCall,
    LockPledge,
    OpenBatch,
    OpenFutures,
    OpenGang,
    OpenLeaf,
    PostReady,
    RefundPledge,
    RefundUnstarted,
    ReleaseLease,
    ReturnHeld,
    RevealPreimages,
    SettleBatch,
    SettleDefault,
    SettleUnit,
    StopLease,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Signed, TypedData, field_names
from cloud_gpu.protocol.values import Address
from cloud_gpu.protocol.voucher import Ready, Voucher

BookCall: TypeAlias = LeaseCall | ReturnHeld
"""Calls of LeaseBook."""

_ENTRY_GAS: Final = 90_000
_PAIR_GAS: Final = 180_000
"""An entry that would be skipped when gas is estimated may go through when it is mined."""


def calldata(call: ChainCall) -> bytes:
    """The bytes that make a contract do it. Raises SettingsInvalid for one not deployed."""
    match call:
        case (
            CommitBatch()
            | RevealPreimages()
            | FallbackSeed()
            | AccuseSegment()
            | ContestSegment()
            | ConvictSegment()
            | ChallengeLeaf()
            | OpenLeaf()
            | ConvictSilence()
            | FinaliseBatches()
        ):
            return audit_call(call).calldata
        case OpenFutures() | DeliverFuture() | SettleDefault() | LapseFuture() | SettleUnit():
            return future_call(call).calldata
        case LockPledge() | CloseCampaign() | RefundPledge():
            return group_call(call).calldata
        case _:
            return _book_call(call).calldata


def _book_call(call: BookCall) -> Call[None]:
    match call:
        case OpenBatch() | SettleBatch() | CloseBatch():
            return _batch(call)
        case OpenGang():
            return _gang(call)
        case PostReady(ready=ready):
            return lease_book.post_ready(_ready(ready.payload), ready.signature.raw)
        case Begin(ready=ready, accept=accept):
            if ready is None:
                return lease_book.begin_packed(accept.payload.provider, packed_starts([accept]))
            accepted = lease_book.Accept(*struct(accept.payload)), accept.signature.raw
            return lease_book.begin(_ready(ready.payload), ready.signature.raw, *accepted)
        case StopLease():
            return lease_book.stop(*_lease(call.lease))
        case GiveNotice():
            return lease_book.give_notice(*_lease(call.lease))
        case ReleaseLease(voucher=voucher):
            if voucher is None:
                unpaid = lease_book.Voucher(*_lease(call.lease), amount=0)
                return lease_book.release(unpaid, b"", call.reason)
            return lease_book.release(_voucher(voucher), voucher.signature.raw, call.reason)
        case RefundUnstarted():
            return lease_book.refund_unstarted(*_lease(call.lease))
        case ExpireLease():
            return lease_book.expire(*_lease(call.lease))
        case CancelOne():
            return lease_book.cancel_one(call.nonce)
        case ReturnHeld():
            return lease_book.return_held(*_lease(call.lease))
        case _:
            assert_never(call)


def _batch(call: OpenBatch | SettleBatch | CloseBatch) -> Call[None]:
    match call:
        case OpenBatch():
            terms = call.product, call.price.value, call.market_id
            packed = packed_matches(call.product, call.matches)
            if packed is not None:
                return lease_book.open_packed(*terms, packed)
            matches = tuple(
                lease_book.SignedMatch(
                    lease_book.Ask(*struct(m.ask.payload)),
                    lease_book.Bid(*struct(m.bid.payload)),
                    m.ask.signature.raw,
                    m.bid.signature.raw,
                )
                for m in call.matches
            )
            return lease_book.open_batch(*terms, matches)
        case SettleBatch():
            return lease_book.settle_batch(
                tuple(_voucher(voucher) for voucher in call.vouchers),
                tuple(voucher.signature.raw for voucher in call.vouchers),
            )
        case CloseBatch():
            return lease_book.close_packed(packed_closings(call.closings), True)
        case _:
            assert_never(call)


def _gang(call: OpenGang) -> Call[None]:
    return lease_book.open_gang(
        call.product,
        call.price.value,
        call.market_id,
        lease_book.Bid(*struct(call.bid.payload)),
        call.bid.signature.raw,
        tuple(lease_book.Ask(*struct(ask.payload)) for ask in call.asks),
        tuple(ask.signature.raw for ask in call.asks),
    )


def destination(call: ChainCall, deployment: Deployment) -> Address:
    """The contract that a call is for."""
    if isinstance(call, FutureCall):
        return deployment.futures
    if isinstance(call, GroupCall):
        return deployment.group_buy
    is_audit = isinstance(call, VerificationCall)
    return deployment.verification if is_audit else deployment.lease_book


def spare_gas(call: ChainCall) -> int:
    """Gas to allow beyond an estimate's margin, for entries that the estimate saw skipped."""
    match call:
        case OpenBatch():
            return _ENTRY_GAS * len(call.matches)
        case OpenFutures():
            return _PAIR_GAS * len(call.pairs)
        case DeliverFuture():
            return _PAIR_GAS * len(call.machines)
        case SettleBatch():
            return _ENTRY_GAS * len(call.vouchers)
        case CloseBatch():
            return _ENTRY_GAS * len(call.closings)
        case _:
            return 0


def _ready(ready: Ready) -> lease_book.Ready:
    return lease_book.Ready(*struct(ready))


def _voucher(voucher: Signed[Voucher]) -> lease_book.Voucher:
    return lease_book.Voucher(*struct(voucher.payload))


def struct(value: TypedData) -> tuple[Any, ...]:
    """A typed value's fields in the order of its Solidity struct."""
    return tuple(plain(getattr(value, name)) for name in field_names(type(value)))


def _lease(key: LeaseKey) -> tuple[Address, int, int]:
    return key.provider, key.index, key.seq
