"""One deployment of the contracts: what everybody who uses it must hold equal.

Written by the deployer as a JSON file; read by every party at start.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.signing import Domain
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Value

LEASE_BOOK: Final = "LeaseBook"


class Deployment(Value, frozen=True, kw_only=True):
    """Addresses, time-outs and off-chain rhythm of one deployment."""

    chain_id: int
    lease_book: Address
    token: Address
    first_block: int
    """Where the logs begin."""
    windows: Windows
    bond_unit: TokenAmount
    """Bonds are whole multiples of it, base units."""
    voucher_interval_s: int = 60
    heartbeat_s: int = 10
    confirmations: int = 0
    """Blocks on top of one before its events are acted on."""

    @property
    def domain(self) -> Domain:
        """LeaseBook's EIP-712 domain."""
        return Domain(name=LEASE_BOOK, chain_id=self.chain_id, verifying_contract=self.lease_book)
