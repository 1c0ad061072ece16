"""Write the vectors that Python and Solidity both check: `python -m tests.vectors.make`.

Orders: struct hashes and digests of every EIP-712 type under one domain, computed by eth-account,
which shares no code with the protocol. Settlement and futures: the arithmetic by exact fractions.
Campaigns: their ids by eth_abi.
"""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

from eth_abi.abi import encode as abi_encode
from eth_account.messages import encode_typed_data
from eth_utils.crypto import keccak

from cloud_gpu.protocol.audit import (
    Leaf,
    Sibling,
    SumTree,
    batch_key,
    draw_point,
    weights,
)
from cloud_gpu.protocol.futures import WINDOWS_S, Assignment, FutureOrder
from cloud_gpu.protocol.group_buy import Pledge
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import Match
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import Document, TypedData
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.protocol.voucher import Accept, Final, Ready, Voucher

FOLDER = Path(__file__).parent
DOMAIN = {
    "name": "LeaseBook",
    "version": "1",
    "chainId": 31337,
    "verifyingContract": "0x5FbDB2315678afecb367f032d93F642f64180aa3",
}
DELEGATE = "Delegate(address account,uint8 role,uint32 expiry)"
TYPES: tuple[type[TypedData], ...] = (Ask, Bid, Match, Ready, Accept, Voucher, Final, Document)
OF_MODULES: tuple[type[TypedData], ...] = (FutureOrder, Assignment, Pledge)


def order_vectors(rng: random.Random) -> dict[str, Any]:
    """Three random instances of each type, with what eth-account makes of them."""
    type_strings = [*(kind.TYPE for kind in TYPES), DELEGATE, *(kind.TYPE for kind in OF_MODULES)]
    cases = [_order_case(type_string, rng) for type_string in type_strings for _ in range(3)]
    return {"domain": DOMAIN, "cases": cases}


def _order_case(type_string: str, rng: random.Random) -> dict[str, Any]:
    name, inside = re.fullmatch(r"(\w+)\((.*)\)", type_string).groups()  # type: ignore[union-attr]
    layout = [
        dict(zip(("type", "name"), part.split(" "), strict=True)) for part in inside.split(",")
    ]
    fields = {part["name"]: _random_field(name, part["name"], part["type"], rng) for part in layout}
    encoded = encode_typed_data(DOMAIN, {name: layout}, fields)
    return {
        "type": name,
        "typeString": type_string,
        "fields": {k: str(int(v)) if isinstance(v, int) else v for k, v in fields.items()},
        "structHash": "0x" + encoded.body.hex(),
        "digest": "0x" + keccak(b"\x19\x01" + encoded.header + encoded.body).hex(),
    }


def _random_field(owner: str, name: str, kind: str, rng: random.Random) -> Any:
    if kind == "address":
        return "0x" + rng.randbytes(20).hex()
    if kind == "bytes32":
        return "0x" + rng.randbytes(32).hex()
    if kind == "bool":
        return rng.random() < 0.5
    if name in ("minPricePerHour", "maxPricePerHour", "limitPricePerHour", "price"):
        return rng.randrange(1, 2**37) * 1000
    if name == "maxDuration":
        return 2**24 - 1 - rng.randrange(1000)
    if name == "flags":
        return rng.randrange(4 if owner == "Ask" else 8)
    if name in ("maxFeeBps", "auditBps"):
        return rng.randrange(1, 1000)
    if name == "slices":
        return rng.randrange(1, 101)
    bits = int(kind.removeprefix("uint"))
    return rng.randrange(1, 2 ** min(bits, 23))


def settlement_vectors(rng: random.Random) -> list[dict[str, str]]:
    """Edge cases and random ones; every figure by exact fractions, then floored or ceiled."""
    edges = [
        (1, 1, 1),
        (1, 3600, 1),
        (2**48 - 1, 2**24 - 1, 2**24 - 2),
        (10, 3, 0),
        (999, 299, 300),
    ]
    cases = []
    for i in range(60):
        cap, duration, elapsed = (
            edges[i]
            if i < len(edges)
            else (rng.randrange(1, 2**48), rng.randrange(1, 2**24), rng.randrange(0, 2**24))
        )
        paid_at = rng.randrange(0, elapsed + 1)
        fee, penalty, min_bond = (
            rng.randrange(0, 1001),
            rng.randrange(0, 10_001),
            rng.randrange(0, 20_001),
        )
        ceiling = floor(Fraction(cap) * min(elapsed, duration) / duration)
        paid = floor(Fraction(cap) * min(paid_at, duration) / duration)
        voucher = rng.choice(
            [0, paid, ceiling, cap, min(cap, ceiling + 1), rng.randrange(0, cap + 1)]
        )
        delta = max(0, min(voucher, ceiling) - paid)
        market = floor(Fraction(delta * fee, 10_000))
        rest = cap - paid - delta
        row = {
            "cap": cap, "duration": duration, "elapsed": elapsed, "voucher": voucher, "paid": paid,
            "feeBps": fee, "penaltyBps": penalty, "minBondBps": min_bond,
            "accrued": ceiling, "payable": delta, "fee": market, "provider": delta - market,
            "refundOnClose": rest,
            "noShow": min(cap, ceil(Fraction(cap * 300, duration))),
            "penalty": ceil(Fraction(rest * penalty, 10_000)),
            "bondNeeded": ceil(Fraction(cap * min_bond, 10_000)),
        }  # fmt: skip
        cases.append({key: str(value) for key, value in row.items()})
    return cases


def futures_vectors(rng: random.Random) -> dict[str, Any]:
    """Margins, parts and forfeits by exact fractions; ids of campaigns, which pledges name."""
    edges = [(1000, 1, 1, 1000, 3600, 1), (2**37 * 1000 - 1000, 8, 64, 5000, 604_800, 0)]
    cases = []
    for i in range(40):
        price, gpus, units, bps, window, floor_ = (
            edges[i]
            if i < len(edges)
            else (
                rng.randrange(1, 10**5) * 1000, rng.randrange(1, 9), rng.randrange(1, 65),
                rng.randrange(1, 5001), rng.choice(WINDOWS_S), rng.choice((0, 10**6, 10**8)),
            )
        )  # fmt: skip
        exact = Fraction(price * gpus * units * window, 3600) * Fraction(bps, 10_000)
        margin = max(floor_, ceil(exact))
        part, left = margin // units, rng.choice((0, 1, window - 1, window, rng.randrange(window)))
        row = {
            "price": price, "gpus": gpus, "units": units, "window": window, "bps": bps,
            "floor": floor_, "margin": margin, "part": part, "left": left,
            "forfeit": floor(Fraction(part * left, window)),
        }  # fmt: skip
        cases.append({key: str(value) for key, value in row.items()})
    return {"cases": cases, "campaigns": [_campaign_case(rng, n) for n in range(4)]}


def _campaign_case(rng: random.Random, listed: int) -> dict[str, Any]:
    """One campaign that `listed` providers may serve; 0: anybody."""
    contract, organiser = rng.randbytes(20), rng.randbytes(20)
    providers = [rng.randbytes(20) for _ in range(listed)]
    named = keccak(abi_encode(["address[]"], [providers])) if listed else bytes(32)
    kinds = ["uint32", "uint64", "uint24", "uint16", "uint32", "uint32", "uint16"]
    values = [rng.randrange(1, 2**20), rng.randrange(1, 2**20) * 1000, rng.randrange(1, 2**24)]
    values += [rng.randrange(1, 101), rng.randrange(2**31), 2**31 + rng.randrange(2**20)]
    values += [rng.randrange(2**16)]
    encoded = abi_encode(
        ["uint256", "address", "address", *kinds, "bytes32"],
        [31337, contract, organiser, *values, named],
    )
    names = ("product", "pricePerHour", "duration", "goal", "windowStart", "deadline", "marketId")
    return {
        "contract": "0x" + contract.hex(), "organiser": "0x" + organiser.hex(),
        **{name: str(value) for name, value in zip(names, values, strict=True)},
        "providers": ["0x" + each.hex() for each in providers],
        "providersHash": "0x" + named.hex(), "id": "0x" + keccak(encoded).hex(),
    }  # fmt: skip


def audit_vectors(rng: random.Random) -> list[dict[str, Any]]:
    """Merkle sum trees of 1 to 100 segments: leaves, root, one proof, and draws from a seed."""
    cases = []
    contract = Address(rng.randbytes(20))
    for n in (1, 2, 3, 4, 5, 7, 8, 13, 33, 100):
        lease = LeaseKey(provider=Address(rng.randbytes(20)), index=rng.randrange(9), seq=n)
        shares = weights([rng.randrange(1, 600) for _ in range(n)])
        leaves = [
            Leaf(
                lease=lease,
                batch_no=1,
                i=i,
                weight=share,
                job=Digest(rng.randbytes(32)),
                result=Digest(rng.randbytes(32)),
                salt=Digest(rng.randbytes(32)),
            )
            for i, share in enumerate(shares)
        ]
        hashes = [Sibling(hash=leaf.hash(31337, contract), weight=leaf.weight) for leaf in leaves]
        tree, i, seed = SumTree(hashes), rng.randrange(n), Digest(rng.randbytes(32))
        proof = tree.proof(i)
        leaf = leaves[i]
        cases.append({
            "contract": str(contract), "provider": str(lease.provider), "index": str(lease.index),
            "seq": str(lease.seq), "batchNo": "1", "n": str(n), "root": str(tree.root),
            "batchKey": str(batch_key(lease, 1)), "i": str(i), "weight": str(leaf.weight),
            "job": str(leaf.job), "result": str(leaf.result), "salt": str(leaf.salt),
            "leaf": str(hashes[i].hash), "start": str(sum(shares[:i])),
            "proofHashes": [str(step.hash) for step in proof],
            "proofWeights": [str(step.weight) for step in proof],
            "seed": str(seed), "points": [str(draw_point(seed, j)) for j in range(4)],
        })  # fmt: skip
    return cases


def main() -> None:
    """Write all files; the seed is part of the vectors."""
    for name, content in (
        ("orders.json", order_vectors(random.Random(20261130))),
        ("settlement.json", {"cases": settlement_vectors(random.Random(20261130))}),
        ("futures.json", futures_vectors(random.Random(20261130))),
        ("audit.json", {"cases": audit_vectors(random.Random(20261130))}),
    ):
        (FOLDER / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
