"""PaymentToken's calls and views. Generated from its ABI by `make contracts`; do not edit."""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.adapters.evm_bound import Call, Row
from cloud_gpu.protocol.values import Address

_CONTRACT: Final = "PaymentToken"


class Eip712DomainAnswer(Row, frozen=True):
    fields: bytes
    name: str
    version: str
    chain_id: int
    verifying_contract: Address
    salt: bytes
    extensions: tuple[int, ...]


def domain_separator() -> Call[bytes]:
    return Call(_CONTRACT, "DOMAIN_SEPARATOR", (), Call.alone)


def allowance(owner: Address, spender: Address) -> Call[int]:
    return Call(
        _CONTRACT,
        "allowance",
        (
            owner,
            spender,
        ),
        Call.alone,
    )


def approve(spender: Address, value: int) -> Call[bool]:
    return Call(
        _CONTRACT,
        "approve",
        (
            spender,
            value,
        ),
        Call.alone,
    )


def balance_of(account: Address) -> Call[int]:
    return Call(_CONTRACT, "balanceOf", (account,), Call.alone)


def decimals() -> Call[int]:
    return Call(_CONTRACT, "decimals", (), Call.alone)


def eip712_domain() -> Call[Eip712DomainAnswer]:
    return Call(_CONTRACT, "eip712Domain", (), Eip712DomainAnswer)


def mint(to: Address, amount: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "mint",
        (
            to,
            amount,
        ),
        Call.nothing,
    )


def name() -> Call[str]:
    return Call(_CONTRACT, "name", (), Call.alone)


def nonces(owner: Address) -> Call[int]:
    return Call(_CONTRACT, "nonces", (owner,), Call.alone)


def permit(
    owner: Address, spender: Address, value: int, deadline: int, v: int, r: bytes, s: bytes
) -> Call[None]:
    return Call(
        _CONTRACT,
        "permit",
        (
            owner,
            spender,
            value,
            deadline,
            v,
            r,
            s,
        ),
        Call.nothing,
    )


def symbol() -> Call[str]:
    return Call(_CONTRACT, "symbol", (), Call.alone)


def total_supply() -> Call[int]:
    return Call(_CONTRACT, "totalSupply", (), Call.alone)


def transfer(to: Address, value: int) -> Call[bool]:
    return Call(
        _CONTRACT,
        "transfer",
        (
            to,
            value,
        ),
        Call.alone,
    )


def transfer_from(from_: Address, to: Address, value: int) -> Call[bool]:
    return Call(
        _CONTRACT,
        "transferFrom",
        (
            from_,
            to,
            value,
        ),
        Call.alone,
    )
