"""What the façade's user is told about a lease and its jobs: the words of a buyer's `Tell`."""

from __future__ import annotations

from typing import TypeAlias

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.job import SignedJobResult
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.orders import Terms
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Digest, Value


class Notice(Value, frozen=True, kw_only=True, tag=True):
    """What the façade's user is told."""


class BidPlaced(Notice, frozen=True, kw_only=True):
    bid: Digest


class LeaseFunded(Notice, frozen=True, kw_only=True):
    lease: LeaseKey
    gpus: int
    price: Price
    cap: TokenAmount
    duration: int


class LeaseUsable(Notice, frozen=True, kw_only=True):
    """Accepted and begun."""

    lease: LeaseKey
    report: RuntimeReport


class LeaseNotOpened(Notice, frozen=True, kw_only=True):
    """No lease came of the bids; `kind` selects the façade's exception."""

    kind: str
    """"no-match", "rejected", "funds", "expired", "cancelled" or "market-silent"."""
    detail: str
    terms: Terms | None = None
    rejection: Rejection | None = None
    """The market's own word, where it gave one."""


class LeaseNoticed(Notice, frozen=True, kw_only=True):
    """The provider may end it from then on, Unix seconds; 0: a longer chain took that back."""

    lease: LeaseKey
    releasable_at: int


class LeaseFailing(Notice, frozen=True, kw_only=True):
    """The lease is ending though nobody here asked for it; `LeaseOver` follows."""

    lease: LeaseKey
    reason: LeaseEndReason
    detail: str


class LeaseFrozen(Notice, frozen=True, kw_only=True):
    """Stopped on chain: `ceiling` at most is still paid out, `refund` is the buyer's again."""

    lease: LeaseKey
    ceiling: TokenAmount
    refund: TokenAmount


class LeaseOver(Notice, frozen=True, kw_only=True):
    """The lease ended on chain."""

    lease: LeaseKey
    reason: LeaseEndReason
    paid: TokenAmount
    refund: TokenAmount


class JobOutput(Notice, frozen=True, kw_only=True):
    job: Digest
    stream: str
    chunk: bytes


class JobDone(Notice, frozen=True, kw_only=True):
    result: SignedJobResult


class JobRefused(Notice, frozen=True, kw_only=True):
    job: Digest
    detail: str
    rejection: Rejection | None = None
    """The node's own word; None: the lease ended or is not there."""


AnyNotice: TypeAlias = (
    BidPlaced
    | LeaseFunded
    | LeaseUsable
    | LeaseNotOpened
    | LeaseNoticed
    | LeaseFailing
    | LeaseFrozen
    | LeaseOver
    | JobOutput
    | JobDone
    | JobRefused
)
