"""What a skipped entry of a batch means: LeaseBook's codes, and each in `RejectReason`s."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.chain_events import EntrySkipped, TransactionFailed
from cloud_gpu.protocol.errors import Rejection, RejectReason


class SkipCode(IntEnum):
    """Why LeaseBook left one entry of a batch out, in the order of Lifecycle.sol."""

    NONE = 0
    WRONG_PRODUCT = 1
    WRONG_COUNT = 2
    WRONG_MATCHER = 3
    WRONG_PROVIDER = 4
    SELF_DEALING = 5
    PRICE_OUTSIDE_LIMITS = 6
    DURATION_OUTSIDE_LIMITS = 7
    EXPIRED = 8
    FEE_ABOVE_LIMIT = 9
    FLAGS_DIFFER = 10
    VERIFIED_CLOSED = 11
    MACHINE_NOT_FREE = 12
    STALE_SEQUENCE = 13
    CAP_OUT_OF_RANGE = 14
    BOND_TOO_LOW = 15
    CASH_TOO_LOW = 16
    NONCE_USED = 17
    BAD_ASK_SIGNATURE = 18
    BAD_BID_SIGNATURE = 19
    WRONG_STATE = 20
    NOTHING_DUE = 21
    BAD_VOUCHER_SIGNATURE = 22
    BAD_FINAL_SIGNATURE = 23
    STILL_RUNNING = 24
    HELD_NOT_CLEARED = 25
    START_OUT_OF_RANGE = 26
    BAD_ACCEPT_SIGNATURE = 27
    WRONG_SERIES = 28
    PROVIDER_BARRED = 29
    ORDER_CLOSED = 30


_SKIPS: Final[Mapping[SkipCode, tuple[RejectReason, str, str]]] = MappingProxyType(
    {
        SkipCode.WRONG_PRODUCT: (
            RejectReason.WRONG_PRODUCT,
            "product",
            "one product in both orders, the machine's and the batch's",
        ),
        SkipCode.WRONG_COUNT: (
            RejectReason.WRONG_COUNT,
            "bid.count",
            "the GPUs of one machine of the product",
        ),
        SkipCode.WRONG_MATCHER: (
            RejectReason.WRONG_MATCHER,
            "matcher",
            "the caller as matcher of both orders",
        ),
        SkipCode.WRONG_PROVIDER: (
            RejectReason.WRONG_PROVIDER,
            "bid.provider",
            "the ask's provider, or any",
        ),
        SkipCode.SELF_DEALING: (
            RejectReason.SELF_DEALING,
            "ask.provider",
            "a provider other than the buyer",
        ),
        SkipCode.PRICE_OUTSIDE_LIMITS: (
            RejectReason.PRICE_OUTSIDE_LIMITS,
            "price",
            "a price within both limits",
        ),
        SkipCode.DURATION_OUTSIDE_LIMITS: (
            RejectReason.DURATION_OUTSIDE_LIMITS,
            "bid.duration",
            "a duration within the ask's",
        ),
        SkipCode.EXPIRED: (RejectReason.EXPIRED, "start_by", "orders that are still valid"),
        SkipCode.FEE_ABOVE_LIMIT: (
            RejectReason.FEE_ABOVE_LIMIT,
            "max_fee_bps",
            "the market's fee within both orders' limits",
        ),
        SkipCode.FLAGS_DIFFER: (RejectReason.FLAGS_DIFFER, "flags", "flags that agree"),
        SkipCode.VERIFIED_CLOSED: (
            RejectReason.FLAGS_DIFFER,
            "flags",
            "no verified lease: this deployment opens none now",
        ),
        SkipCode.MACHINE_NOT_FREE: (
            RejectReason.MACHINE_NOT_FREE,
            "ask.index",
            "a machine that is free",
        ),
        SkipCode.STALE_SEQUENCE: (
            RejectReason.STALE_SEQUENCE,
            "ask.seq",
            "the machine's next lease number",
        ),
        SkipCode.CAP_OUT_OF_RANGE: (
            RejectReason.CAP_OUT_OF_RANGE,
            "bid.duration",
            "a cost of 1 to 2^48-1 base units",
        ),
        SkipCode.BOND_TOO_LOW: (
            RejectReason.BOND_TOO_LOW,
            "ask.index",
            "a free bond that covers the product's share of the cap",
        ),
        SkipCode.CASH_TOO_LOW: (
            RejectReason.CASH_TOO_LOW,
            "bid.buyer",
            "cash in the vault that covers the cap",
        ),
        SkipCode.NONCE_USED: (RejectReason.NONCE_USED, "bid.nonce", "a nonce not used before"),
        SkipCode.BAD_ASK_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "ask.signature",
            "the signature of the provider or its node key",
        ),
        SkipCode.BAD_BID_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "bid.signature",
            "the signature of the buyer",
        ),
        SkipCode.WRONG_STATE: (
            RejectReason.WRONG_STATE,
            "voucher.seq",
            "the machine's newest lease, active or stopped",
        ),
        SkipCode.NOTHING_DUE: (
            RejectReason.DUPLICATE,
            "voucher.amount",
            "more than what was paid already, and accrued",
        ),
        SkipCode.BAD_VOUCHER_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "voucher.signature",
            "the signature of the buyer or its session key",
        ),
        SkipCode.BAD_FINAL_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "final.signature",
            "the signature of the provider or its node key",
        ),
        SkipCode.STILL_RUNNING: (
            RejectReason.WRONG_STATE,
            "buyer_final",
            "the lease's end, or the buyer's own Final to end it early",
        ),
        SkipCode.HELD_NOT_CLEARED: (
            RejectReason.MACHINE_NOT_FREE,
            "ask.seq",
            "a machine whose fourth last verified lease was audited to its end",
        ),
        SkipCode.START_OUT_OF_RANGE: (
            RejectReason.WRONG_STATE,
            "accept.started_at",
            "a time from the lease's opening to the block's",
        ),
        SkipCode.BAD_ACCEPT_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "accept.signature",
            "the signature of the buyer or its session key",
        ),
        SkipCode.WRONG_SERIES: (
            RejectReason.WRONG_PRODUCT,
            "series",
            "a buy and a sell order of the call's product and window",
        ),
        SkipCode.PROVIDER_BARRED: (
            RejectReason.PROVIDER_BARRED,
            "ask.provider",
            "a provider that no fraud cost its verified leases",
        ),
        SkipCode.ORDER_CLOSED: (
            RejectReason.ORDER_CLOSED,
            "future_order",
            "an order that its trader has not closed",
        ),
    }
)
"""One row a code: reason, the field concerned, what the contract needed."""


def rejection_of(code: int) -> Rejection:
    """What a skipped entry is told; an unknown code is a newer contract's, and says so."""
    try:
        known = SkipCode(code)
        reason, field, needed = _SKIPS[known]
    except (ValueError, KeyError):
        return Rejection(reason=RejectReason.MALFORMED, found=f"skip code {code} of LeaseBook")
    found = known.name.lower().replace("_", " ")
    return Rejection(reason=reason, field=field, found=found, needed=needed)


_REFUSED_ENTRY: Final = re.compile(r"LeaseBook_EntryRefused\(index=(\d+), code=(\w+)\)")


def failure_of(call: ChainCall, error: str) -> EntrySkipped | TransactionFailed:
    """What a call's party is told of its revert; of a gang, which machine was refused and why."""
    refused = _REFUSED_ENTRY.match(error)
    if refused is None or refused[2] not in SkipCode.__members__:
        return TransactionFailed(call=call, error=error)
    rejection = rejection_of(SkipCode[refused[2]])
    return EntrySkipped(call=call, position=int(refused[1]), rejection=rejection)
