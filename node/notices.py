"""Who is given notice: whom the operator names, who stands in a promise's way, who pays least.

*Utilisation* is the share of a node's machines that are leased to somebody who stays, kept for a
window that they were named for, or out of order. Below the preemption threshold machines are
offered as interruptible, as many as stay below it, and the others as firm, at a price of their own;
once firm leases reach it, who pays least is given notice. So notice follows a demand that was met,
and nobody takes a machine only to leave it again. Decision 21.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.lease import LeaseKey, LeaseState
from cloud_gpu.protocol.units import BasisPoints, instant
from cloud_gpu.protocol.values import Value
from node.ledger import LeaseOnChain, Ledger
from node.review import Review

NO_THRESHOLD: Final = BasisPoints(0)
"""No machine is kept for firm leases."""

RELEASE_MARGIN_S: Final = 300
"""Before a window: for the transactions of notice and release to be mined."""


class NoticeOutlook(Value, frozen=True, kw_only=True):
    """What notice to a lease means; times in Unix seconds."""

    lease: LeaseKey
    is_given: bool
    """On chain already; False: it is on its way, and `releasable_at` is an estimate."""
    releasable_at: int
    ends_at: int
    """By its own duration."""


def outlook(target: str, ledger: Ledger, at: int) -> NoticeOutlook | Rejection:
    """What notice to "3", "3/7" or "0x…/3/7" (machine, lease number) would do at `at`."""
    found = _running(target, ledger)
    if isinstance(found, Rejection):
        return found
    lease = found.terms.key
    if not found.terms.is_interruptible:
        return Rejection(
            reason=RejectReason.FLAGS_DIFFER,
            field="lease.interruptible",
            found=f"no, {lease.index}/{lease.seq} is firm",
            needed="a lease that opened as interruptible",
            next="Let it end, or release it with the wallet, which costs the product's penalty.",
        )
    return NoticeOutlook(
        lease=lease,
        is_given=bool(found.releasable_at),
        releasable_at=found.releasable_at or at + ledger.notice_s(lease.index),
        ends_at=found.ends_at,
    )


def _running(target: str, ledger: Ledger) -> LeaseOnChain | Rejection:
    running = [each for each in ledger.leases.values() if each.state is LeaseState.ACTIVE]
    for each in running:
        key = each.terms.key
        names = (str(key.index), f"{key.index}/{key.seq}", str(key).lower())
        if target.strip().lower() in names:
            return each
    known = ", ".join(f"{each.terms.key.index}/{each.terms.key.seq}" for each in running)
    return Rejection(
        reason=RejectReason.UNKNOWN_LEASE,
        field="lease",
        found=repr(target)[:80],
        needed=f"a machine or lease that runs: {known or 'none does'}",
        next='Name it as `cloud-gpu-node status` does: "3/7", or "3" for the lease of machine 3.',
    )


def due(
    ledger: Ledger, leaving: Collection[LeaseKey], room: int | None, review: Review
) -> list[LeaseKey]:
    """Leases to be given notice now. `room`: see `room_below`; None: no threshold is set."""
    too_many = 0 if room is None else -room
    return [
        *in_the_way(ledger, review),
        *paying_least(ledger.leases.values(), leaving, too_many),
    ]


def in_the_way(ledger: Ledger, review: Review) -> list[LeaseKey]:
    """Leases on machines that were named for a window, when it is time to tell them."""
    found = []
    for lease in _may_be_told(ledger.leases.values()):
        index = lease.terms.key.index
        window = ledger.promised_from(index)
        if window is None or lease.ends_at <= window - RELEASE_MARGIN_S:
            continue
        tell_at = instant(window - RELEASE_MARGIN_S - ledger.notice_s(index))
        review.look_at(tell_at)
        if review.now >= tell_at:
            found.append(lease.terms.key)
    return found


def room_below(threshold: BasisPoints, machines: int, used: int) -> int:
    """How many more of the machines can be used below the threshold; negative: how many too many.

    At 10,000 one stays free. `threshold` is a share of the machines.
    """
    most = -(-threshold.value * machines // limits.BASIS_POINTS_ONE) - 1
    return max(most, 0) - used


def paying_least(
    leases: Iterable[LeaseOnChain], leaving: Collection[LeaseKey], count: int
) -> list[LeaseKey]:
    """The next interruptible leases to give up: least pay a second, then the last begun."""
    candidates = sorted(
        (each for each in _may_be_told(leases) if each.terms.key not in leaving),
        key=lambda each: (
            Fraction(each.terms.cap.value, each.terms.duration),
            -each.started_at,
            each.terms.key,
        ),
    )
    return [each.terms.key for each in candidates[: max(count, 0)]]


def used_machines(
    leases: Mapping[LeaseKey, LeaseOnChain], leaving: Collection[LeaseKey]
) -> frozenset[int]:
    """Indexes of the machines whose lease stays; `leaving`: those about to be given notice."""
    return frozenset(
        key.index
        for key, lease in leases.items()
        if lease.state is not LeaseState.CLOSED and not lease.releasable_at and key not in leaving
    )


def _may_be_told(leases: Iterable[LeaseOnChain]) -> list[LeaseOnChain]:
    return [
        each
        for each in leases
        if each.state is LeaseState.ACTIVE
        and each.terms.is_interruptible
        and not each.releasable_at
    ]
