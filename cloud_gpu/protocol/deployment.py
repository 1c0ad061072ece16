"""One deployment of the contracts: what everybody who uses it must hold equal.

Written by the deployer as a JSON file; read by every party at start.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.signing import Domain
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Value

LEASE_BOOK: Final = "LeaseBook"
VERIFICATION: Final = "Verification"


class AuditWindows(Value, frozen=True, kw_only=True):
    """Verification's time-outs, seconds."""

    commit: int
    """After the lease's end; then held money returns to the buyer."""
    challenge: int
    """How long an accusation may be contested."""
    hard_cap: int
    """After the commitment; then the batch pays unverified."""
    late_slash: int
    """How long an unverified batch can still cost the bond."""


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
    verification: Address = ZERO_ADDRESS
    """The module that holds verified pay; zero: this deployment has none."""
    verifiers: tuple[Address, ...] = ()
    """The two verifiers fixed in it."""
    audit: AuditWindows | None = None
    voucher_interval_s: int = 60
    heartbeat_s: int = 10
    confirmations: int = 0
    """Blocks on top of one before its events are acted on."""

    @property
    def contracts(self) -> tuple[Address, ...]:
        """Whose logs are followed."""
        audits = () if self.verification.is_zero else (self.verification,)
        return (self.lease_book, *audits)

    @property
    def domain(self) -> Domain:
        """LeaseBook's EIP-712 domain."""
        return Domain(name=LEASE_BOOK, chain_id=self.chain_id, verifying_contract=self.lease_book)

    @property
    def verification_domain(self) -> Domain:
        """Verification's EIP-712 domain: of commits, verdicts and results."""
        return Domain(
            name=VERIFICATION, chain_id=self.chain_id, verifying_contract=self.verification
        )
