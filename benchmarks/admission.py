"""Admission of bids, one core: orders a second, beside eth-account in the same run.

`orders_per_s` is digest and recovery of a decoded order; `whole_orders_per_s` is everything up to
the API's decision: the body's JSON, every check, terms' digest, digest, recovery. Nothing is
written down here; `benchmarks.api` does that. Every signer is compared with eth-account's.

eth-account runs on coincurve, as here, and also on the pure Python that it has when nothing else
was installed. `recover_alone_per_s` is coincurve's recovery and no hash: what no admission in this
process can pass, and so bounds the ratio (`ratio_bound`). All take turns; CPU time, least of the
runs. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from coincurve import PublicKey
from eth_account import Account
from eth_account.messages import encode_typed_data

from benchmarks._orders import FEE, NOW_S, PRODUCT, RULES, bids
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.orders import Bid, SignedBid
from cloud_gpu.protocol.signing import Verified, recover
from cloud_gpu.protocol.units import Quantity
from cloud_gpu.protocol.values import Address, FixedBytes
from market.doors.intake import check_bid

ORDERS_TARGET, RATIO_TARGET = 12_000, 10
"""Source: the issue, DESIGN.md 7."""
NATIVE_ORDERS = 10
"""In one turn; each takes milliseconds."""

Message = tuple[Any, Any, Any, bytes]


def digest_and_recover(orders: Sequence[SignedBid]) -> list[Address | None]:
    """What the signature costs, of orders that are decoded."""
    return [
        recover(order.bid.payload.digest(RULES.domain), order.bid.signature) for order in orders
    ]


def whole(bodies: Sequence[bytes]) -> list[Address | None]:
    """As `POST /v1/bids`, up to the decision."""
    signers: list[Address | None] = []
    products = {PRODUCT.id: PRODUCT}
    for body in bodies:
        order = from_json(body, SignedBid)
        found = check_bid(order, rules=RULES, products=products, fee=FEE, at=NOW_S)
        signers.append(found.signer if isinstance(found, Verified) else None)
    return signers


def recover_alone(digests: Sequence[tuple[bytes, bytes]]) -> list[PublicKey]:
    """The library, of signatures and digests that lie ready."""
    return [
        PublicKey.from_signature_and_message(signature, digest, hasher=None)
        for signature, digest in digests
    ]


def ready(order: SignedBid) -> tuple[bytes, bytes]:
    """A signature as coincurve takes it, and what it signs."""
    raw = order.bid.signature.raw
    return raw[:64] + bytes([raw[64] - 27]), order.bid.payload.digest(RULES.domain).raw


def peer(messages: Sequence[Message]) -> list[str]:
    """eth-account, of plain values."""
    return [
        Account.recover_message(encode_typed_data(domain, types, values), signature=signature)
        for domain, types, values, signature in messages
    ]


def native_peer(messages: Sequence[Message]) -> list[str]:
    """eth-account where coincurve is not installed."""
    backend = "eth_keys.backends.NativeECCBackend"
    with patch.dict(os.environ, ECC_BACKEND_CLASS=backend):  # read at each recovery
        return peer(messages)


def message(order: SignedBid) -> Message:
    """A bid as eth-account takes it."""
    domain, types, values = RULES.domain, [], {}
    for field in Bid.TYPE[Bid.TYPE.index("(") + 1 : -1].split(","):
        kind, camel = field.split(" ")
        ours = "".join("_" + c.lower() if c.isupper() else c for c in camel)
        found = getattr(order.bid.payload, ours)
        types.append({"name": camel, "type": kind})
        values[camel] = (
            str(found)
            if isinstance(found, Address)
            else found.raw
            if isinstance(found, FixedBytes)
            else found.value
            if isinstance(found, Quantity)
            else found
        )
    about = {
        "name": domain.name,
        "version": domain.version,
        "chainId": domain.chain_id,
        "verifyingContract": str(domain.verifying_contract),
    }
    return about, {"Bid": types}, values, order.bid.signature.raw


def least(loops: Sequence[Callable[[], Any]], turns: int) -> list[float]:
    """Least CPU seconds of each loop; they take turns."""
    took = [float("inf")] * len(loops)
    for _ in range(turns):
        for place, loop in enumerate(loops):
            began = time.process_time()
            loop()
            took[place] = min(took[place], time.process_time() - began)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, default=500, help="in one turn")
    parser.add_argument("--turns", type=int, default=15)
    asked = parser.parse_args()
    orders = bids(asked.orders)
    bodies, messages = [to_json(order) for order in orders], [message(order) for order in orders]
    theirs, few = peer(messages), messages[:NATIVE_ORDERS]
    if (
        not (
            [str(signer) for signer in digest_and_recover(orders)]
            == [str(signer) for signer in whole(bodies)]
            == theirs
        )
        or native_peer(few) != theirs[: len(few)]
    ):
        sys.exit("other signers than eth-account's")

    digests = [ready(order) for order in orders]
    loops = (
        lambda: digest_and_recover(orders),
        lambda: whole(bodies),
        lambda: recover_alone(digests),
        lambda: peer(messages),
        lambda: native_peer(few),
    )
    took = least(loops, asked.turns)
    ours, complete, alone, slower = (asked.orders / each for each in took[:-1])
    slowest = len(few) / took[-1]
    print(f"{asked.orders} bids of {len(bodies[0])} bytes, {asked.turns} turns, one core\n")
    print(f"{'':50}{'orders/s':>10}{'us each':>10}")
    for name, found in (
        ("digest + recover", ours),
        ("whole: JSON, checks, digest, recover", complete),
        ("bound: coincurve's recovery alone", alone),
        ("eth-account: encode_typed_data + recover", slower),
        ("eth-account without coincurve, in Python", slowest),
    ):
        print(f"{name:50}{found:>10,.0f}{1e6 / found:>10.1f}")
    line = {
        "orders_per_s": round(ours),
        "whole_orders_per_s": round(complete),
        "recover_alone_per_s": round(alone),
        "eth_account_orders_per_s": round(slower),
        "ratio_to_eth_account": round(ours / slower, 2),
        "ratio_bound": round(alone / slower, 2),
        "whole_ratio_to_eth_account": round(complete / slower, 2),
        "ratio_to_eth_account_native": round(ours / slowest, 2),
    }
    print(f"\ntargets: orders_per_s {ORDERS_TARGET:,}, ratio_to_eth_account {RATIO_TARGET}")
    print(
        f"recovery alone is {alone / slower:.1f} times eth-account's speed: no ratio here is higher"
    )
    print(json.dumps(line))


if __name__ == "__main__":
    main()
