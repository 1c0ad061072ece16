"""One deployment of the contracts: what whoever deploys decides, and what everybody holds equal.

The result is written by the deployer as a JSON file, and read by every party at start.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.futures import FUTURES, FuturesRules
from cloud_gpu.protocol.group_buy import GROUP_BUY
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.signing import Domain
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, ZERO_DIGEST, Address, Digest, Value

PAYMENT_TOKEN: Final = "PaymentToken"  # noqa: S105, a contract's name and no secret
LEASE_BOOK: Final = "LeaseBook"
FRONT_OFFICE: Final = "FrontOffice"
BACK_OFFICE: Final = "BackOffice"
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
    answer: int
    """How long a challenged leaf may be shown."""

    def __post_init__(self) -> None:
        bounds = (
            ("commit", self.commit, limits.COMMIT_WINDOW_S_MAX),
            ("challenge", self.challenge, limits.CHALLENGE_S_MAX),
            ("hard_cap", self.hard_cap, limits.HARD_CAP_S_MAX),
            ("late_slash", self.late_slash, limits.RETIRE_DELAY_S_MAX),
            ("answer", self.answer, limits.ANSWER_S_MAX),
        )
        for name, found, high in bounds:
            if not 1 <= found <= high:
                raise ValueError(f"audit.{name} is 1 to {high} s, found {found}")


class VerifierAccount(Value, frozen=True, kw_only=True):
    """One of the two verifiers that a deployment fixes."""

    signer: Address
    """Its key's: signs verdicts and results."""
    anchor: Digest
    """Of its hash chain: `cloud-gpu-verifier anchor` prints it."""
    audits: Address
    """Whose cash the audit share becomes: the account that pays re-executions."""

    def __post_init__(self) -> None:
        if self.signer.is_zero or self.audits.is_zero or self.anchor == ZERO_DIGEST:
            raise ValueError("a verifier has a signer, an anchor and an audit account, none zero")


class AuditPlan(Value, frozen=True, kw_only=True):
    """What a deployment with verified leases fixes besides."""

    verifiers: tuple[VerifierAccount, VerifierAccount]
    windows: AuditWindows

    def __post_init__(self) -> None:
        if self.verifiers[0].signer == self.verifiers[1].signer:
            raise ValueError(f"verifiers are two different keys, found {self.verifiers[0].signer}")


class DeploymentTerms(Value, frozen=True, kw_only=True):
    """What whoever deploys decides; nobody can change it afterwards."""

    windows: Windows
    token: Address | None = None
    """None: play money that anybody can mint is deployed, too."""
    audits: AuditPlan | None = None
    """None: no verified leases."""
    futures: FuturesRules = FuturesRules()
    registration_fee: TokenAmount = ZERO_TOKENS
    """Burnt for a row in the tables."""
    guardian: Address = ZERO_ADDRESS
    """May pause openings and deposits for a while; zero: nobody may."""
    voucher_interval_s: int = 60
    heartbeat_s: int = 10
    confirmations: int = 0

    def __post_init__(self) -> None:
        least, why = self.windows.start + self.windows.claim, "start + claim"
        if self.audits is not None:
            times = self.audits.windows
            audited = times.commit + times.challenge + times.hard_cap + times.late_slash
            if audited > least:
                least, why = audited, "all audit windows together"
        if self.windows.retire < least:
            raise ValueError(
                f"windows.retire is at least {least} ({why}: a bond stays while a lease can cost"
                f" it), found {self.windows.retire}"
            )


class Deployment(Value, frozen=True, kw_only=True):
    """Addresses, time-outs and off-chain rhythm of one deployment."""

    chain_id: int
    lease_book: Address
    front_office: Address = ZERO_ADDRESS
    """Holds the code of LeaseBook that trades by the ABI; nobody calls it there."""
    back_office: Address = ZERO_ADDRESS
    """Holds the code of LeaseBook that is seldom called; nobody calls it there."""
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
    anchors: tuple[Digest, ...] = ()
    """Of their hash chains."""
    audit_accounts: tuple[Address, ...] = ()
    """Whose cash their audit shares become."""
    audit: AuditWindows | None = None
    futures: Address = ZERO_ADDRESS
    """The module for futures; zero: this deployment has none."""
    futures_rules: FuturesRules = FuturesRules()
    group_buy: Address = ZERO_ADDRESS
    """The module for group buys; zero: this deployment has none."""
    registration_fee: TokenAmount = ZERO_TOKENS
    guardian: Address = ZERO_ADDRESS
    voucher_interval_s: int = 60
    heartbeat_s: int = 10
    confirmations: int = 0
    """Blocks on top of one before its events are acted on."""

    @property
    def contracts(self) -> tuple[Address, ...]:
        """Whose logs are followed."""
        modules = self.verification, self.futures, self.group_buy
        return (self.lease_book, *(module for module in modules if not module.is_zero))

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

    @property
    def futures_domain(self) -> Domain:
        """Futures' EIP-712 domain: of orders and assignments."""
        return Domain(name=FUTURES, chain_id=self.chain_id, verifying_contract=self.futures)

    @property
    def group_buy_domain(self) -> Domain:
        """GroupBuy's EIP-712 domain: of pledges."""
        return Domain(name=GROUP_BUY, chain_id=self.chain_id, verifying_contract=self.group_buy)
