"""LeaseBook's calls and views. Generated from its ABI by `make contracts`; do not edit."""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.adapters.evm_bound import Call, Row
from cloud_gpu.protocol.values import Address

_CONTRACT: Final = "LeaseBook"


class Accept(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    started_at: int


class Account(Row, frozen=True):
    cash: int
    id: int
    nonce_base: int
    nonce_bits: int


class Ask(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    product: int
    min_price_per_hour: int
    min_duration: int
    max_duration: int
    start_by: int
    matcher: Address
    max_fee_bps: int
    flags: int


class Bid(Row, frozen=True):
    buyer: Address
    product: int
    count: int
    max_price_per_hour: int
    duration: int
    start_by: int
    open_from: int
    provider: Address
    nonce: int
    matcher: Address
    max_fee_bps: int
    audit_bps: int
    flags: int
    terms: bytes


class CountsAnswer(Row, frozen=True):
    accounts: int
    products: int
    markets: int


class Delegate(Row, frozen=True):
    account: Address
    role: int
    expiry: int
    revoked_at: int


class Eip712DomainAnswer(Row, frozen=True):
    fields: bytes
    name: str
    version: str
    chain_id: int
    verifying_contract: Address
    salt: bytes
    extensions: tuple[int, ...]


class Held(Row, frozen=True):
    amount: int
    audit: int
    buyer: Address
    market_id: int
    audit_bps: int
    ended_at: int
    next_batch_no: int


class Lease(Row, frozen=True):
    status: int
    buyer: Address
    cap: int
    paid: int
    ceiling: int
    market_id: int
    start: int
    duration: int
    flags: int
    notice_at: int


class Machine(Row, frozen=True):
    status: int
    product: int
    seq: int
    next_seq: int
    bond: int
    locked: int
    retire_at: int


class Market(Row, frozen=True):
    account: Address
    fee_bps: int


class OpenFirmAnswer(Row, frozen=True):
    code: int
    seq: int


class Opening(Row, frozen=True):
    buyer: Address
    product: int
    price: int
    duration: int
    market_id: int
    name: bytes


class Payout(Row, frozen=True):
    buyer_id: int
    market_id: int
    pay: int
    to_buyer: int
    audits: Address
    audit_pay: int
    burnt: int
    unlock: int


class Product(Row, frozen=True):
    gpu_class: bytes
    sheet_hash: bytes
    region_group: bytes
    slice_gpus: int
    min_bond_bps: int
    penalty_bps: int
    notice: int
    flags: int


class Ready(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    runtime_hash: bytes


class SignedMatch(Row, frozen=True):
    ask: Ask
    bid: Bid
    ask_signature: bytes
    bid_signature: bytes


class Slash(Row, frozen=True):
    buyer_id: int
    from_batch: int
    from_bond: int
    fine: int
    unlock: int
    bounty: int
    audits: Address
    bar: bool


class SlashBondAnswer(Row, frozen=True):
    refunded: int
    fine: int
    bounty: int


class TakeHeldAnswer(Row, frozen=True):
    amount: int
    audit_bps: int
    buyer_id: int
    market_id: int
    units: int


class Voucher(Row, frozen=True):
    provider: Address
    index: int
    seq: int
    amount: int


class Windows(Row, frozen=True):
    start: int
    claim: int
    retire: int
    no_show: int


def domain_separator() -> Call[bytes]:
    return Call(_CONTRACT, "DOMAIN_SEPARATOR", (), Call.alone)


def account_of(account: Address) -> Call[Account]:
    return Call(_CONTRACT, "accountOf", (account,), Account.of)


def add_bond(index: int, bond: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "addBond",
        (
            index,
            bond,
        ),
        Call.nothing,
    )


def add_machine(index: int, bond: int, product: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "addMachine",
        (
            index,
            bond,
            product,
        ),
        Call.nothing,
    )


def address_of(id: int) -> Call[Address]:
    return Call(_CONTRACT, "addressOf", (id,), Call.alone)


def batched() -> Call[int]:
    return Call(_CONTRACT, "batched", (), Call.alone)


def begin(
    ready: Ready, ready_signature: bytes, accepted: Accept, accept_signature: bytes
) -> Call[None]:
    return Call(
        _CONTRACT,
        "begin",
        (
            ready,
            ready_signature,
            accepted,
            accept_signature,
        ),
        Call.nothing,
    )


def begin_packed(provider: Address, data: bytes) -> Call[None]:
    return Call(
        _CONTRACT,
        "beginPacked",
        (
            provider,
            data,
        ),
        Call.nothing,
    )


def bond_unit() -> Call[int]:
    return Call(_CONTRACT, "bondUnit", (), Call.alone)


def cancel_asks(index: int, next_seq: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "cancelAsks",
        (
            index,
            next_seq,
        ),
        Call.nothing,
    )


def cancel_below(new_base: int) -> Call[None]:
    return Call(_CONTRACT, "cancelBelow", (new_base,), Call.nothing)


def cancel_one(nonce: int) -> Call[None]:
    return Call(_CONTRACT, "cancelOne", (nonce,), Call.nothing)


def close_batch(
    vouchers: tuple[Voucher, ...],
    buyer_signatures: tuple[bytes, ...],
    provider_signatures: tuple[bytes, ...],
) -> Call[None]:
    return Call(
        _CONTRACT,
        "closeBatch",
        (
            vouchers,
            buyer_signatures,
            provider_signatures,
        ),
        Call.nothing,
    )


def close_packed(data: bytes, with_finals: bool) -> Call[None]:
    return Call(
        _CONTRACT,
        "closePacked",
        (
            data,
            with_finals,
        ),
        Call.nothing,
    )


def commit_window() -> Call[int]:
    return Call(_CONTRACT, "commitWindow", (), Call.alone)


def counts() -> Call[CountsAnswer]:
    return Call(_CONTRACT, "counts", (), CountsAnswer)


def delegate_of(signer: Address) -> Call[Delegate]:
    return Call(_CONTRACT, "delegateOf", (signer,), Delegate.of)


def deposit(to: Address, amount: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "deposit",
        (
            to,
            amount,
        ),
        Call.nothing,
    )


def deposit_with_permit(
    to: Address, amount: int, deadline: int, v: int, r: bytes, s: bytes
) -> Call[None]:
    return Call(
        _CONTRACT,
        "depositWithPermit",
        (
            to,
            amount,
            deadline,
            v,
            r,
            s,
        ),
        Call.nothing,
    )


def eip712_domain() -> Call[Eip712DomainAnswer]:
    return Call(_CONTRACT, "eip712Domain", (), Eip712DomainAnswer)


def expire(provider: Address, index: int, seq: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "expire",
        (
            provider,
            index,
            seq,
        ),
        Call.nothing,
    )


def finish_retire(index: int) -> Call[None]:
    return Call(_CONTRACT, "finishRetire", (index,), Call.nothing)


def futures() -> Call[Address]:
    return Call(_CONTRACT, "futures", (), Call.alone)


def give_cash(account: Address, amount: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "giveCash",
        (
            account,
            amount,
        ),
        Call.nothing,
    )


def give_notice(provider: Address, index: int, seq: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "giveNotice",
        (
            provider,
            index,
            seq,
        ),
        Call.nothing,
    )


def group_buy() -> Call[Address]:
    return Call(_CONTRACT, "groupBuy", (), Call.alone)


def guardian() -> Call[Address]:
    return Call(_CONTRACT, "guardian", (), Call.alone)


def held_of(provider: Address, index: int, seq: int) -> Call[Held]:
    return Call(
        _CONTRACT,
        "heldOf",
        (
            provider,
            index,
            seq,
        ),
        Held.of,
    )


def is_barred(provider: Address) -> Call[bool]:
    return Call(_CONTRACT, "isBarred", (provider,), Call.alone)


def lease_of(provider: Address, index: int, seq: int) -> Call[Lease]:
    return Call(
        _CONTRACT,
        "leaseOf",
        (
            provider,
            index,
            seq,
        ),
        Lease.of,
    )


def machine_of(provider: Address, index: int) -> Call[Machine]:
    return Call(
        _CONTRACT,
        "machineOf",
        (
            provider,
            index,
        ),
        Machine.of,
    )


def market_of(id: int) -> Call[Market]:
    return Call(_CONTRACT, "marketOf", (id,), Market.of)


def module_cash(module: Address) -> Call[int]:
    return Call(_CONTRACT, "moduleCash", (module,), Call.alone)


def open_batch(
    product: int, price: int, market_id: int, matches: tuple[SignedMatch, ...]
) -> Call[None]:
    return Call(
        _CONTRACT,
        "openBatch",
        (
            product,
            price,
            market_id,
            matches,
        ),
        Call.nothing,
    )


def open_firm(machine_key: bytes, opening: Opening) -> Call[OpenFirmAnswer]:
    return Call(
        _CONTRACT,
        "openFirm",
        (
            machine_key,
            opening,
        ),
        OpenFirmAnswer,
    )


def open_gang(
    product: int,
    price: int,
    market_id: int,
    bid: Bid,
    bid_signature: bytes,
    asks: tuple[Ask, ...],
    ask_signatures: tuple[bytes, ...],
) -> Call[None]:
    return Call(
        _CONTRACT,
        "openGang",
        (
            product,
            price,
            market_id,
            bid,
            bid_signature,
            asks,
            ask_signatures,
        ),
        Call.nothing,
    )


def open_match(
    product: int, price: int, market_id: int, entry: SignedMatch, signature: bytes
) -> Call[None]:
    return Call(
        _CONTRACT,
        "openMatch",
        (
            product,
            price,
            market_id,
            entry,
            signature,
        ),
        Call.nothing,
    )


def open_packed(product: int, price: int, market_id: int, data: bytes) -> Call[None]:
    return Call(
        _CONTRACT,
        "openPacked",
        (
            product,
            price,
            market_id,
            data,
        ),
        Call.nothing,
    )


def open_pledged(ask: Ask, signature: bytes, opening: Opening) -> Call[int]:
    return Call(
        _CONTRACT,
        "openPledged",
        (
            ask,
            signature,
            opening,
        ),
        Call.alone,
    )


def pause(index: int) -> Call[None]:
    return Call(_CONTRACT, "pause", (index,), Call.nothing)


def pause_openings(duration: int) -> Call[None]:
    return Call(_CONTRACT, "pauseOpenings", (duration,), Call.nothing)


def paused_until() -> Call[int]:
    return Call(_CONTRACT, "pausedUntil", (), Call.alone)


def pay_held(key: bytes, payout: Payout) -> Call[int]:
    return Call(
        _CONTRACT,
        "payHeld",
        (
            key,
            payout,
        ),
        Call.alone,
    )


def post_ready(ready: Ready, signature: bytes) -> Call[None]:
    return Call(
        _CONTRACT,
        "postReady",
        (
            ready,
            signature,
        ),
        Call.nothing,
    )


def product_of(id: int) -> Call[Product]:
    return Call(_CONTRACT, "productOf", (id,), Product.of)


def refund_unstarted(provider: Address, index: int, seq: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "refundUnstarted",
        (
            provider,
            index,
            seq,
        ),
        Call.nothing,
    )


def register() -> Call[int]:
    return Call(_CONTRACT, "register", (), Call.alone)


def register_market(fee_bps: int) -> Call[int]:
    return Call(_CONTRACT, "registerMarket", (fee_bps,), Call.alone)


def register_product(product: Product) -> Call[int]:
    return Call(_CONTRACT, "registerProduct", (product,), Call.alone)


def registration_fee() -> Call[int]:
    return Call(_CONTRACT, "registrationFee", (), Call.alone)


def release(voucher: Voucher, signature: bytes, reason: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "release",
        (
            voucher,
            signature,
            reason,
        ),
        Call.nothing,
    )


def retire(index: int) -> Call[None]:
    return Call(_CONTRACT, "retire", (index,), Call.nothing)


def return_held(provider: Address, index: int, seq: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "returnHeld",
        (
            provider,
            index,
            seq,
        ),
        Call.nothing,
    )


def revoke_delegate(signer: Address) -> Call[None]:
    return Call(_CONTRACT, "revokeDelegate", (signer,), Call.nothing)


def set_delegate(signer: Address, role: int, expiry: int, proof: bytes) -> Call[None]:
    return Call(
        _CONTRACT,
        "setDelegate",
        (
            signer,
            role,
            expiry,
            proof,
        ),
        Call.nothing,
    )


def settings() -> Call[bytes]:
    return Call(_CONTRACT, "settings", (), Call.alone)


def settle_batch(vouchers: tuple[Voucher, ...], signatures: tuple[bytes, ...]) -> Call[None]:
    return Call(
        _CONTRACT,
        "settleBatch",
        (
            vouchers,
            signatures,
        ),
        Call.nothing,
    )


def slash_bond(key: bytes, slash: Slash) -> Call[SlashBondAnswer]:
    return Call(
        _CONTRACT,
        "slashBond",
        (
            key,
            slash,
        ),
        SlashBondAnswer,
    )


def stop(provider: Address, index: int, seq: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "stop",
        (
            provider,
            index,
            seq,
        ),
        Call.nothing,
    )


def take_cash(account: Address, amount: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "takeCash",
        (
            account,
            amount,
        ),
        Call.nothing,
    )


def take_held(
    key: bytes, seq: int, batch_no: int, signer: Address, times: int
) -> Call[TakeHeldAnswer]:
    return Call(
        _CONTRACT,
        "takeHeld",
        (
            key,
            seq,
            batch_no,
            signer,
            times,
        ),
        TakeHeldAnswer,
    )


def token() -> Call[Address]:
    return Call(_CONTRACT, "token", (), Call.alone)


def unpause(index: int) -> Call[None]:
    return Call(_CONTRACT, "unpause", (index,), Call.nothing)


def use_nonce(account: Address, nonce: int) -> Call[None]:
    return Call(
        _CONTRACT,
        "useNonce",
        (
            account,
            nonce,
        ),
        Call.nothing,
    )


def verification() -> Call[Address]:
    return Call(_CONTRACT, "verification", (), Call.alone)


def windows() -> Call[Windows]:
    return Call(_CONTRACT, "windows", (), Windows.of)


def withdraw(amount: int) -> Call[None]:
    return Call(_CONTRACT, "withdraw", (amount,), Call.nothing)
