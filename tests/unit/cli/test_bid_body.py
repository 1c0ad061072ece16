"""A bid that was signed before can be handed in alone or as the dry run printed it."""

from __future__ import annotations

import json

import pytest

from cloud_gpu.cli.bid import orders_in
from cloud_gpu.protocol.codec import to_builtins, to_json
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.orders import Bid, SignedBid, Terms
from cloud_gpu.protocol.signing import Domain, sign
from cloud_gpu.protocol.units import BasisPoints, Price
from cloud_gpu.protocol.values import Address

KEY = LocalKey(b"\x01" * 32)
DOMAIN = Domain(name="LeaseBook", chain_id=31337, verifying_contract=Address(b"\x0b" * 20))


def order(nonce: int, *, elsewhere: bool = False) -> SignedBid:
    terms = Terms()
    bid = Bid(
        buyer=KEY.address,
        product=1,
        count=1,
        max_price_per_hour=Price(1_000_000),
        duration=60,
        start_by=1_800_000_000,
        open_from=1_800_000_000,
        nonce=nonce,
        matcher=Address(b"\x07" * 20) if elsewhere else KEY.address,
        max_fee_bps=BasisPoints(100),
        terms=terms.digest,
    )
    return SignedBid(bid=sign(bid, DOMAIN, KEY), terms=terms)


def test_a_signed_bid_alone_is_one_order() -> None:
    assert orders_in(to_json(order(1)).decode()) == (order(1),)


def test_what_a_dry_run_printed_is_all_its_orders() -> None:
    printed = {"schema": 1, "kind": "bid", "orders": [to_builtins(order(n)) for n in (1, 2)]}
    assert orders_in(json.dumps(printed)) == (order(1), order(2))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '{"kind": "bid"}',
        '{"kind": "bid", "orders": [{}]}',
        '{"bid": 1}',
        "[" * 99999,
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        orders_in(text)
