"""What a deployment puts where: contracts in order, their arguments, addresses and gas. Pure.

A contract's address follows from the account that creates it and its transaction's number, so
contracts can name each other before any of them exists, and a number once planned can create one
contract only, however often it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cloud_gpu.protocol.adapters.evm_abi import Interface, interface
from cloud_gpu.protocol.deployment import (
    BACK_OFFICE,
    FRONT_OFFICE,
    LEASE_BOOK,
    PAYMENT_TOKEN,
    VERIFICATION,
    Deployment,
    DeploymentTerms,
)
from cloud_gpu.protocol.futures import FUTURES
from cloud_gpu.protocol.group_buy import GROUP_BUY
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest, keccak256

Addresses = Mapping[str, Address]
"""Contract -> where it will be; those that are not deployed are missing."""


class _Row(msgspec.Struct, frozen=True):
    """A contract that a deployment may hold."""

    name: str
    is_wanted: Callable[[DeploymentTerms], bool]
    arguments: Callable[[DeploymentTerms, Addresses], tuple[Any, ...]]


def _lease_book(terms: DeploymentTerms, at: Addresses) -> tuple[Any, ...]:
    return (*_office(terms, at), at[FRONT_OFFICE], at[BACK_OFFICE])


def _office(terms: DeploymentTerms, at: Addresses) -> tuple[Any, ...]:
    times = terms.windows
    return (
        at[PAYMENT_TOKEN],
        (times.start, times.claim, times.retire, times.no_show),
        terms.registration_fee,
        terms.guardian,
        (at.get(VERIFICATION, ZERO_ADDRESS), at[FUTURES], at[GROUP_BUY]),
        terms.audits.windows.commit if terms.audits else 0,
    )


def _verification(terms: DeploymentTerms, at: Addresses) -> tuple[Any, ...]:
    assert terms.audits is not None, "a row is asked for its arguments when it is wanted"
    times = terms.audits.windows
    verifiers = [(each.signer, each.anchor, each.audits) for each in terms.audits.verifiers]
    return (
        at[LEASE_BOOK],
        verifiers,
        (times.challenge, times.hard_cap, times.late_slash, times.answer),
    )


def _futures(terms: DeploymentTerms, at: Addresses) -> tuple[Any, ...]:
    rules = terms.futures
    margins = (rules.long_margin, rules.short_margin, rules.margin_floor)
    return at[LEASE_BOOK], (*margins, rules.lead, rules.lead_short)


_ROWS: Final = (
    _Row(PAYMENT_TOKEN, lambda terms: terms.token is None, lambda _terms, _at: ()),
    _Row(FRONT_OFFICE, lambda _terms: True, _office),
    _Row(BACK_OFFICE, lambda _terms: True, _office),
    _Row(LEASE_BOOK, lambda _terms: True, _lease_book),
    _Row(VERIFICATION, lambda terms: terms.audits is not None, _verification),
    _Row(FUTURES, lambda _terms: True, _futures),
    _Row(GROUP_BUY, lambda _terms: True, lambda _terms, at: (at[LEASE_BOOK],)),
)
"""In the order in which they are created: a constructor may call those above it."""


class PlannedContract(msgspec.Struct, frozen=True):
    """One creation."""

    contract: str
    nonce: int
    """The number of the transaction that creates it."""
    address: Address
    arguments: tuple[Any, ...]
    gas_most: int

    @property
    def init_code(self) -> bytes:
        """Creation code with its arguments. Raises SettingsInvalid without a build."""
        return interface(self.contract).deployment(*self.arguments)


class DeploymentPlan(msgspec.Struct, frozen=True):
    """Everything that will be sent, in order, before anything is."""

    chain_id: int
    deployer: Address
    terms: DeploymentTerms
    contracts: tuple[PlannedContract, ...]

    @property
    def first_nonce(self) -> int:
        """Of the account's transactions, the first that is the plan's."""
        return self.contracts[0].nonce

    @property
    def gas_most(self) -> int:
        """Of all contracts together."""
        return sum(each.gas_most for each in self.contracts)

    @property
    def digest(self) -> Digest:
        """Equal for equal code and arguments at equal places of one chain."""
        parts = [self.chain_id.to_bytes(32, "big"), self.deployer.raw]
        for each in self.contracts:
            parts += [each.nonce.to_bytes(32, "big"), keccak256(each.init_code).raw]
        return keccak256(b"".join(parts))

    def result(self, *, bond_unit: TokenAmount, first_block: int) -> Deployment:
        """The deployment that it makes."""
        terms, at = self.terms, {each.contract: each.address for each in self.contracts}
        audits = terms.audits
        verifiers = audits.verifiers if audits else ()
        return Deployment(
            chain_id=self.chain_id,
            lease_book=at[LEASE_BOOK],
            front_office=at[FRONT_OFFICE],
            back_office=at[BACK_OFFICE],
            token=terms.token or at[PAYMENT_TOKEN],
            first_block=first_block,
            windows=terms.windows,
            bond_unit=bond_unit,
            verification=at.get(VERIFICATION, ZERO_ADDRESS),
            verifiers=tuple(each.signer for each in verifiers),
            anchors=tuple(each.anchor for each in verifiers),
            audit_accounts=tuple(each.audits for each in verifiers),
            audit=audits.windows if audits else None,
            futures=at[FUTURES],
            futures_rules=terms.futures,
            group_buy=at[GROUP_BUY],
            registration_fee=terms.registration_fee,
            guardian=terms.guardian,
            voucher_interval_s=terms.voucher_interval_s,
            heartbeat_s=terms.heartbeat_s,
            confirmations=terms.confirmations,
        )


def plan_deployment(
    terms: DeploymentTerms, *, chain_id: int, deployer: Address, first_nonce: int
) -> DeploymentPlan:
    """What `deployer` sends from its transaction number `first_nonce` on."""
    rows = [row for row in _ROWS if row.is_wanted(terms)]
    at = {row.name: created_at(deployer, first_nonce + n) for n, row in enumerate(rows)}
    known = at if terms.token is None else {PAYMENT_TOKEN: terms.token, **at}
    contracts = []
    for nonce, row in enumerate(rows, start=first_nonce):
        contract, arguments = interface(row.name), row.arguments(terms, known)
        contracts.append(
            PlannedContract(
                contract=row.name,
                nonce=nonce,
                address=at[row.name],
                arguments=arguments,
                gas_most=_gas_most(contract, contract.deployment(*arguments)),
            )
        )
    return DeploymentPlan(
        chain_id=chain_id, deployer=deployer, terms=terms, contracts=tuple(contracts)
    )


def created_at(creator: Address, count: int) -> Address:
    """Where a contract lies that `creator` makes with its transaction (or creation) number `count`.

    The last 20 bytes of keccak256(rlp([creator, count])). Source: Ethereum Yellow Paper, 7.
    """
    digits = count.to_bytes((count.bit_length() + 7) // 8, "big")
    number = (
        digits if len(digits) == 1 and digits[0] < 0x80 else bytes([0x80 + len(digits)]) + digits
    )
    body = bytes([0x80 + 20]) + creator.raw + number
    return Address(keccak256(bytes([0xC0 + len(body)]) + body).raw[12:])


_BASE_GAS: Final = 21_000 + 32_000
_CODE_BYTE_GAS: Final = 200
_CONSTRUCTOR_GAS: Final = 400_000
"""What a constructor may do besides: about 14 new slots, views of other contracts, memory."""


def _gas_most(contract: Interface, init_code: bytes) -> int:
    """A bound that needs no chain: later contracts cannot be estimated before earlier ones exist.

    Source: Ethereum Yellow Paper, appendix G; EIP-3860 (2 gas a word of init code).
    """
    data = sum(16 if byte else 4 for byte in init_code) + 2 * (len(init_code) + 31) // 32
    code = _CODE_BYTE_GAS * contract.code.size
    return _BASE_GAS + data + code + _CONSTRUCTOR_GAS
