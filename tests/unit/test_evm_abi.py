"""ABI tables against the Solidity sources, encodings against libraries that share no code."""

import re
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import decode, encode
from msgspec.structs import replace

from cloud_gpu.protocol import chain_events as events
from cloud_gpu.protocol.adapters.evm_abi import (
    lease_book,
    payment_token,
)
from cloud_gpu.protocol.adapters.evm_calls import calldata, spare_gas
from cloud_gpu.protocol.adapters.evm_events import LeaseWord, Log, LogDecoder
from cloud_gpu.protocol.adapters.evm_packing import compact, packed_matches
from cloud_gpu.protocol.calls import (
    Begin,
    CancelOne,
    CloseBatch,
    Closing,
    ExpireLease,
    GiveNotice,
    MatchedOrders,
    OpenBatch,
    PostReady,
    RefundUnstarted,
    ReleaseLease,
    SettleBatch,
    StopLease,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import (
    ChainUnavailable,
)
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, MachineKey, Windows
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import Domain, sign
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Signature
from cloud_gpu.protocol.voucher import Accept, Final, Ready, Voucher

SOURCES = Path(__file__).parents[2] / "contracts" / "src"
KEY = LocalKey(b"\x07" * 32)
PROVIDER = Address(b"\xaa" * 20)
BUYER = Address(b"\xbb" * 20)
BOOK = Address(b"\xcc" * 20)
LEASE = LeaseKey(provider=PROVIDER, index=3, seq=5)
DEPLOYMENT = Deployment(
    chain_id=31337,
    lease_book=BOOK,
    token=Address(b"\xdd" * 20),
    first_block=1,
    windows=Windows(start=10, claim=20, retire=60),
    bond_unit=TokenAmount(1_000_000),
)
DOMAIN = Domain(name="LeaseBook", chain_id=31337, verifying_contract=BOOK)


def _ask() -> Ask:
    return Ask(
        provider=PROVIDER,
        index=3,
        seq=5,
        product=1,
        min_price_per_hour=Price(1_000),
        min_duration=1,
        max_duration=9,
        start_by=77,
        matcher=KEY.address,
        max_fee_bps=BasisPoints(10),
    )


def _bid() -> Bid:
    return Bid(
        buyer=BUYER,
        product=1,
        count=1,
        max_price_per_hour=Price(2_000),
        duration=8,
        start_by=78,
        open_from=79,
        nonce=6,
        matcher=KEY.address,
        max_fee_bps=BasisPoints(11),
        terms=Digest(b"\x44" * 32),
    )


def _opening(ask: Ask, bid: Bid) -> OpenBatch:
    entry = MatchedOrders(ask=sign(ask, DOMAIN, KEY), bid=sign(bid, DOMAIN, KEY))
    return OpenBatch(product=1, price=Price(1_000), market_id=2, matches=(entry,))


def test_a_batch_is_packed_field_for_field() -> None:
    ask, bid = _ask(), _bid()
    call = _opening(ask, bid)
    sent = calldata(call)
    assert lease_book().function_of(sent) == "openPacked"
    product, price, market, data = decode(["uint32", "uint64", "uint16", "bytes"], sent[4:])
    assert (product, price, market) == (1, 1_000, 2)
    heads = PROVIDER.raw + _be(4, 3) + _be(8, 1_000) + BUYER.raw + _be(4, 6) + _be(8, 2_000)
    of_ask = _be(3, 5) + _be(3, 1) + _be(3, 9) + _be(4, 77) + _be(2, 10) + _be(1, 0)
    of_bid = _be(3, 8) + _be(4, 78) + _be(4, 79) + _be(2, 11) + _be(2, 0) + _be(1, 0)
    (entry,) = call.matches
    signatures = compact(entry.ask.signature) + compact(entry.bid.signature)
    assert data == heads + of_ask + of_bid + b"\x44" * 32 + signatures
    assert len(data) == 256
    assert spare_gas(call) > 0


def test_a_bid_that_names_its_provider_sets_one_bit() -> None:
    data = packed_matches(1, _opening(_ask(), replace(_bid(), provider=PROVIDER)).matches)
    assert data is not None
    assert data[95] == 0x80


@pytest.mark.parametrize(
    ("ask", "bid"),
    [
        ({"matcher": PROVIDER}, {}),
        ({}, {"matcher": PROVIDER}),
        ({"product": 2}, {}),
        ({}, {"product": 2}),
        ({}, {"provider": BUYER}),
    ],
)
def test_a_pair_that_packed_calldata_cannot_say_goes_through_the_abi(
    ask: dict[str, Any], bid: dict[str, Any]
) -> None:
    call = _opening(replace(_ask(), **ask), replace(_bid(), **bid))
    sent = calldata(call)
    assert lease_book().function_of(sent) == "openBatch"
    ask_type = "(address,uint32,uint24,uint32,uint64,uint24,uint24,uint32,address,uint16,uint8)"
    bid_type = (
        "(address,uint32,uint16,uint64,uint24,uint32,uint32,address,uint32,address,uint16,uint16,"
        "uint8,bytes32)"
    )
    types = ["uint32", "uint64", "uint16", f"({ask_type},{bid_type},bytes,bytes)[]"]
    product, price, market, matches = decode(types, sent[4:])
    assert (product, price, market) == (1, 1_000, 2)
    (entry,) = call.matches
    assert matches[0][2:] == (entry.ask.signature.raw, entry.bid.signature.raw)
    assert matches[0][0][:3] == (str(PROVIDER).lower(), 3, 5)
    assert matches[0][1][-1] == b"\x44" * 32


def test_a_signature_is_halved_and_not_lost() -> None:
    for v in (27, 28):
        r, s = b"\x11" * 32, b"\x22" * 32
        packed = compact(Signature(r + s + bytes([v])))
        assert packed[:32] == r
        assert int.from_bytes(packed[32:], "big") == int.from_bytes(s, "big") | (v - 27) << 255


def test_a_closing_carries_the_buyers_final_where_there_is_one() -> None:
    fields: dict[str, Any] = {
        "provider": PROVIDER, "index": 3, "seq": 5, "amount": TokenAmount(9),
    }  # fmt: skip
    voucher = sign(Voucher(**fields), DOMAIN, KEY)
    final = sign(Final(**fields), DOMAIN, LocalKey(b"\x08" * 32))
    own = sign(Final(**fields), DOMAIN, KEY)
    for buyer_final, expected in ((None, voucher.signature), (own, own.signature)):
        closing = Closing(voucher=voucher, final=final, buyer_final=buyer_final)
        sent = calldata(CloseBatch(closings=(closing,)))
        assert lease_book().function_of(sent) == "closePacked"
        data, with_finals = decode(["bytes", "bool"], sent[4:])
        assert with_finals
        head = PROVIDER.raw + _be(4, 3) + _be(3, 5) + _be(6, 9)
        assert data == head + compact(expected) + compact(final.signature)


def test_a_provider_begins_without_its_own_ready() -> None:
    accept = Accept(provider=PROVIDER, index=3, seq=5, started_at=99)
    signed = sign(accept, DOMAIN, KEY)
    sent = calldata(Begin(ready=None, accept=signed))
    assert lease_book().function_of(sent) == "beginPacked"
    provider, data = decode(["address", "bytes"], sent[4:])
    assert provider == str(PROVIDER).lower()
    assert data == _be(4, 3) + _be(3, 5) + _be(4, 99) + compact(signed.signature)


def _be(size: int, value: int) -> bytes:
    return value.to_bytes(size, "big")


def test_every_other_call_goes_to_its_function() -> None:
    three: dict[str, Any] = {"provider": PROVIDER, "index": 3, "seq": 5}
    ready = sign(Ready(**three, runtime_hash=Digest(b"\x55" * 32)), DOMAIN, KEY)
    accept = sign(Accept(**three, started_at=99), DOMAIN, KEY)
    voucher = sign(Voucher(**three, amount=TokenAmount(9)), DOMAIN, KEY)
    released = LeaseEndReason.NO_VOUCHERS
    for call, function in (
        (PostReady(ready=ready), "postReady"),
        (Begin(ready=ready, accept=accept), "begin"),
        (SettleBatch(vouchers=(voucher,)), "settleBatch"),
        (StopLease(lease=LEASE), "stop"),
        (GiveNotice(lease=LEASE), "giveNotice"),
        (ReleaseLease(lease=LEASE, voucher=voucher, reason=released), "release"),
        (ReleaseLease(lease=LEASE, voucher=None, reason=released), "release"),
        (RefundUnstarted(lease=LEASE), "refundUnstarted"),
        (ExpireLease(lease=LEASE), "expire"),
        (CancelOne(nonce=4), "cancelOne"),
    ):
        assert lease_book().function_of(calldata(call)) == function
    sent = calldata(ReleaseLease(lease=LEASE, voucher=None, reason=released))
    named, signature, reason = decode(
        ["(address,uint32,uint24,uint48)", "bytes", "uint8"], sent[4:]
    )
    assert (named, signature, reason) == ((str(PROVIDER).lower(), 3, 5, 0), b"", 4)


# Logs.


def _log(name: str, indexed: list[bytes], types: list[str], values: list[Any]) -> Log:
    topics = (lease_book().topic(name), *(topic.rjust(32, b"\0") for topic in indexed))
    return Log(
        block=9,
        block_hash=Digest(b"\x01" * 32),
        index=0,
        transaction=Digest(b"\x02" * 32),
        topics=topics,
        payload=encode(types, values),
    )


def _decoder() -> LogDecoder:
    return LogDecoder(DEPLOYMENT, lambda _: None)


MACHINE = MachineKey(provider=PROVIDER, index=3)


def test_a_lease_word_is_unpacked_as_it_is_packed() -> None:
    word = LeaseWord(
        cap=2**48 - 1, paid=1, market_id=2**16 - 1, buyer_id=7, start=2**32 - 1, duration=600,
        seq=2**24 - 1, bond=50, status=2, flags=15,
    )  # fmt: skip
    packed, shift = 0, 0
    for value, bits in zip(
        (word.cap, word.paid, word.market_id, word.buyer_id, word.start, word.duration, word.seq,
         word.bond, word.status, word.flags),
        (48, 48, 16, 32, 32, 24, 24, 24, 4, 4),
        strict=True,
    ):  # fmt: skip
        packed |= value << shift
        shift += bits
    assert shift == 256
    assert LeaseWord.unpack(packed) == word


def test_what_a_log_refers_to_must_have_been_logged() -> None:
    opened = _log("LeaseOpened", [MACHINE.word.raw, b"\x05" * 32], ["uint256"], [7 << 112])
    with pytest.raises(ChainUnavailable, match="registration of account 7 was never logged"):
        _decoder().decode(opened, 50)
    revoked = _log("DelegateRevoked", [PROVIDER.raw, KEY.address.raw], ["uint32"], [60])
    with pytest.raises(ChainUnavailable, match="delegation of 0x"):
        _decoder().decode(revoked, 50)


def test_a_log_of_another_contract_or_a_later_version_is_passed_over() -> None:
    strange = Log(9, Digest(b"\x01" * 32), 0, Digest(b"\x02" * 32), (b"\x09" * 32,), b"")
    assert _decoder().decode(strange, 50) is None
    assert (
        _decoder().decode(Log(9, strange.block_hash, 0, strange.transaction, (), b""), 50) is None
    )


def test_every_event_of_the_contract_is_told_or_left_out_on_purpose() -> None:
    """A new event in Solidity must get its place here before it can be missed silently."""
    told = {
        "AccountRegistered", "Deposited", "Withdrawn", "DelegateSet", "DelegateRevoked",
        "NonceCancelled", "NoncesCancelled", "ProductRegistered", "MarketRegistered",
        "MachineAdded", "BondAdded", "MachinePaused", "MachineRetiring", "MachineRetired",
        "OrdersCancelled", "LeaseOpened", "LeaseReady", "LeaseStarted", "LeaseSettled",
        "LeaseStopped", "NoticeGiven", "LeaseClosed", "PenaltyPaid", "EntrySkipped",
        "HeldReturned",
    }  # fmt: skip
    left_out = {"Paused", "EIP712DomainChanged", "BondSlashed", "ModuleTook", "ModuleGave"}
    source = (SOURCES / "interfaces" / "ILeaseBookLog.sol").read_text()
    declared = set(re.findall(r"^\s*event (\w+)\(", source, re.MULTILINE))
    assert declared <= told | left_out
    assert told <= declared


@pytest.mark.parametrize(
    ("name", "types", "values", "expected"),
    [
        ("MachinePaused", ["bool"], [True], events.MachinePaused(machine=MACHINE, paused=True)),
        ("MachineRetiring", ["uint32"], [60], events.MachineRetiring(machine=MACHINE)),
        ("MachineRetired", ["uint24"], [4], events.MachineRetired(machine=MACHINE)),
        ("OrdersCancelled", ["uint24"], [8], events.AsksCancelled(machine=MACHINE, seq=8)),
        (
            "BondAdded",
            ["uint24"],
            [4],
            events.BondAdded(machine=MACHINE, added=TokenAmount(4_000_000)),
        ),
        (
            "NoticeGiven",
            ["uint24", "uint64"],
            [5, 650],
            events.NoticeGiven(lease=LEASE, releasable_at=650, at=50),
        ),
        (
            "PenaltyPaid",
            ["uint24", "uint64"],
            [5, 12],
            events.PenaltyPaid(lease=LEASE, amount=TokenAmount(12), at=50),
        ),
    ],
)
def test_machine_logs(name: str, types: list[str], values: list[Any], expected: object) -> None:
    assert _decoder().decode(_log(name, [MACHINE.word.raw], types, values), 50) == expected


def test_account_logs() -> None:
    cancelled = _log("NoncesCancelled", [BUYER.raw], ["uint32"], [9])
    assert _decoder().decode(cancelled, 50) == events.BidsCancelled(
        account=BUYER, nonce=9, below=True
    )
    withdrawn = _log("Withdrawn", [BUYER.raw], ["uint64"], [9])
    assert _decoder().decode(withdrawn, 50) == events.CashChanged(
        account=BUYER, amount=TokenAmount(9), increase=False
    )


def test_the_token_takes_the_calls_that_a_wallet_makes() -> None:
    for function, given in (
        ("approve", (BOOK, TokenAmount(1))),
        ("mint", (BUYER, TokenAmount(1))),
        ("transfer", (BUYER, TokenAmount(1))),
    ):
        assert payment_token().function_of(payment_token().encode(function, *given)) == function
