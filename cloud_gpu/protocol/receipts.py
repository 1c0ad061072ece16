"""Receipts: a market's signed word that it has orders on disk.

What one commit took in shares one signature: it is under the root of a Merkle tree whose leaves are
the receipts, and each travels with its path. One alone is a tree of one leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import ClassVar, Final

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import NoDelegates, Signer
from cloud_gpu.protocol.merkle import Path, Tree, leads_to, leaf_of
from cloud_gpu.protocol.signing import (
    Domain,
    Statement,
    document_of,
    recover,
    state,
    verify_statement,
)
from cloud_gpu.protocol.units import Instant, instant, unix_seconds
from cloud_gpu.protocol.values import Address, Digest, Value

AHEAD_S_MAX: Final = 300
"""How far a market's clock may be before that of whoever takes its receipt, as of Kerberos."""


class Receipt(Value, frozen=True, kw_only=True):
    """The market has this order on disk."""

    order: Digest
    """Its id; of a group buy the campaign's."""
    inbox: int
    """Position in the market's inbox."""
    received_at: Instant
    """From then on the market has so long to read it; see `is_ahead`."""


class ReceiptRoot(Value, frozen=True, kw_only=True):
    """What is signed, as a statement by the matcher's key."""

    KIND: ClassVar[str] = "cloud-gpu/receipts"
    market: Address
    root: Digest
    """Of a tree of `Receipt`s as canonical JSON; see `merkle`."""


class SignedReceipt(Value, frozen=True, kw_only=True):
    """A receipt as it travels."""

    body: Receipt
    path: Path
    root: Statement[ReceiptRoot]


def sign_receipts(
    receipts: Sequence[Receipt], key: Signer, domain: Domain, *, life_s: int
) -> list[SignedReceipt]:
    """One signature for all, one at least; equal arguments, equal bytes.

    The market answers for them until `life_s` seconds after the newest was received.
    """
    tree = Tree([leaf_of(to_json(each)) for each in receipts])
    root = _root(receipts, tree, key, domain, life_s)
    return [
        SignedReceipt(body=each, path=tree.path(place), root=root)
        for place, each in enumerate(receipts)
    ]


def write_receipts(
    receipts: Sequence[Receipt], key: Signer, domain: Domain, *, life_s: int
) -> list[bytes]:
    """As `sign_receipts`, each as its canonical JSON: what they share is written once."""
    bodies = [to_json(each) for each in receipts]
    tree = Tree([leaf_of(each) for each in bodies])
    root = to_json(_root(receipts, tree, key, domain, life_s))
    return [
        b'{"body":%b,"path":%b,"root":%b}' % (body, to_json(tree.path(place)), root)
        for place, body in enumerate(bodies)
    ]


def _root(
    receipts: Sequence[Receipt], tree: Tree, key: Signer, domain: Domain, life_s: int
) -> Statement[ReceiptRoot]:
    newest = max(receipts, key=attrgetter("inbox"))
    body = ReceiptRoot(market=key.address, root=tree.root)
    expiry = unix_seconds(newest.received_at) + life_s
    return state(body, domain, key, nonce=newest.inbox, expiry=expiry)


def check_receipt(
    receipt: SignedReceipt, domain: Domain, *, market: Address, at: int
) -> Rejection | None:
    """None when it is the word of `market`; `at` in Unix seconds.

    Rejects: BAD_SIGNATURE, also for a path that leads to another root; KEY_NOT_AUTHORISED, EXPIRED;
    DURATION_OUTSIDE_LIMITS, dated ahead: nobody could hold it against the market for so long. One
    that is dated back only convicts it sooner, and an order that is handed in again has such a one.
    """
    if not _is_under_root(receipt):
        return Rejection(
            reason=RejectReason.BAD_SIGNATURE,
            field="receipt.path",
            found="a path to another root",
            needed=f"a path from the receipt to {receipt.root.body.root}, the root that is signed",
            next="Hand the order in again: the market answers with its receipt.",
        )
    refused = verify_statement(
        receipt.root, domain, account=market, keys=NoDelegates(), role=None, at=at
    )
    if refused is not None or not is_ahead(receipt.body, instant(at)):
        return refused
    ahead_s = unix_seconds(receipt.body.received_at) - at
    return Rejection(
        reason=RejectReason.DURATION_OUTSIDE_LIMITS,
        field="receipt.received_at",
        found=f"{receipt.body.received_at} ms, {ahead_s} s ahead of this machine's clock",
        needed=f"at most {AHEAD_S_MAX} s ahead",
        next="Check this machine's clock; if it is right, use a market whose clock is.",
    )


def is_ahead(receipt: Receipt, now: Instant) -> bool:
    """Whether it is dated after `now` by more than clocks may differ."""
    return receipt.received_at > now + instant(AHEAD_S_MAX)


def signer_of_receipt(receipt: SignedReceipt, domain: Domain) -> Address | None:
    """Whose word it is; None: nobody's."""
    if not _is_under_root(receipt):
        return None
    root = receipt.root
    document = document_of(root.body, root.nonce, root.expiry)
    return recover(document.digest(domain), root.signature)


def _is_under_root(receipt: SignedReceipt) -> bool:
    return leads_to(receipt.root.body.root, to_json(receipt.body), receipt.path)
