"""Which segments of a batch are audited: decided by the seed, recomputable by anybody.

How many follows from the provider's audited value, which ones from points drawn by weight; some
are audited always. Pure. Source: design of value-at-risk batch audits (VARA), §5.1 and §5.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cloud_gpu.protocol.audit import WEIGHT_ONE, BatchOutline, draw_point, segment_at
from cloud_gpu.protocol.limits import BASIS_POINTS_ONE
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Digest, Value, keccak256

AUDIT_RATE: Final = BasisPoints(500)
"""Share of a trusted provider's segments that are audited."""

NEW_SEGMENTS: Final = 10
"""A provider whose audited value is below this many segments is new: everything is drawn."""

WHOLE_BATCH: Final = 10
"""Smaller batches are audited in proportion, or splitting one would cost its owner nothing."""

HEAVY_FROM: Final = 20
HEAVY_SHARE: Final = WEIGHT_ONE // 20
"""From 20 segments on, one above 5 % of the batch is always audited."""

FINE_TIMES: Final = 20
"""The fine of a segment is so many times its price: what the lock does not cover is audited."""

POINTS_MAX: Final = 1_000
"""Then the heaviest that are left: a segment of one part per million would take a million."""


class Trust(Value, frozen=True, kw_only=True):
    """What audits said of a provider before this batch, from the chain and published records."""

    passed: TokenAmount
    """Audited value that paid in full."""
    on_probation: bool = False
    images: frozenset[str] = frozenset()
    """With which it passed before."""


class Stakes(Value, frozen=True, kw_only=True):
    """What is at stake in a batch, as its commitment says."""

    value: TokenAmount
    locked: TokenAmount
    """Of the machine's bond."""


def audits_in_tenths(
    n: int, value: TokenAmount, passed: TokenAmount, rate: BasisPoints = AUDIT_RATE
) -> int:
    """How many of n segments are drawn, in tenths of a segment: the fraction is drawn too.

    a x min(1, n/10); a is n for new providers, else max(1, ceil(rate n), ceil(2n/k)), where k is
    the audited value over the price of a segment, value / n.
    """
    k = passed.value * n // value.value if value.value else 0
    audits = n
    if k >= NEW_SEGMENTS:
        audits = max(1, -(-rate.value * n // BASIS_POINTS_ONE), -(-2 * n // k))
    return audits * min(n, WHOLE_BATCH)


def drawn(
    seed: Digest,
    outline: BatchOutline,
    stakes: Stakes,
    trust: Trust,
    rate: BasisPoints = AUDIT_RATE,
) -> tuple[int, ...]:
    """The segments to audit, ascending."""
    n, shares = len(outline.segments), outline.weights
    if trust.on_probation:
        return tuple(range(n))
    wanted = points(seed, n, stakes, trust, rate)
    by_points: set[int] = set()
    if wanted == n:
        by_points.update(range(n))
    for i in _in_order(seed, shares):
        if len(by_points) == wanted:
            break
        by_points.add(i)
    return tuple(sorted(by_points | set(_always(outline, shares, stakes, trust))))


def points(
    seed: Digest, n: int, stakes: Stakes, trust: Trust, rate: BasisPoints = AUDIT_RATE
) -> int:
    """How many of n segments are drawn by points; known before a leaf is shown."""
    if trust.on_probation:
        return n
    whole, tenths = divmod(audits_in_tenths(n, stakes.value, trust.passed, rate), WHOLE_BATCH)
    return min(n, whole + (_fraction_of(seed) < tenths))


def _fraction_of(seed: Digest) -> int:
    """0 to 9, independent of the points."""
    hashed = keccak256(seed.raw + b"fraction")
    return int.from_bytes(hashed.raw, "big") % WHOLE_BATCH


def _in_order(seed: Digest, shares: tuple[int, ...]) -> Iterator[int]:
    for j in range(POINTS_MAX):
        yield segment_at(draw_point(seed, j), shares)
    yield from sorted(range(len(shares)), key=lambda i: (-shares[i], i))


def _always(
    outline: BatchOutline, shares: tuple[int, ...], stakes: Stakes, trust: Trust
) -> Iterator[int]:
    known = set(trust.images)
    for i, (segment, share) in enumerate(zip(outline.segments, shares, strict=True)):
        is_heavy = len(shares) >= HEAVY_FROM and share > HEAVY_SHARE
        fine = share * FINE_TIMES * stakes.value.value
        if is_heavy or fine > stakes.locked.value * WEIGHT_ONE or segment.image not in known:
            yield i
        known.add(segment.image)


class Preimages:
    """A verifier's hash chain: its anchor is in the contract, each reveal is the next one back.

    keccak256 of a revealed preimage is the one revealed before it, the first one's the anchor.
    """

    def __init__(self, seed: Digest, length: int) -> None:
        self._from_end = [seed]
        for _ in range(length):
            self._from_end.append(keccak256(self._from_end[-1].raw))

    @property
    def anchor(self) -> Digest:
        """What the contract is constructed with."""
        return self._from_end[-1]

    @property
    def length(self) -> int:
        """How many draws it serves."""
        return len(self._from_end) - 1

    def at(self, number: int) -> Digest | None:
        """The preimage for this verifier's draw of that number, from 0; None: used up."""
        return self._from_end[-2 - number] if 0 <= number < self.length else None
