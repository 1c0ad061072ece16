"""Receipts: one signature for many, and nothing that it did not sign passes under it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.receipts import (
    AHEAD_S_MAX,
    Receipt,
    SignedReceipt,
    check_receipt,
    sign_receipts,
    signer_of_receipt,
    write_receipts,
)
from cloud_gpu.protocol.signing import Domain
from cloud_gpu.protocol.values import Address, keccak256

DOMAIN = Domain(name="LeaseBook", chain_id=1, verifying_contract=Address(b"\x0b" * 20))
MARKET, STRANGER = LocalKey(keccak256(b"market").raw), LocalKey(keccak256(b"stranger").raw)
AT, LIFE_S = 1_800_000_000, 60


def receipts(count: int) -> list[Receipt]:
    return [
        Receipt(order=keccak256(b"%d" % number), inbox=7 + number, received_at=AT * 1000 + number)
        for number in range(count)
    ]


def signed(count: int, key: LocalKey = MARKET) -> list[SignedReceipt]:
    return sign_receipts(receipts(count), key, DOMAIN, life_s=LIFE_S)


def refused(receipt: SignedReceipt, at: int = AT) -> RejectReason | None:
    found = check_receipt(receipt, DOMAIN, market=MARKET.address, at=at)
    return None if found is None else found.reason


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_one_signature_is_under_all_and_each_proves_itself(count: int) -> None:
    found = [from_json(to_json(each), SignedReceipt) for each in signed(count)]
    assert [each.body for each in found] == receipts(count)
    assert len({each.root.signature for each in found}) == 1
    for each in found:
        assert refused(each) is None
        assert signer_of_receipt(each, DOMAIN) == MARKET.address
    written = write_receipts(receipts(count), MARKET, DOMAIN, life_s=LIFE_S)
    assert written == [to_json(each) for each in signed(count)]


@pytest.mark.parametrize(
    "change",
    [{"order": keccak256(b"another")}, {"inbox": 8}, {"received_at": AT * 1000 - 1}],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("count", [1, 3])
def test_order_position_and_time_are_bound(count: int, change: dict[str, object]) -> None:
    honest = signed(count)[0]
    forged = replace(honest, body=replace(honest.body, **change))
    assert refused(forged) is RejectReason.BAD_SIGNATURE
    assert signer_of_receipt(forged, DOMAIN) is None


def test_a_path_leads_to_its_own_root_alone() -> None:
    one, other = signed(3)[0], signed(2)[0]
    for forged in (
        replace(one, path=other.path),
        replace(one, path=replace(one.path, place=1)),
        replace(one, root=other.root),
    ):
        assert refused(forged) is RejectReason.BAD_SIGNATURE


def test_only_the_market_gives_them_and_only_for_a_time() -> None:
    assert refused(signed(3, STRANGER)[1]) is RejectReason.KEY_NOT_AUTHORISED
    assert signer_of_receipt(signed(3, STRANGER)[1], DOMAIN) == STRANGER.address
    renamed = signed(1)[0]
    body = replace(renamed.root.body, market=STRANGER.address)
    forged = replace(renamed, root=replace(renamed.root, body=body))
    assert refused(forged) is RejectReason.KEY_NOT_AUTHORISED
    assert refused(signed(1)[0], at=AT + LIFE_S) is RejectReason.EXPIRED


def test_one_dated_ahead_of_the_takers_clock_is_refused_and_names_both_times() -> None:
    late = signed(1)[0]
    assert refused(late, at=AT - AHEAD_S_MAX) is None
    found = check_receipt(late, DOMAIN, market=MARKET.address, at=AT - AHEAD_S_MAX - 1)
    assert found is not None
    assert (found.reason, found.field) == (
        RejectReason.DURATION_OUTSIDE_LIMITS,
        "receipt.received_at",
    )
    assert "301 s ahead of this machine's clock" in found.found
    forged = signed(1, STRANGER)[0]
    assert refused(forged, at=AT - AHEAD_S_MAX - 1) is RejectReason.KEY_NOT_AUTHORISED
