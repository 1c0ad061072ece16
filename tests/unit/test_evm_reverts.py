"""Enums, skip codes and custom errors, against the Solidity sources."""

import re
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode

from cloud_gpu.protocol.adapters.evm_abi import (
    decode_revert,
)
from cloud_gpu.protocol.adapters.evm_direct import refusal
from cloud_gpu.protocol.adapters.evm_skips import SkipCode, rejection_of
from cloud_gpu.protocol.errors import (
    FundsTooSmall,
    RejectReason,
    TransactionReverted,
)
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, MachineStatus
from cloud_gpu.protocol.values import Address

SOURCES = Path(__file__).parents[2] / "contracts" / "src"
PROVIDER = Address(b"\xaa" * 20)


def solidity_enum(name: str) -> list[str]:
    text = (SOURCES / "types" / "Lifecycle.sol").read_text()
    inside = re.search(rf"enum {name} \{{(.*?)\}}", text, re.DOTALL)
    assert inside is not None
    return re.findall(r"\w+", re.sub(r"//.*", "", inside[1]))


def test_enums_are_numbered_as_in_solidity() -> None:
    assert [code.name for code in SkipCode] == solidity_enum("SkipCode")
    assert [code.value for code in SkipCode] == list(range(len(SkipCode)))
    assert [reason.name for reason in LeaseEndReason] == solidity_enum("CloseReason")
    assert [status.name for status in MachineStatus] == [
        name.upper() for name in solidity_enum("Status")
    ]
    assert [role.name for role in KeyRole] == [name.upper() for name in solidity_enum("Role")][1:]


@pytest.mark.parametrize("code", [code for code in SkipCode if code], ids=lambda code: code.name)
def test_every_skip_code_has_a_reason_a_field_and_what_is_needed(code: SkipCode) -> None:
    rejection = rejection_of(code)
    assert rejection.reason is not RejectReason.MALFORMED
    assert rejection.field
    assert rejection.needed
    assert rejection.found == code.name.lower().replace("_", " ")


@pytest.mark.parametrize("code", [0, len(SkipCode), 255])
def test_an_unknown_skip_code_is_named(code: int) -> None:
    assert str(code) in rejection_of(code).found


# Reverts.


def test_custom_errors_keep_their_names_and_numbers() -> None:
    too_low = _error("LeaseBook_CashTooLow", ["uint256", "uint256"], [5, 9])
    assert str(decode_revert(too_low)) == "LeaseBook_CashTooLow(have=5, need=9)"
    wrong = _error("LeaseBook_WrongStatus", ["uint8"], [2])
    assert str(decode_revert(wrong)) == "LeaseBook_WrongStatus(found=FUNDED)"
    product = _error("LeaseBook_BadProduct", ["bytes32"], [b"sliceGpus".ljust(32, b"\0")])
    assert str(decode_revert(product)) == "LeaseBook_BadProduct(field=sliceGpus)"
    owner = _error("LeaseBook_NotOwner", ["address"], [PROVIDER.raw])
    assert str(decode_revert(owner)) == f"LeaseBook_NotOwner(caller={PROVIDER})"


def test_other_reverts_are_told_as_far_as_they_can_be() -> None:
    text = bytes.fromhex("08c379a0") + encode(["string"], ["no"])
    assert str(decode_revert(text)) == "Error(text=no)"
    panic = bytes.fromhex("4e487b71") + encode(["uint256"], [17])
    assert str(decode_revert(panic)) == "Panic(code=17)"
    assert str(decode_revert(b"\x01\x02\x03\x04")) == "Reverted(returned=0x01020304)"
    assert str(decode_revert(None, "execution reverted")) == "Reverted(text=execution reverted)"
    cut = bytes.fromhex("08c379a0") + b"\xff" * 40
    assert str(decode_revert(cut)).startswith("Reverted(returned=0x08c379a0ff")


def test_lacking_money_has_its_own_exception_with_both_numbers() -> None:
    found = refusal(decode_revert(_error("LeaseBook_CashTooLow", ["uint256"] * 2, [5, 9_000_000])))
    assert isinstance(found, FundsTooSmall)
    assert (found.needed, found.have) == (9_000_000, 5)
    assert "9.00 are needed" in str(found)
    other = refusal(decode_revert(_error("LeaseBook_AmountZero", [], [])))
    assert isinstance(other, TransactionReverted)
    assert other.error == "LeaseBook_AmountZero"


def _error(name: str, types: list[str], values: list[Any]) -> bytes:
    from eth_utils.crypto import keccak

    return bytes(keccak(f"{name}({','.join(types)})".encode())[:4]) + encode(types, values)


# Calls.
