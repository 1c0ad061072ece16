"""Chain calls as calldata, for which contract, and what gas entries may need beyond an estimate.

The EIP-712 type strings fix the order of every struct's fields, here as in the digests.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, assert_never

from cloud_gpu.protocol.adapters.evm_abi import lease_book, plain
from cloud_gpu.protocol.adapters.evm_audits import VerificationCall, audit_calldata
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    Begin,
    CancelOne,
    ChainCall,
    CloseBatch,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    ExpireLease,
    FallbackSeed,
    FinaliseBatch,
    OpenBatch,
    PostReady,
    RefundUnstarted,
    ReleaseLease,
    ReturnHeld,
    RevealPreimage,
    SettleBatch,
    StopLease,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import TypedData
from cloud_gpu.protocol.values import Address

_ENTRY_GAS: Final = 90_000
"""An entry that would be skipped when gas is estimated may go through when it is mined."""


def calldata(call: ChainCall) -> bytes:
    """The bytes that make LeaseBook do it. Raises SettingsInvalid for a contract not deployed."""
    encode = lease_book().encode
    match call:
        case OpenBatch() | SettleBatch() | CloseBatch():
            return _batch(call)
        case PostReady():
            return encode("postReady", struct(call.ready.payload), call.ready.signature)
        case Begin():
            ready, accept = call.ready, call.accept
            signed_ready = struct(ready.payload), ready.signature
            return encode("begin", *signed_ready, struct(accept.payload), accept.signature)
        case StopLease():
            return encode("stop", *_lease(call.lease))
        case ReleaseLease():
            voucher = call.voucher
            named = struct(voucher.payload) if voucher else (*_lease(call.lease), 0)
            return encode("release", named, voucher.signature if voucher else b"", int(call.reason))
        case RefundUnstarted():
            return encode("refundUnstarted", *_lease(call.lease))
        case ExpireLease():
            return encode("expire", *_lease(call.lease))
        case CancelOne():
            return encode("cancelOne", call.nonce)
        case ReturnHeld():
            return encode("returnHeld", *_lease(call.lease))
        case (
            CommitBatch()
            | RevealPreimage()
            | FallbackSeed()
            | AccuseSegment()
            | ContestSegment()
            | ConvictSegment()
            | FinaliseBatch()
        ):
            return audit_calldata(call)
        case _:
            assert_never(call)


def _batch(call: OpenBatch | SettleBatch | CloseBatch) -> bytes:
    encode = lease_book().encode
    match call:
        case OpenBatch():
            matches = [
                (struct(m.ask.payload), struct(m.bid.payload), m.ask.signature, m.bid.signature)
                for m in call.matches
            ]
            return encode("openBatch", call.product, call.price, call.market_id, matches)
        case SettleBatch():
            vouchers = [struct(voucher.payload) for voucher in call.vouchers]
            return encode("settleBatch", vouchers, [v.signature for v in call.vouchers])
        case CloseBatch():
            return encode(
                "closeBatch",
                [struct(closing.voucher.payload) for closing in call.closings],
                [(c.buyer_final or c.voucher).signature for c in call.closings],
                [closing.final.signature for closing in call.closings],
            )
        case _:
            assert_never(call)


def destination(call: ChainCall, deployment: Deployment) -> Address:
    """The contract that a call is for."""
    is_audit = isinstance(call, VerificationCall)
    return deployment.verification if is_audit else deployment.lease_book


def spare_gas(call: ChainCall) -> int:
    """Gas to allow beyond an estimate's margin, for entries that the estimate saw skipped."""
    match call:
        case OpenBatch():
            return _ENTRY_GAS * len(call.matches)
        case SettleBatch():
            return _ENTRY_GAS * len(call.vouchers)
        case CloseBatch():
            return _ENTRY_GAS * len(call.closings)
        case _:
            return 0


def struct(value: TypedData) -> tuple[Any, ...]:
    """A typed value as the tuple that its Solidity struct is."""
    return tuple(plain(getattr(value, name)) for name in _fields(type(value).TYPE))


@cache
def _fields(type_string: str) -> tuple[str, ...]:
    inside = type_string[type_string.index("(") + 1 : -1]
    camel = [field.split(" ")[1] for field in inside.split(",")]
    return tuple(
        "".join("_" + c.lower() if c.isupper() else c for c in name).removeprefix("_")
        for name in camel
    )


def _lease(key: LeaseKey) -> tuple[Any, int, int]:
    return key.provider, key.index, key.seq
