"""From the wish to end a running lease to the chain's word that it ended.

With the node's Final it closes at once. A node that gives none is stopped: pay is frozen, the rest
is back, and the node has the claim window to bring its best voucher; then anyone may expire it.
"""

from __future__ import annotations

from enum import Enum, auto

from cloud_gpu.protocol.calls import (
    ChainCall,
    CloseBatch,
    ExpireLease,
    RefundUnstarted,
    StopLease,
)
from cloud_gpu.protocol.effects import BuyerEffect, Send, Transact
from cloud_gpu.protocol.errors import Rejected, Rejection, RejectReason
from cloud_gpu.protocol.identity import OnlyKey, PeerId
from cloud_gpu.protocol.lease import LeaseKey, MachineStatus
from cloud_gpu.protocol.messages import CloseAsked, FinalOffered
from cloud_gpu.protocol.ports import MachineView
from cloud_gpu.protocol.signing import Verified, verify
from cloud_gpu.protocol.units import Instant
from cloud_gpu.rhythm import ChainTime, Rhythm
from cloud_gpu.spending import Purse, Tab


class _Step(Enum):
    AWAITING = auto()
    """The node said that it releases the lease."""
    ASKING = auto()
    """The node is asked for its Final."""
    CLOSING = auto()
    """Both agree; the closing is on its way to the chain."""
    STOPPING = auto()
    """Without the node's word."""
    STOPPED = auto()
    """The claim window runs."""


class Ending:
    """One lease's end, as its buyer brings it about."""

    def __init__(
        self,
        tab: Tab,
        *,
        node: PeerId,
        keys: OnlyKey,
        purse: Purse,
        rhythm: Rhythm,
        time: ChainTime,
    ) -> None:
        self._tab, self._node, self._keys = tab, node, keys
        self._purse, self._rhythm, self._time = purse, rhythm, time
        self._step = _Step.ASKING
        self._again_at: Instant = 0
        self._patient_until: Instant = 0
        self._stopped_at: int | None = None

    @property
    def awaits_release(self) -> bool:
        """Whether the node is given time to end the lease by itself."""
        return self._step is _Step.AWAITING

    @property
    def deadline(self) -> Instant:
        """When `on_time` has something to do."""
        return min(self._again_at, self._patient_until)

    def ask(self, now: Instant) -> list[BuyerEffect]:
        """Begin by asking the node."""
        self._turn_to(_Step.ASKING, now, self._rhythm.close_patience)
        return self.on_time(now)

    def await_release(self, now: Instant) -> None:
        """Give the node time to end it by itself; then ask."""
        self._turn_to(_Step.AWAITING, now, self._rhythm.chain_patience)

    def stop(self, now: Instant) -> list[BuyerEffect]:
        """Begin, or go on, without the node."""
        self._turn_to(_Step.STOPPING, now, self._rhythm.chain_patience)
        return self.on_time(now)

    def offered(self, offer: FinalOffered, now: Instant) -> list[BuyerEffect]:
        """The node closes at this amount: agree, unless it is more than we promised."""
        final = offer.final.payload
        if self._step is not _Step.ASKING or final.lease != self._tab.terms.key:
            return []
        signed = verify(
            offer.final,
            self._purse.domain,
            account=self._tab.terms.key.provider,
            keys=self._keys,
            at=self._time.at(now),
        )
        if not isinstance(signed, Verified) or final.amount > self._tab.promised:
            return []  # asked again until patience ends; then the lease is stopped
        self._turn_to(_Step.CLOSING, now, self._rhythm.chain_patience)
        closing = self._purse.closing(offer.final)
        return [Transact(call=CloseBatch(closings=(closing,)))]

    def stopped(self, at: int | None) -> None:
        """The chain stopped the lease at a time in Unix seconds; None: it took that back."""
        self._stopped_at = at
        self._step = _Step.STOPPED if at is not None else _Step.STOPPING
        self._again_at = self._patient_until = 0

    def failed(self, call: ChainCall, now: Instant) -> list[BuyerEffect]:
        """A transaction of ours did not do what it was for."""
        if self._step is _Step.CLOSING and isinstance(call, CloseBatch):
            return self.stop(now)
        return []  # tried again in its time

    def on_time(self, now: Instant) -> list[BuyerEffect]:
        """Say again what has not been answered, or go on without an answer."""
        if now >= self._patient_until and self._step is _Step.AWAITING:
            self._turn_to(_Step.ASKING, now, self._rhythm.close_patience)
        if now >= self._patient_until and self._step in (_Step.ASKING, _Step.CLOSING):
            self._turn_to(_Step.STOPPING, now, self._rhythm.chain_patience)
        if now < self._again_at:
            return []
        if self._step is _Step.ASKING:
            self._again_at = now + self._rhythm.resend
            return [Send(peer=self._node, message=CloseAsked(lease=self._tab.terms.key))]
        self._again_at = self._patient_until = now + self._rhythm.chain_patience
        return self._unilateral(now)

    def _unilateral(self, now: Instant) -> list[BuyerEffect]:
        lease = self._tab.terms.key
        over = self._tab.ends_at if self._stopped_at is None else self._stopped_at
        expires_at = over + self._rhythm.claim_s
        if self._time.block_at > expires_at:
            return [Transact(call=ExpireLease(lease=lease))]
        is_running = self._stopped_at is None and self._time.block_at < self._tab.ends_at
        if self._step is _Step.STOPPING and is_running:
            return [Transact(call=StopLease(lease=lease))]
        # Nothing to stop any more: the node claims what it is owed until the window ends.
        wait = max(self._rhythm.resend, self._time.when(expires_at) + 1_000 - now)
        self._again_at = self._patient_until = now + wait
        return []

    def _turn_to(self, step: _Step, now: Instant, patience: int) -> None:
        self._step = step
        waits = step in (_Step.AWAITING, _Step.CLOSING)
        self._again_at = now + patience if waits else now
        self._patient_until = now + patience


def ending_call(
    lease: LeaseKey, view: MachineView, at: int, claim_s: int
) -> StopLease | RefundUnstarted | ExpireLease | None:
    """What ends a lease at a time in Unix seconds; None: it is over. Raises `Rejected`: not yet."""
    if view.seq != lease.seq:
        return None
    possible_at = 0
    call: StopLease | RefundUnstarted | ExpireLease
    match view.status:
        case MachineStatus.FUNDED:
            possible_at, call = view.start + 1, RefundUnstarted(lease=lease)
        case MachineStatus.ACTIVE if at < view.start + view.duration:
            call = StopLease(lease=lease)
        case MachineStatus.ACTIVE | MachineStatus.STOPPED:
            possible_at = view.start + view.duration + claim_s + 1
            call = ExpireLease(lease=lease)
        case _:
            return None
    if at < possible_at:
        raise Rejected(
            Rejection(
                reason=RejectReason.WRONG_STATE,
                field="lease",
                found=view.status.name.lower(),
                needed=f"{possible_at - at} s more",
                next="Anybody may end it then; until then its provider does.",
            )
        )
    return call
