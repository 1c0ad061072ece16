"""Admission of bids, one core: orders a second, beside eth-account in the same run.

`orders_per_s` is digest and recovery of a decoded order; `whole_orders_per_s` is everything up to
the API's decision: the body's JSON, every check, terms' digest, digest, recovery. Nothing is
written down here; `benchmarks.api` does that. Every signer is compared with eth-account's. The
three take turns; CPU time, least of the runs. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

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


def peer(messages: Sequence[tuple[Any, Any, Any, bytes]]) -> list[str]:
    """eth-account, of plain values."""
    return [
        Account.recover_message(encode_typed_data(domain, types, values), signature=signature)
        for domain, types, values, signature in messages
    ]


def message(order: SignedBid) -> tuple[Any, Any, Any, bytes]:
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
    theirs = peer(messages)
    if not (
        [str(signer) for signer in digest_and_recover(orders)]
        == [str(signer) for signer in whole(bodies)]
        == theirs
    ):
        sys.exit("other signers than eth-account's")

    loops = (
        lambda: digest_and_recover(orders),
        lambda: whole(bodies),
        lambda: peer(messages),
    )
    ours, complete, slowest = (asked.orders / each for each in least(loops, asked.turns))
    print(f"{asked.orders} bids of {len(bodies[0])} bytes, {asked.turns} turns, one core\n")
    print(f"{'':44}{'orders/s':>10}{'us each':>10}")
    for name, found in (
        ("digest + recover", ours),
        ("whole: JSON, checks, digest, recover", complete),
        ("eth-account: encode_typed_data + recover", slowest),
    ):
        print(f"{name:44}{found:>10,.0f}{1e6 / found:>10.1f}")
    line = {
        "orders_per_s": round(ours),
        "whole_orders_per_s": round(complete),
        "eth_account_orders_per_s": round(slowest),
        "ratio_to_eth_account": round(ours / slowest, 2),
        "whole_ratio_to_eth_account": round(complete / slowest, 2),
    }
    print(f"\ntargets: orders_per_s {ORDERS_TARGET:,}, ratio_to_eth_account {RATIO_TARGET}")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
