"""Merkle trees over lists of any length, and the proof that one entry lies in a list, and where.

Leaf = keccak256(0 || entry), node = keccak256(1 || left || right); the last node of an odd level
goes up unchanged; a root is keccak256(2 || uint64 count || top), so a list cannot be shortened.
The prefixes keep an inner node from passing for an entry, as in RFC 6962.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.protocol.values import Digest, Value, keccak256

_LEAF, _NODE, _ROOT = b"\0", b"\1", b"\2"


class Path(Value, frozen=True, kw_only=True):
    """Where an entry stands in a list, and what leads from it to the root."""

    place: int
    """0 is the first."""
    count: int
    """Entries of the whole list."""
    siblings: tuple[Digest, ...] = ()


def leaf_of(entry: bytes) -> Digest:
    """The hash of an entry."""
    return keccak256(_LEAF + entry)


class Tree:
    """The tree of a list, given the hashes of its entries."""

    def __init__(self, leaves: Sequence[Digest]) -> None:
        self.count = len(leaves)
        self._levels = [list(leaves)]
        while len(self._levels[-1]) > 1:
            level = self._levels[-1]
            pairs = [_parent(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
            self._levels.append(pairs + (level[-1:] if len(level) % 2 else []))

    @property
    def root(self) -> Digest:
        """Of an empty list, too."""
        return _root(self.count, self._levels[-1][0].raw if self.count else b"")

    def path(self, place: int) -> Path:
        """From an entry to the root."""
        assert 0 <= place < self.count, (place, self.count)
        siblings, at = [], place
        for level in self._levels[:-1]:
            if (at ^ 1) < len(level):
                siblings.append(level[at ^ 1])
            at //= 2
        return Path(place=place, count=self.count, siblings=tuple(siblings))


def leads_to(root: Digest, entry: bytes, path: Path) -> bool:
    """Whether the list behind `root` has this entry at the path's place."""
    if not 0 <= path.place < path.count < 2**64:
        return False
    node, at, width, siblings = leaf_of(entry), path.place, path.count, list(path.siblings)
    while width > 1:
        if (at ^ 1) < width:
            if not siblings:
                return False
            other = siblings.pop(0)
            node = _parent(other, node) if at % 2 else _parent(node, other)
        at, width = at // 2, (width + 1) // 2
    return not siblings and _root(path.count, node.raw) == root


def _parent(left: Digest, right: Digest) -> Digest:
    return keccak256(_NODE + left.raw + right.raw)


def _root(count: int, top: bytes) -> Digest:
    return keccak256(_ROOT + count.to_bytes(8, "big") + top)
