"""The market's signatures: under what it has taken in, and under the rounds that it publishes."""

from __future__ import annotations

from functools import partial

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.receipts import write_receipts
from cloud_gpu.protocol.rounds import NEVER, RoundHeader, SignedHeader
from cloud_gpu.protocol.signing import Domain, state
from market.ports import SignHeader, SignReceipts

RECEIPT_LIFE_S = 30 * limits.ORDER_LIFE_S_MAX
"""How long the market answers for a receipt: an order's life, and time to complain."""


def receipt_signer(key: Signer, domain: Domain) -> SignReceipts:
    """A function that signs receipts, one signature for all that it is given."""
    return partial(write_receipts, key=key, domain=domain, life_s=RECEIPT_LIFE_S)


def header_signer(key: Signer) -> SignHeader:
    """A function that signs headers of rounds: equal headers, equal bytes."""

    def sign(header: RoundHeader) -> SignedHeader:
        facts = header.facts
        return state(header, facts.domain, key, nonce=facts.number, expiry=NEVER)

    return sign
