"""How patient a buyer's side is, and what time it is on the chain.

Deadlines of leases are the chain's, and this machine's clock may differ: a buyer measures from
the newest block it saw, so that a wrong clock here signs no voucher ahead of its time.
"""

from __future__ import annotations

from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Value


class Rhythm(Value, frozen=True, kw_only=True):
    """Waits of a buyer's side; milliseconds unless a name ends in `_s`."""

    voucher_interval_s: int
    claim_s: int
    """The contract's claim window."""
    poll: int = 500
    """Between questions to the market about a bid."""
    resend: int = 1_000
    """Between repeats of a message that has not been answered."""
    close_patience: int = 5_000
    """How long a node may take to offer its Final before the lease is stopped."""
    chain_patience: int = 15_000
    """How long a transaction may take before its purpose is pursued another way."""
    node_silence: int
    """A node silent for so long in a running lease has gone."""

    @classmethod
    def of(cls, deployment: Deployment) -> Rhythm:
        """The waits that fit a deployment's time-outs."""
        return cls(
            voucher_interval_s=deployment.voucher_interval_s,
            claim_s=deployment.windows.claim,
            node_silence=max(10_000, 3_000 * deployment.voucher_interval_s),
        )


class ChainTime:
    """The chain's time between its blocks, Unix seconds."""

    def __init__(self) -> None:
        self._block_at = 0
        self._seen: Instant = 0

    def saw(self, block_at: int, now: Instant) -> None:
        """A block with this time arrived."""
        self._block_at, self._seen = block_at, now

    @property
    def block_at(self) -> int:
        """The newest block's time; 0: none was seen."""
        return self._block_at

    def at(self, now: Instant) -> int:
        """The newest block's time, and what has passed here since."""
        return self._block_at + max(0, now - self._seen) // 1000

    def when(self, at: int) -> Instant:
        """When a time of the chain comes, on this machine's clock."""
        return self._seen + max(0, at - self._block_at) * 1000
