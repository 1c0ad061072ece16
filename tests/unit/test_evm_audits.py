"""Verification's ABI: every event has its place, numbers are those of Solidity, addresses known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import rlp  # type: ignore[import-untyped]
from eth_abi.abi import encode

from cloud_gpu.protocol.adapters.deployment_plan import created_at
from cloud_gpu.protocol.adapters.evm_abi import decode_revert, verification
from cloud_gpu.protocol.adapters.evm_audits import BATCH_STATES
from cloud_gpu.protocol.adapters.evm_calls import calldata, destination
from cloud_gpu.protocol.adapters.evm_events import Log, LogDecoder
from cloud_gpu.protocol.audit import BatchState, Opening, VerdictResult
from cloud_gpu.protocol.calls import ConvictSegment, ExpireLease, ReturnHeld
from cloud_gpu.protocol.chain_events import BatchFinalised
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest, keccak256
from tests.unit.verifier.builders import DEPLOYMENT, lease_of, machine

SOURCES = Path(__file__).parents[2] / "contracts" / "src"


def enum_of(name: str) -> list[str]:
    text = (SOURCES / "types" / "Audits.sol").read_text()
    inside = re.search(rf"enum {name} \{{(.*?)\}}", text, re.DOTALL)
    assert inside is not None
    return re.findall(r"\w+", re.sub(r"//.*", "", inside[1]))


def test_enums_are_numbered_as_in_solidity() -> None:
    assert [state.name if state else "NONE" for state in BATCH_STATES] == enum_of("BatchState")
    assert [result.name for result in VerdictResult] == enum_of("VerdictResult")


def log_of(name: str, types: list[str], values: list[object]) -> Log:
    return Log(
        block=7,
        block_hash=Digest(bytes(32)),
        index=0,
        transaction=Digest(bytes(32)),
        topics=(verification().topic(name), machine("provider").word.raw),
        payload=encode(types, values),
    )


EVENTS: dict[str, tuple[list[str], list[object]]] = {
    "BatchCommitted": (
        ["uint24", "uint16", "bytes32", "uint16", "uint48", "uint64"], [1, 0, b"r" * 32, 3, 9, 8]
    ),
    "BatchDrawn": (["uint24", "uint16", "bytes32", "bytes32"], [1, 0, b"s" * 32, b"p" * 32]),
    "SegmentAccused": (
        ["uint24", "uint16", "uint32", "(uint16,bytes32,uint32,(bytes32,uint32)[])"],
        [1, 0, 99, (2, b"l" * 32, 7, [(b"h" * 32, 3)])],
    ),
    "SegmentConvicted": (
        ["uint24", "uint16", "uint16", "uint48", "uint64", "uint64"], [1, 0, 2, 5, 100, 10]
    ),
    "LeafChallenged": (["uint24", "uint16", "uint16", "uint16", "uint32"], [1, 0, 2, 5, 99]),
    "LeafOpened": (
        ["uint24", "uint16", "uint16", "uint16", "bytes32", "bytes32", "bytes32"],
        [1, 0, 2, 4, b"j" * 32, b"r" * 32, b"s" * 32],
    ),
    "SilenceConvicted": (["uint24", "uint16", "uint16", "uint48", "uint64"], [1, 0, 2, 5, 100]),
    "BatchFinalised": (
        ["uint24", "uint16", "uint8", "uint48", "uint48", "uint56", "uint64", "uint48"],
        [1, 0, 5, 1, 2, 3, 4, 5],
    ),
}  # fmt: skip


def test_every_event_of_the_contract_is_told() -> None:
    source = (SOURCES / "interfaces" / "IVerification.sol").read_text()
    declared = set(re.findall(r"event (\w+)\(", source))
    assert declared == {*EVENTS, "AccusationContested"}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_decoded(name: str) -> None:
    decoder = LogDecoder(DEPLOYMENT, lambda _: None)
    event = decoder.decode(log_of(name, *EVENTS[name]), at=50)
    assert type(event).__name__ == name
    assert getattr(event, "lease", None) == lease_of("provider")
    if isinstance(event, BatchFinalised):
        assert event.state is BatchState.PARTIAL
        amounts = (event.provider, event.market, event.audits, event.buyer, event.burnt)
        assert amounts == tuple(TokenAmount(n) for n in (1, 2, 3, 4, 5))


def test_calls_go_to_the_contract_that_they_are_for() -> None:
    lease = lease_of("provider")
    opening = Opening(i=1, leaf=Digest(b"l" * 32), weight=1, proof=())
    convict = ConvictSegment(lease=lease, batch_no=0, opening=opening)
    assert destination(convict, DEPLOYMENT) == DEPLOYMENT.verification
    assert verification().function_of(calldata(convict)) == "convict"
    for call in (ReturnHeld(lease=lease), ExpireLease(lease=lease)):
        assert destination(call, DEPLOYMENT) == DEPLOYMENT.lease_book


def test_its_errors_are_decoded_by_name() -> None:
    selector = keccak256(b"Verification_BadProof(uint16)").raw[:4]
    assert str(decode_revert(selector + encode(["uint16"], [7]))) == "Verification_BadProof(i=7)"


@pytest.mark.parametrize("count", [0, 1, 127, 128, 255, 256, 2**16])
def test_where_a_contract_will_lie(count: int) -> None:
    sender = Address.parse("0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0")
    expected = keccak256(rlp.encode([sender.raw, count])).raw[12:]
    assert created_at(sender, count) == Address(expected)


def test_a_well_known_address() -> None:
    sender = Address.parse("0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0")
    known = "0xcd234a471b72ba2f1ccf0a70fcaba648a5eecd8d"
    assert created_at(sender, 0) == Address.parse(known)
