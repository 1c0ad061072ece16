"""Tie keys: among orders of one price that entered in one batch, a hash decides who stands first.

The seed of a batch covers everything that entered in it and the seed before; so the hour of arrival
within a batch buys nothing, and whoever has the published seeds can compute every key again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cloud_gpu.protocol.merkle import Tree, leaf_of
from cloud_gpu.protocol.orders import Ask, Bid, Terms
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest, Value, keccak256


class EntryBatch(Value, frozen=True, kw_only=True):
    """Who entered in one batch."""

    batch: Instant
    """When it began."""
    before: Digest
    """The seed of the one before."""
    entered: tuple[Digest, ...]
    """The subjects, each once, in order."""

    @property
    def root(self) -> Digest:
        """Of the tree over `entered`."""
        return Tree([leaf_of(subject.raw) for subject in self.entered]).root

    @property
    def seed(self) -> Digest:
        """What the tie keys of the batch are drawn with."""
        return seed_after(self.before, self.batch, self.root)


def batch_of(batch: Instant, before: Digest, entered: Iterable[Digest]) -> EntryBatch:
    """A batch that ended."""
    return EntryBatch(batch=batch, before=before, entered=tuple(sorted(set(entered))))


def seed_after(before: Digest, batch: Instant, root: Digest) -> Digest:
    """keccak256(seed before || uint64 batch || root of what entered)."""
    return keccak256(before.raw + batch.to_bytes(8, "big") + root.raw)


def tie_of(seed: Digest, subject: Digest) -> Digest:
    """keccak256(seed || subject)."""
    return keccak256(seed.raw + subject.raw)


def subject_of_ask(ask: Ask) -> Digest:
    """What its tie key is drawn for: all but its end.

    So a node which renews it neither loses its place nor draws again.
    """
    return msgspec.structs.replace(ask, start_by=1).id


def subject_of_bid(bid: Bid, terms: Terms) -> Digest:
    """What its tie key is drawn for: keccak256(buyer || uint32 nonce), of a block || its salt.

    So alternatives are no more tickets than one bid, blocks where they share a salt. Subjects are
    published when their batch ends, before a sealed bid is: without the salt, trying accounts and
    nonces would tell whose it is.
    """
    salt = terms.salt.raw if terms.block else b""
    return keccak256(bid.buyer.raw + bid.nonce.to_bytes(4, "big") + salt)
