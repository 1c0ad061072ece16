"""Futures's calls and views. Generated from its ABI by `make contracts`; do not edit."""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.adapters.evm_bound import Call, Row
from cloud_gpu.protocol.values import Address

_CONTRACT: Final = "Futures"


class Assignment(Row, frozen=True):
    contract_id: int
    is_buy: bool
    leaver: Address
    joiner: Address
    leaver_pays: int
    joiner_pays: int
    expiry: int
    nonce: int


class Eip712DomainAnswer(Row, frozen=True):
    fields: bytes
    name: str
    version: str
    chain_id: int
    verifying_contract: Address
    salt: bytes
    extensions: tuple[int, ...]


class FutureContract(Row, frozen=True):
    long: Address
    short: Address
    series: Series
    price: int
    units: int
    long_margin: int
    short_margin: int
    funded: bool
    nominated: bool


class FutureOrder(Row, frozen=True):
    trader: Address
    is_buy: bool
    product: int
    window_start: int
    window_seconds: int
    units: int
    limit_price_per_hour: int
    start_by: int
    nonce: int
    matcher: Address


class FuturePair(Row, frozen=True):
    buy: FutureOrder
    sell: FutureOrder
    units: int
    buy_signature: bytes
    sell_signature: bytes


class FutureUnit(Row, frozen=True):
    contract_id: int
    long: Address
    short: Address
    long_margin: int
    short_margin: int
    end: int
    left: int
    window_seconds: int


class FuturesRules(Row, frozen=True):
    long_bps: int
    short_bps: int
    margin_floor: int
    lead: int
    lead_short: int


class ProgressOfAnswer(Row, frozen=True):
    filled: int
    closed: bool


class Series(Row, frozen=True):
    product: int
    window_start: int
    window_seconds: int


def domain_separator() -> Call[bytes]:
    return Call(_CONTRACT, "DOMAIN_SEPARATOR", (), Call.alone)


def assign(assignment: Assignment, signature: bytes) -> Call[None]:
    return Call(
        _CONTRACT,
        "assign",
        (
            assignment,
            signature,
        ),
        Call.nothing,
    )


def close_order(order_hash: bytes) -> Call[None]:
    return Call(_CONTRACT, "closeOrder", (order_hash,), Call.nothing)


def contract_count() -> Call[int]:
    return Call(_CONTRACT, "contractCount", (), Call.alone)


def contract_of(contract_id: int) -> Call[FutureContract]:
    return Call(_CONTRACT, "contractOf", (contract_id,), FutureContract.of)


def deadline_of(window_start: int, window_seconds: int) -> Call[int]:
    return Call(
        _CONTRACT,
        "deadlineOf",
        (
            window_start,
            window_seconds,
        ),
        Call.alone,
    )


def deliver(contract_id: int, indexes: tuple[int, ...]) -> Call[None]:
    return Call(
        _CONTRACT,
        "deliver",
        (
            contract_id,
            indexes,
        ),
        Call.nothing,
    )


def eip712_domain() -> Call[Eip712DomainAnswer]:
    return Call(_CONTRACT, "eip712Domain", (), Eip712DomainAnswer)


def fund(contract_id: int) -> Call[None]:
    return Call(_CONTRACT, "fund", (contract_id,), Call.nothing)


def lapse(contract_id: int) -> Call[None]:
    return Call(_CONTRACT, "lapse", (contract_id,), Call.nothing)


def lease_book() -> Call[Address]:
    return Call(_CONTRACT, "leaseBook", (), Call.alone)


def lease_ended(machine_key: bytes, seq: int, reason: int, left: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "leaseEnded",
        (
            machine_key,
            seq,
            reason,
            left,
        ),
        Call.nothing,
    )


def nominate(contract_id: int, indexes: tuple[int, ...]) -> Call[None]:
    return Call(
        _CONTRACT,
        "nominate",
        (
            contract_id,
            indexes,
        ),
        Call.nothing,
    )


def open_futures(series: Series, price: int, pairs: tuple[FuturePair, ...]) -> Call[None]:
    return Call(
        _CONTRACT,
        "openFutures",
        (
            series,
            price,
            pairs,
        ),
        Call.nothing,
    )


def progress_of(trader: Address, order_hash: bytes) -> Call[ProgressOfAnswer]:
    return Call(
        _CONTRACT,
        "progressOf",
        (
            trader,
            order_hash,
        ),
        ProgressOfAnswer,
    )


def rules() -> Call[FuturesRules]:
    return Call(_CONTRACT, "rules", (), FuturesRules.of)


def settle_default(contract_id: int) -> Call[None]:
    return Call(_CONTRACT, "settleDefault", (contract_id,), Call.nothing)


def settle_unit(provider: Address, index: int, seq: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "settleUnit",
        (
            provider,
            index,
            seq,
        ),
        Call.nothing,
    )


def unit_of(provider: Address, index: int, seq: int) -> Call[FutureUnit]:
    return Call(
        _CONTRACT,
        "unitOf",
        (
            provider,
            index,
            seq,
        ),
        FutureUnit.of,
    )
