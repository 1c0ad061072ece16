"""Rows of the market's picture of the chain."""

from __future__ import annotations

from cloud_gpu.protocol.lease import MachineStatus
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address, Value


class MachineRow(Value, frozen=True, kw_only=True):
    """A machine between its events."""

    product: int
    bond: TokenAmount
    next_seq: int
    """What the next ask must carry."""
    status: MachineStatus
    locked: int = 0
    """Of the bond, base units: what secures batches of results."""

    @property
    def is_leaving(self) -> bool:
        """Its provider takes the bond back, or has: nothing is promised of it any more."""
        return self.status in (MachineStatus.NONE, MachineStatus.RETIRING)

    @property
    def free_bond(self) -> TokenAmount:
        """What can secure a new lease."""
        return TokenAmount(max(0, self.bond.value - self.locked))


class MarketRow(Value, frozen=True, kw_only=True):
    """Who takes which fee."""

    account: Address
    fee: BasisPoints
