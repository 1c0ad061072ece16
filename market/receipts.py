"""The market's signatures: under what it has taken in, and under the rounds that it publishes."""

from __future__ import annotations

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.match import Receipt, SignedReceipt
from cloud_gpu.protocol.rounds import NEVER, RoundHeader, SignedHeader
from cloud_gpu.protocol.signing import Domain, state
from cloud_gpu.protocol.units import Instant, unix_seconds
from cloud_gpu.protocol.values import Digest
from market.ports import SignHeader, SignReceipt

RECEIPT_LIFE_S = 30 * limits.ORDER_LIFE_S_MAX
"""How long the market answers for a receipt: an order's life, and time to complain."""


def receipt_signer(key: Signer, domain: Domain) -> SignReceipt:
    """A function that signs receipts: equal arguments, equal bytes."""

    def sign(order: Digest, received_at: Instant, inbox: int) -> SignedReceipt:
        receipt = Receipt(order=order, market=key.address, received_at=received_at, inbox=inbox)
        expiry = unix_seconds(received_at) + RECEIPT_LIFE_S
        return state(receipt, domain, key, nonce=inbox, expiry=expiry)

    return sign


def header_signer(key: Signer) -> SignHeader:
    """A function that signs headers of rounds: equal headers, equal bytes."""

    def sign(header: RoundHeader) -> SignedHeader:
        facts = header.facts
        return state(header, facts.domain, key, nonce=facts.number, expiry=NEVER)

    return sign
