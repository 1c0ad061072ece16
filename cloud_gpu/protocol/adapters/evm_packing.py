"""Batches in calldata without padding, as `contracts/src/libraries/PackedBatch.sol` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloud_gpu.protocol.calls import Closing, MatchedOrders
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Quantity
from cloud_gpu.protocol.values import Signature
from cloud_gpu.protocol.voucher import Accept

_PINNED: Final = 0x80
"""The bit of a bid's flags that says: it names the ask's provider."""


def packed_matches(product: int, matches: Sequence[MatchedOrders]) -> bytes | None:
    """`openPacked`'s data, 256 bytes a match; None where the layout cannot say one of them.

    Product and matcher are said once, and a bid may name the ask's provider or none. Other pairs
    go through `openBatch`, which says why it skips them.
    """
    matcher = matches[0].ask.payload.matcher if matches else None
    packed = []
    for match in matches:
        ask, bid = match.ask.payload, match.bid.payload
        if not (ask.product == bid.product == product and ask.matcher == bid.matcher == matcher):
            return None
        if not bid.provider.is_zero and bid.provider != ask.provider:
            return None
        packed.append(
            _match(ask, bid) + compact(match.ask.signature) + compact(match.bid.signature)
        )
    return b"".join(packed)


def _match(ask: Ask, bid: Bid) -> bytes:
    pinned = 0 if bid.provider.is_zero else _PINNED
    return b"".join(
        [
            ask.provider.raw + _word(ask.index, 4) + _word(ask.min_price_per_hour, 8),
            bid.buyer.raw + _word(bid.nonce, 4) + _word(bid.max_price_per_hour, 8),
            _word(ask.seq, 3),
            _word(ask.min_duration, 3),
            _word(ask.max_duration, 3),
            _word(ask.start_by, 4),
            _word(ask.max_fee_bps, 2),
            _word(ask.flags, 1),
            _word(bid.duration, 3),
            _word(bid.start_by, 4),
            _word(bid.open_from, 4),
            _word(bid.max_fee_bps, 2),
            _word(bid.audit_bps, 2),
            _word(bid.flags | pinned, 1),
            bid.terms.raw,
        ]
    )


def packed_starts(accepts: Sequence[Signed[Accept]]) -> bytes:
    """`beginPacked`'s data, 75 bytes a lease; the provider is the call's."""
    packed = []
    for accept in accepts:
        said = accept.payload
        head = _word(said.index, 4) + _word(said.seq, 3) + _word(said.started_at, 4)
        packed.append(head + compact(accept.signature))
    return b"".join(packed)


def packed_closings(closings: Sequence[Closing]) -> bytes:
    """`closePacked`'s data with Finals, 161 bytes a lease."""
    packed = []
    for closing in closings:
        voucher = closing.voucher.payload
        head = voucher.provider.raw + _word(voucher.index, 4) + _word(voucher.seq, 3)
        buyer = (closing.buyer_final or closing.voucher).signature
        parts = (head, _word(voucher.amount, 6), compact(buyer), compact(closing.final.signature))
        packed.append(b"".join(parts))
    return b"".join(packed)


def compact(signature: Signature) -> bytes:
    """64 bytes (EIP-2098): v's parity in the highest bit of s, which no good signature sets."""
    raw = signature.raw
    parity = (raw[64] - 27) & 1
    return raw[:32] + bytes([raw[32] | parity << 7]) + raw[33:64]


def _word(value: int | Quantity, size: int) -> bytes:
    number = value if isinstance(value, int) else value.value
    return number.to_bytes(size, "big")
