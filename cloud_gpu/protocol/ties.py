"""Tie keys: among orders of one price that entered in one batch, a hash decides who stands first.

The seed of a batch covers everything that entered in it and the seed before; so the hour of arrival
within a batch buys nothing, and whoever has the published seeds can compute every key again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cloud_gpu.protocol.merkle import Tree, leaf_of
from cloud_gpu.protocol.orders import Ask, Bid
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


def subject_of(order: Ask | Bid) -> Digest:
    """What an order's tie key is drawn for.

    Of an ask: all but its end, so that a node which renews it neither loses its place nor draws
    again. Of a bid: its buyer and nonce, so that alternatives are no more tickets than one bid.
    """
    if isinstance(order, Ask):
        return msgspec.structs.replace(order, start_by=1).id
    return keccak256(order.buyer.raw + order.nonce.to_bytes(4, "big"))
