"""Transactions of type 2 (dynamic fees), signed by a `Signer`. Pure.

Source: EIP-1559, EIP-2718; the yellow paper's appendix B for RLP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.values import Address, Digest, keccak256

_TYPE: Final = b"\x02"
_BUMP_PERCENT: Final = 125
"""Nodes take a replacement from 110 % on; a little more survives their rounding."""


_Item: TypeAlias = "bytes | int | Sequence[_Item]"


class Fees(msgspec.Struct, frozen=True):
    """Wei offered per gas: at most `most` in all, `tip` of it to the block's proposer."""

    most: int
    tip: int

    def bumped(self, now: Fees) -> Fees:
        """Enough to replace a transaction that offered `self`, and to be mined at prices `now`."""
        return Fees(
            most=max(now.most, -(-self.most * _BUMP_PERCENT // 100)),
            tip=max(now.tip, -(-self.tip * _BUMP_PERCENT // 100)),
        )


class Transaction(msgspec.Struct, frozen=True):
    """A call, a deployment (`to` is None) or a transfer of native currency."""

    chain_id: int
    nonce: int
    to: Address | None
    payload: bytes
    gas: int
    fees: Fees
    wei: int = 0

    def signed(self, key: Signer) -> SignedTransaction:
        """Deterministic: the same key and fields give the same bytes and hash."""
        fields: list[_Item] = [
            self.chain_id,
            self.nonce,
            self.fees.tip,
            self.fees.most,
            self.gas,
            self.to.raw if self.to else b"",
            self.wei,
            self.payload,
            [],  # no access list
        ]
        signature = key.sign_digest(keccak256(_TYPE + rlp(fields))).raw
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
        raw = _TYPE + rlp([*fields, signature[64] - 27, r, s])
        return SignedTransaction(raw=raw, hash=keccak256(raw), transaction=self)


class SignedTransaction(msgspec.Struct, frozen=True):
    """What is sent, and the hash it will be found under."""

    raw: bytes
    hash: Digest
    transaction: Transaction


def rlp(item: _Item) -> bytes:
    """Recursive length prefix: integers big-endian without leading zeros, sequences as lists."""
    if isinstance(item, int):
        item = item.to_bytes((item.bit_length() + 7) // 8, "big")
    if isinstance(item, bytes):
        if len(item) == 1 and item[0] < 0x80:
            return item
        return _prefix(0x80, len(item)) + item
    inside = b"".join(rlp(part) for part in item)
    return _prefix(0xC0, len(inside)) + inside


def _prefix(offset: int, length: int) -> bytes:
    if length < 56:
        return bytes([offset + length])
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([offset + 55 + len(digits)]) + digits
