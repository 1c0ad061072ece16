"""Vouchers of a running lease: signed one interval ahead, and said again until acknowledged.

A node that is not heard is owed no more than it was promised: the next voucher waits until it
answers. Repeating the newest one is also how an idle lease notices that its node has gone.
"""

from __future__ import annotations

from cloud_gpu.protocol.effects import BuyerEffect, Send
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.messages import VoucherAcknowledged, VoucherGiven
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Instant, TokenAmount
from cloud_gpu.protocol.voucher import Voucher
from cloud_gpu.rhythm import ChainTime, Rhythm
from cloud_gpu.spending import Purse, Tab


class Payments:
    """One lease's newest voucher, and whether the node has it."""

    def __init__(
        self,
        tab: Tab,
        *,
        node: PeerId,
        purse: Purse,
        rhythm: Rhythm,
        time: ChainTime,
        now: Instant,
    ) -> None:
        self.tab = tab
        self._node, self._purse, self._rhythm, self._time = node, purse, rhythm, time
        self._newest: Signed[Voucher] | None = None
        self._acknowledged = TokenAmount(0)
        self._heard_at = now
        self._again_at: Instant = 0
        self.is_paused = False
        """The node says that it paused work for want of a voucher."""

    @property
    def gone_at(self) -> Instant:
        """When the node has been silent for too long, unless it speaks before."""
        return self._heard_at + self._rhythm.node_silence

    @property
    def deadline(self) -> Instant:
        """When `on_time` has something to do."""
        return self._again_at

    def heard(self, now: Instant) -> None:
        """The node sent something."""
        self._heard_at = now

    def acknowledged(self, message: VoucherAcknowledged, now: Instant) -> None:
        """The best voucher that the node holds."""
        if message.amount <= self.tab.promised:
            self._acknowledged = message.amount
            self._again_at = self._next_at(self._time.at(now), now)
        self.is_paused = message.paused

    def on_time(self, now: Instant) -> list[BuyerEffect]:
        """Sign the next voucher when it is due, or say the newest again."""
        at = self._time.at(now)
        if now < self._again_at and not self._is_late(at, now):
            return []
        amount = None if self._is_silent(now) else self.tab.raise_to_due(at)
        if amount is not None or self._newest is None:
            # Of a lease that costs next to nothing the first one says 0, and still counts.
            self._newest = self._purse.voucher(self.tab.terms.key, self.tab.promised)
        self._again_at = self._next_at(at, now)
        return [Send(peer=self._node, message=VoucherGiven(voucher=self._newest))]

    def _is_late(self, at: int, now: Instant) -> bool:
        """Whether a block told that more of the lease has passed than this clock foresaw."""
        is_held = self._acknowledged == self.tab.promised
        return is_held and self.tab.is_due(at) and not self._is_silent(now)

    def _is_silent(self, now: Instant) -> bool:
        borne = self._rhythm.voucher_interval_s * 1_000 + self._rhythm.resend
        return now - self._heard_at > borne

    def _next_at(self, at: int, now: Instant) -> Instant:
        if self._acknowledged < self.tab.promised or self._is_silent(now):
            return now + self._rhythm.resend
        due = self.tab.next_due_at(at)
        pulse = now + self._rhythm.node_silence // 3
        return pulse if due is None else min(pulse, max(now + 1, self._time.when(due)))
