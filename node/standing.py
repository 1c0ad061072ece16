"""What a node says of itself to its operator: machines on offer, leases at work, money held."""

from __future__ import annotations

from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.lease import LeaseKey, LeaseState
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Value
from node.leases import LeaseWork


class MachineStanding(Value, frozen=True, kw_only=True):
    """One machine."""

    index: int
    is_healthy: bool
    is_offered: bool
    next_seq: int


class LeaseStanding(Value, frozen=True, kw_only=True):
    """One lease that the node still holds something of."""

    lease: LeaseKey
    state: LeaseState | None
    """On chain; None: not seen there yet."""
    buyer: Address
    ends_at: int
    """Unix seconds; 0: it has not begun."""
    cap: TokenAmount
    voucher: TokenAmount
    """The best one held."""
    paid: TokenAmount
    is_paused: bool
    ended: str
    """Why work ended here; empty: it goes on."""
    jobs_running: int


class NodeStanding(Value, frozen=True, kw_only=True):
    """The whole node."""

    provider: Address
    peer: PeerId
    is_draining: bool
    is_catching_up: bool
    machines: tuple[MachineStanding, ...]
    leases: tuple[LeaseStanding, ...]


class Finding(Value, frozen=True, kw_only=True):
    """One check of `doctor`."""

    check: str
    ok: bool
    found: str
    next: str = ""
    """How to mend it."""


def standing_of(work: LeaseWork) -> LeaseStanding:
    """A lease in a few words."""
    started_at = work.started_at
    return LeaseStanding(
        lease=work.key,
        state=work.chain.state if work.chain else None,
        buyer=work.terms.buyer,
        ends_at=work.terms.ends_at(started_at) if started_at else 0,
        cap=work.terms.cap,
        voucher=work.amount,
        paid=work.chain.paid if work.chain else TokenAmount(0),
        is_paused=work.is_paused,
        ended=work.ended.text if work.ended is not None else "",
        jobs_running=len(work.jobs.unfinished()),
    )
