"""What starts and pays a lease: `Ready`, `Accept`, `Voucher`, `Final`.

A voucher is cumulative and acknowledged: the newest replaces the rest, and the contract pays
min(amount, accrued). So it may be signed one interval ahead and nothing is left to arbitrate.
"""

from __future__ import annotations

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.signing import TypedData
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest


class _OfLease(TypedData, frozen=True, kw_only=True):
    provider: Address
    index: int
    seq: int

    def __post_init__(self) -> None:
        self.lease  # noqa: B018  # a lease that cannot be is refused when it is read

    @property
    def lease(self) -> LeaseKey:
        """The lease it is about."""
        return LeaseKey(provider=self.provider, index=self.index, seq=self.seq)


class Ready(_OfLease, frozen=True, kw_only=True):
    """The node has the container prepared; `runtime_hash` is the digest of its runtime report."""

    TYPE = "Ready(address provider,uint32 index,uint24 seq,bytes32 runtimeHash)"
    ROLE = KeyRole.NODE
    runtime_hash: Digest


class Accept(_OfLease, frozen=True, kw_only=True):
    """The buyer's side has checked the Ready: the meter starts at `started_at` (Unix seconds)."""

    TYPE = "Accept(address provider,uint32 index,uint24 seq,uint32 startedAt)"
    ROLE = KeyRole.SESSION
    started_at: int

    def __post_init__(self) -> None:
        _OfLease.__post_init__(self)
        if not 0 <= self.started_at < 2**32:
            raise ValueError(f"accept.started_at is a uint32, found {self.started_at}")


class _Amount(_OfLease, frozen=True, kw_only=True):
    amount: TokenAmount

    def __post_init__(self) -> None:
        _OfLease.__post_init__(self)
        if self.amount.value > limits.LEASE_CAP_MAX:
            raise ValueError(f"amount is at most {limits.LEASE_CAP_MAX}, found {self.amount.value}")


class Voucher(_Amount, frozen=True, kw_only=True):
    """The buyer owes `amount` in all for this lease so far."""

    TYPE = "Voucher(address provider,uint32 index,uint24 seq,uint48 amount)"
    ROLE = KeyRole.SESSION


class Final(_Amount, frozen=True, kw_only=True):
    """The lease may close at `amount` in all: the provider says so, and the buyer to end early."""

    TYPE = "Final(address provider,uint32 index,uint24 seq,uint48 amount)"
    ROLE = KeyRole.NODE


def amount_due(cap: TokenAmount, duration: int, elapsed: int, ahead: int) -> TokenAmount:
    """What a voucher signed now should say: everything accrued `ahead` seconds from now."""
    return accrued(cap, elapsed + ahead, duration)
