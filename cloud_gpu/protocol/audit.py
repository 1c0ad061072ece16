"""Audits: what a provider commits to, which segments are drawn, and how a verdict reads.

A batch is the segments of one lease under one Merkle sum root; weights are parts per million of
the batch's money. The draw comes after the commitment, from the chain and a verifier's preimage;
a proof shows the interval of 0 … 10^6 that a leaf covers. Equal to Verification.sol; held to
tests/vectors/audit.json. Source: design of value-at-risk batch audits (VARA).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import ClassVar, Final

from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.job import ResultContent, SignedJobResult, SignedJobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import TypedData
from cloud_gpu.protocol.units import GpuSeconds
from cloud_gpu.protocol.values import Address, Digest, Value, keccak256

WEIGHT_ONE: Final = 1_000_000
"""The weights of a batch's segments sum to it."""

SEGMENTS_MAX: Final = 100


BATCHES_MAX: Final = 2**16
"""Of one lease: a batch's number is a uint16."""


def _check_place(what: str, index: int, seq: int, batch_no: int) -> None:
    if not (0 <= index < 2**32 and 0 <= seq < 2**24 and 0 <= batch_no < BATCHES_MAX):
        raise ValueError(f"{what} names no batch that can be: {index}/{seq}#{batch_no}")


class Commit(TypedData, frozen=True, kw_only=True):
    """The provider's word on a batch, signed by its node key."""

    TYPE = "Commit(address provider,uint32 index,uint24 seq,uint16 batchNo,bytes32 root,uint16 n)"
    ROLE = KeyRole.NODE
    provider: Address
    index: int
    seq: int
    batch_no: int
    root: Digest
    n: int

    def __post_init__(self) -> None:
        _check_place("commit", self.index, self.seq, self.batch_no)
        if not 0 < self.n <= SEGMENTS_MAX:
            raise ValueError(f"commit.n is 1 to {SEGMENTS_MAX}, found {self.n}")


class VerdictResult(IntEnum):
    """What two independent executions said about a committed result."""

    MATCH = 0
    MISMATCH = 1
    INCOMPARABLE = 2


class Verdict(TypedData, frozen=True, kw_only=True):
    """A verifier's word on one segment; two equal ones, of two verifiers, accuse."""

    TYPE = (
        "Verdict(address provider,uint32 index,uint24 seq,uint16 batchNo,uint16 i,bytes32 leaf,"
        "bytes32 digest,uint8 result)"
    )
    NAMES = MappingProxyType({"digest": "result_digest"})
    provider: Address
    index: int
    seq: int
    batch_no: int
    i: int
    leaf: Digest
    result_digest: Digest
    """Digest of the result that the re-execution gave."""
    result: VerdictResult

    def __post_init__(self) -> None:
        _check_place("verdict", self.index, self.seq, self.batch_no)
        if not 0 <= self.i < SEGMENTS_MAX:
            raise ValueError(f"verdict.i is 0 to {SEGMENTS_MAX - 1}, found {self.i}")


class Results(TypedData, frozen=True, kw_only=True):
    """A verifier's word on a whole batch: drawn segments of `incomparable` bits did not match."""

    TYPE = "Results(address provider,uint32 index,uint24 seq,uint16 batchNo,uint128 incomparable)"
    provider: Address
    index: int
    seq: int
    batch_no: int
    incomparable: int

    def __post_init__(self) -> None:
        _check_place("results", self.index, self.seq, self.batch_no)
        if not 0 <= self.incomparable < 2**SEGMENTS_MAX:
            raise ValueError(f"results.incomparable has at most {SEGMENTS_MAX} bits")


class BatchState(StrEnum):
    """A batch's life on chain."""

    COMMITTED = "committed"
    DRAWN = "drawn"
    ACCUSED = "accused"
    FINAL = "final"
    PARTIAL = "partial"
    FINAL_UNVERIFIED = "final-unverified"
    SLASHED = "slashed"


def batch_key(lease: LeaseKey, batch_no: int) -> Digest:
    """keccak256(leaseKey, batchNo), both as words."""
    return keccak256(lease.id.raw + batch_no.to_bytes(32, "big"))


class Leaf(Value, frozen=True, kw_only=True):
    """One segment's preimage: known to nobody else before it is opened, thanks to the salt."""

    lease: LeaseKey
    batch_no: int
    i: int
    weight: int
    """Parts per million of the batch."""
    job: Digest
    result: Digest
    salt: Digest

    def __post_init__(self) -> None:
        _check_place("leaf", self.lease.index, self.lease.seq, self.batch_no)
        if not 0 <= self.i < SEGMENTS_MAX:
            raise ValueError(f"leaf.i is 0 to {SEGMENTS_MAX - 1}, found {self.i}")
        if not 0 < self.weight <= WEIGHT_ONE:
            raise ValueError(f"leaf.weight is 1 to {WEIGHT_ONE}, found {self.weight}")

    def hash(self, chain_id: int, verification: Address) -> Digest:
        """keccak256(keccak256(words)): bound to chain, contract and lease; no second preimage."""
        lease = self.lease
        numbers = (lease.index, lease.seq, self.batch_no, self.i, self.weight)
        words = (
            chain_id.to_bytes(32, "big"),
            verification.raw.rjust(32, b"\0"),
            lease.provider.raw.rjust(32, b"\0"),
            *(number.to_bytes(32, "big") for number in numbers),
            self.job.raw,
            self.result.raw,
            self.salt.raw,
        )
        return keccak256(keccak256(b"".join(words)).raw)


class Sibling(Value, frozen=True, kw_only=True):
    """One step of a proof: the other child, and how much weight lies under it."""

    hash: Digest
    weight: int

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= WEIGHT_ONE:
            raise ValueError(f"a node's weight is 0 to {WEIGHT_ONE}, found {self.weight}")


def _parent(left: Sibling, right: Sibling) -> Sibling:
    packed = left.hash.raw + right.hash.raw
    packed += left.weight.to_bytes(4, "big") + right.weight.to_bytes(4, "big")
    return Sibling(hash=keccak256(packed), weight=left.weight + right.weight)


class SumTree:
    """The Merkle sum tree of a batch; the last node of an odd level goes up unchanged."""

    def __init__(self, leaves: Sequence[Sibling]) -> None:
        if not 0 < len(leaves) <= SEGMENTS_MAX:
            raise ValueError(f"a batch has 1 to {SEGMENTS_MAX} segments, found {len(leaves)}")
        if sum(leaf.weight for leaf in leaves) != WEIGHT_ONE:
            raise ValueError(f"the weights of a batch sum to {WEIGHT_ONE}")
        self.n = len(leaves)
        self._levels = [list(leaves)]
        while len(self._levels[-1]) > 1:
            level = self._levels[-1]
            pairs = [_parent(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
            self._levels.append(pairs + (level[-1:] if len(level) % 2 else []))

    @property
    def root(self) -> Digest:
        """keccak256(top hash, uint32 total weight, uint16 n)."""
        return _root(self._levels[-1][0], self.n)

    def proof(self, i: int) -> tuple[Sibling, ...]:
        """The siblings from leaf i to the top."""
        steps = []
        for level in self._levels[:-1]:
            other = i ^ 1
            if other < len(level):
                steps.append(level[other])
            i //= 2
        return tuple(steps)


def _root(top: Sibling, n: int) -> Digest:
    return keccak256(top.hash.raw + top.weight.to_bytes(4, "big") + n.to_bytes(2, "big"))


def prove(root: Digest, n: int, i: int, leaf: Sibling, proof: Sequence[Sibling]) -> int | None:
    """Where leaf i's interval starts, or None when the proof does not lead to the root.

    The leaf covers start … start + weight of 0 … 10^6.
    """
    if not 0 <= i < n <= SEGMENTS_MAX or not leaf.weight:
        return None
    node, start, width, steps = leaf, 0, n, list(proof)
    while width > 1:
        if i ^ 1 < width:
            if not steps:
                return None
            other = steps.pop(0)
            if node.weight + other.weight > WEIGHT_ONE:
                return None
            if i % 2:
                start += other.weight
                node = _parent(other, node)
            else:
                node = _parent(node, other)
        i, width = i // 2, (width + 1) // 2
    whole = node.weight == WEIGHT_ONE and not steps and _root(node, n) == root
    return start if whole else None


def weights(gpu_seconds: Sequence[int]) -> tuple[int, ...]:
    """Parts per million by GPU-seconds, each at least 1, by largest remainder; sums to 10^6."""
    total = sum(gpu_seconds)
    spare = WEIGHT_ONE - len(gpu_seconds)
    shares = [1 + spare * seconds // total for seconds in gpu_seconds]
    order = sorted(range(len(shares)), key=lambda k: (-(spare * gpu_seconds[k] % total), k))
    for k in order[: WEIGHT_ONE - sum(shares)]:
        shares[k] += 1
    return tuple(shares)


def seed_of(block_hash: Digest, preimage: Digest, root: Digest, key: Digest) -> Digest:
    """keccak256(blockhash(commit + 1), preimage, root, batchKey)."""
    return keccak256(block_hash.raw + preimage.raw + root.raw + key.raw)


def draw_point(seed: Digest, j: int) -> int:
    """The j-th point: keccak256(seed, "idx", uint256 j) mod 10^6."""
    drawn = keccak256(seed.raw + b"idx" + j.to_bytes(32, "big"))
    return int.from_bytes(drawn.raw, "big") % WEIGHT_ONE


def segment_at(point: int, batch_weights: Sequence[int]) -> int:
    """The segment whose interval holds the point."""
    end = 0
    for i, weight in enumerate(batch_weights):
        end += weight
        if point < end:
            return i
    raise ValueError(f"the weights of a batch sum to {WEIGHT_ONE}, found {end}")


class Opening(Value, frozen=True, kw_only=True):
    """A segment shown by its leaf's hash and weight alone: what it was of its batch's money."""

    i: int
    leaf: Digest
    weight: int
    proof: tuple[Sibling, ...]


class Evidence(Value, frozen=True, kw_only=True):
    """What a node hands a verifier for one drawn segment; files follow by sha256."""

    KIND: ClassVar[str] = "cloud-gpu/evidence"
    leaf: Leaf
    proof: tuple[Sibling, ...]
    spec: SignedJobSpec
    result: SignedJobResult


class SegmentOutline(Value, frozen=True, kw_only=True):
    """What a provider says of a segment before it opens it; then it is held to it."""

    leaf: Digest
    used: GpuSeconds
    """As in its signed result: the weights follow from it."""
    image: str
    """As in its job."""


class BatchOutline(Value, frozen=True, kw_only=True):
    """All leaves of a batch: with it anybody can recompute the root and what is drawn."""

    KIND: ClassVar[str] = "cloud-gpu/batch-outline"
    lease: LeaseKey
    batch_no: int
    segments: tuple[SegmentOutline, ...]

    @property
    def weights(self) -> tuple[int, ...]:
        """Parts per million by GPU-seconds used; what took no time counts as one."""
        return weights([max(1, segment.used.value) for segment in self.segments])

    @property
    def tree(self) -> SumTree:
        """Over all leaves. Raises ValueError: not 1 to 100 segments."""
        shares = zip(self.segments, self.weights, strict=True)
        return SumTree([Sibling(hash=s.leaf, weight=weight) for s, weight in shares])

    @property
    def root(self) -> Digest:
        """The root that must have been committed. Raises ValueError: not 1 to 100 segments."""
        return self.tree.root

    def openings(self, segments: Iterable[int]) -> tuple[Opening, ...]:
        """These segments opened, ascending."""
        tree, shares = self.tree, self.weights
        return tuple(
            Opening(i=i, leaf=self.segments[i].leaf, weight=shares[i], proof=tree.proof(i))
            for i in sorted(segments)
        )


class Compared(Value, frozen=True, kw_only=True):
    """How one result compares with another under the job's comparator."""

    other: ResultContent
    verdict: VerdictResult
    score: int
    """Distance in parts per million of what is tolerated; 0: the same."""
    version: str
    """Of the comparator: "tensor/1"."""
