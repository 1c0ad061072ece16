"""Transactions against eth-account's, RLP against the yellow paper's examples."""

from typing import Any

import pytest
from eth_account import Account

from cloud_gpu.protocol.adapters.evm_transaction import Fees, Transaction, rlp
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.values import Address

KEY = LocalKey(b"\x07" * 32)
PROVIDER = Address(b"\xaa" * 20)


@pytest.mark.parametrize("to", [None, PROVIDER], ids=["creation", "call"])
@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x80", b"x" * 55, b"y" * 56, b"z" * 70_000])
def test_transactions_are_byte_for_byte_what_eth_account_signs(
    to: Address | None, payload: bytes
) -> None:
    ours = Transaction(
        chain_id=31337,
        nonce=0,
        to=to,
        payload=payload,
        gas=21_000,
        fees=Fees(most=10**18, tip=0),
        wei=128,
    ).signed(KEY)
    fields: dict[str, Any] = {
        "type": 2,
        "chainId": 31337,
        "nonce": 0,
        "data": payload,
        "gas": 21_000,
        "maxFeePerGas": 10**18,
        "maxPriorityFeePerGas": 0,
        "value": 128,
    } | ({"to": str(to)} if to else {})
    theirs = Account.sign_transaction(fields, KEY.secret)
    assert ours.raw == bytes(theirs.raw_transaction)
    assert ours.hash.raw == bytes(theirs.hash)


def test_rlp_of_the_yellow_papers_examples() -> None:
    assert rlp(b"dog") == b"\x83dog"
    assert rlp([b"cat", b"dog"]) == b"\xc8\x83cat\x83dog"
    assert rlp([]) == b"\xc0"
    assert (rlp(0), rlp(15), rlp(1024)) == (b"\x80", b"\x0f", b"\x82\x04\x00")
    assert rlp([[], [[]], [[], [[]]]]) == bytes.fromhex("c7c0c1c0c3c0c1c0")


def test_a_raised_fee_is_one_that_nodes_take() -> None:
    for offered in (Fees(most=1, tip=1), Fees(most=3 * 10**9, tip=10**9)):
        bumped = offered.bumped(Fees(most=2 * 10**9, tip=5))
        assert bumped.most * 100 >= offered.most * 110
        assert bumped.tip * 100 >= offered.tip * 110
        assert bumped.most >= 2 * 10**9
    assert Fees(most=0, tip=0).bumped(Fees(most=0, tip=0)) == Fees(most=0, tip=0)
