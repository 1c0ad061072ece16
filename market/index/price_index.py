"""The price index of a GPU class: what leases that ran and were paid cost, hard to move by trading
with oneself. Information only: no payment, margin or limit reads it.

Per hour the median by GPU-seconds, in which no pair of accounts counts for more than a twentieth
of the day; of the last 24 hours, their median. Source: the market's design, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, TokenAmount
from cloud_gpu.protocol.values import Address, Value

HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
LEAST_S: Final = HOUR_S
"""Shorter leases say little about a price, and cost a forger little."""
PAIRS_MIN: Final = 5
"""Distinct pairs of accounts in a day; with fewer, the index is held and marked stale."""
PAIR_SHARE: Final = BasisPoints(500)
"""The most that one pair counts for, of the day's GPU-seconds."""
DRIFT_A_DAY: Final = BasisPoints(500)
"""How far a held index follows the book's middle in a day."""
_ONE: Final = 10_000

Pair = tuple[Address, Address]


class PaidLease(Value, frozen=True, kw_only=True):
    """A lease of this market that ended, ran for `LEAST_S` or more and was paid."""

    gpu_class: GpuClass
    provider: Address
    buyer: Address
    per_hour: TokenAmount
    """Paid a GPU-hour."""
    quantity: GpuSeconds
    """What was paid for."""
    ended_at: int
    """Unix seconds."""

    @property
    def pair(self) -> Pair:
        """Who traded with whom."""
        return self.provider, self.buyer


def price_index(
    gpu_class: GpuClass,
    leases: Iterable[PaidLease],
    *,
    at: int,
    before: IndexPoint | None = None,
    middle: TokenAmount | None = None,
) -> IndexPoint | None:
    """The index at `at`; None: too little was ever traded.

    `before` is the newest point, `middle` the book's, halfway between its best ask and bid.
    """
    day = [
        lease
        for lease in leases
        if lease.gpu_class == gpu_class and at - DAY_S <= lease.ended_at < at
    ]
    volumes = _by_pair(day)
    whole = sum(volumes.values())
    if len(volumes) >= PAIRS_MIN:
        per_hour, is_stale = _median_of_hours(day, volumes, at), False
    elif before is not None:
        per_hour, is_stale = _held(before, middle, at), True
    else:
        return None
    return IndexPoint(
        gpu_class=gpu_class,
        at=at,
        per_hour=per_hour,
        is_stale=is_stale,
        mean=_mean(day) if whole else None,
        quantity=GpuSeconds(whole),
        pairs=len(volumes),
        concentration=BasisPoints(max(volumes.values()) * _ONE // whole if whole else 0),
    )


def _by_pair(leases: Sequence[PaidLease]) -> dict[Pair, int]:
    volumes: dict[Pair, int] = {}
    for lease in leases:
        volumes[lease.pair] = volumes.get(lease.pair, 0) + lease.quantity.value
    return volumes


def _median_of_hours(
    leases: Sequence[PaidLease], volumes: Mapping[Pair, int], at: int
) -> TokenAmount:
    """Hours without a lease do not count; of an even number, the two in the middle are halved."""
    most = sum(volumes.values()) * PAIR_SHARE.value // _ONE
    rows = sorted(
        (
            (at - 1 - lease.ended_at) // HOUR_S,
            lease.per_hour.value,
            _counted(lease.quantity.value, volumes[lease.pair], most),
        )
        for lease in leases
    )
    medians = sorted(
        _weighted_median([(price, weight) for _, price, weight in hour])
        for _, hour in groupby(rows, key=lambda row: row[0])
    )
    half = len(medians) // 2
    if len(medians) % 2:
        return TokenAmount(medians[half])
    return TokenAmount((medians[half - 1] + medians[half]) // 2)


def _counted(quantity: int, of_pair: int, most: int) -> int:
    """What of a lease counts, in millionths of a GPU-second: its part of its pair's cap."""
    return quantity * 10**6 * min(of_pair, most) // of_pair


def _weighted_median(rows: Sequence[tuple[int, int]]) -> int:
    """The least price up to which half of the weight lies; `rows` by price."""
    whole, reached = sum(weight for _, weight in rows), 0
    for price, weight in rows:
        reached += weight
        if 2 * reached >= whole:
            return price
    raise AssertionError("an hour without leases has no median")


def _mean(leases: Sequence[PaidLease]) -> TokenAmount:
    volume = sum(lease.quantity.value for lease in leases)
    return TokenAmount(
        sum(lease.per_hour.value * lease.quantity.value for lease in leases) // volume
    )


def _held(before: IndexPoint, middle: TokenAmount | None, at: int) -> TokenAmount:
    """The index before, nearer to the book's middle by at most `DRIFT_A_DAY`."""
    if middle is None:
        return before.per_hour
    found = before.per_hour.value
    step = found * DRIFT_A_DAY.value * max(0, at - before.at) // (_ONE * DAY_S)
    return TokenAmount(min(max(middle.value, found - step), found + step))
