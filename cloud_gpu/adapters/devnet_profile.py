"""What a devnet is made of: its time-outs in seconds, who takes part, what each node puts up.

Every key is new for each devnet and holds play money only. Prices are real (see `offers`), the
GPUs behind them are pretended and declared so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cloud_gpu.adapters.offers import Offer, dealt, read_offers, single_gpus
from cloud_gpu.protocol.deployment import AuditWindows
from cloud_gpu.protocol.futures import FuturesRules
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.units import BasisPoints, TokenAmount, format_tokens

BLOCK_S: Final = 1
WINDOWS: Final = Windows(start=10, claim=15, retire=600)
AUDITS: Final = AuditWindows(commit=120, challenge=10, hard_cap=240, late_slash=60, answer=20)
"""A bond stays until the last batch can cost it no more: together below `retire`."""
FUTURES: Final = FuturesRules(lead=60, lead_short=30)
VOUCHER_INTERVAL_S: Final = 3
HEARTBEAT_S: Final = 1
ROUND_MS: Final = 300
FUTURES_BATCH_MS: Final = 3_000
BLOCK_WINDOW_S: Final = 20
"""Shorter than a bid stands unless it says otherwise."""
POSITION_LIMIT: Final = BasisPoints(10_000)
"""A product has few machines here: one account may hold all of them."""
ASK_INTERVAL_S: Final = 5
ASK_LIFE_S: Final = 300
TOKEN: Final = 10**6
"""Base units."""

BUYER_TOKENS: Final = TokenAmount(1_000 * TOKEN)
"""In the buyer's wallet; half of it goes into the vault."""
BUYER_VAULT: Final = TokenAmount(500 * TOKEN)
PARTY_VAULT: Final = TokenAmount(1_000 * TOKEN)
"""In the vault of a provider (bonds come out of it) and of the market's operator."""
AUDIT_VAULT: Final = TokenAmount(100 * TOKEN)
"""In the vault of each account that pays re-executions."""
MACHINE_BOND: Final = TokenAmount(50 * TOKEN)
MARKET_FEE: Final = BasisPoints(100)
MAX_FEE: Final = BasisPoints(500)
MIN_BOND: Final = BasisPoints(1_000)
PENALTY: Final = BasisPoints(500)
NOTICE_S: Final = 60
MACHINES_EACH: Final = 4
"""Of different classes; besides, everybody puts up `SHARED_EACH` machines of one."""
SHARED_CLASS: Final = GpuClass("RTX4090-24GB")
SHARED_EACH: Final = 2
"""Others than the provider must be able to repeat its work, with machines to spare."""
VERIFIERS: Final = 2
VERIFIED_FROM_NODES: Final = 3
"""With fewer owners of a GPU class no verified lease is opened, so nobody verifies either."""
REPLAYS_AT_ONCE: Final = 2
PREIMAGES: Final = 1_000
MAX_PRICE: Final = "5.00"
"""The buyer's standing limit, tokens per GPU-hour: above every offer of the list."""
STAND_INS: Final = ("the chain is a local Anvil, its token play money",)
"""What the launcher itself pretends; nodes add theirs: simulated GPUs, no isolation."""


@dataclass(frozen=True, slots=True)
class DevnetMachine:
    """One machine that a node puts up."""

    index: int
    offer: Offer

    def table(self) -> dict[str, Any]:
        """Its part of node.toml."""
        return {
            "index": self.index,
            "gpu_class": self.offer.gpu_class,
            "gpus": self.offer.gpus,
            "price": format_tokens(self.offer.price),
            "simulated": True,
            "gpu_memory_mib": self.offer.gpu_memory_mib,
            "region": self.offer.region,
            "verified": True,
        }


def machines_of(nodes: int) -> tuple[tuple[DevnetMachine, ...], ...]:
    """What each node puts up: real offers, dealt out in turn, and single GPUs of one class."""
    offers = read_offers()
    shared = single_gpus(offers, SHARED_CLASS)
    hands = [
        (*hand, *[shared[min(number, len(shared) - 1)]] * SHARED_EACH)
        for number, hand in enumerate(dealt(offers, nodes, MACHINES_EACH))
    ]
    return tuple(
        tuple(DevnetMachine(index=index, offer=offer) for index, offer in enumerate(hand))
        for hand in hands
    )


def products_of(
    machines: tuple[tuple[DevnetMachine, ...], ...],
) -> tuple[tuple[GpuClass, int], ...]:
    """The (class, GPUs of a slice) that these machines are of, in order."""
    found = {(m.offer.gpu_class, m.offer.gpus) for hand in machines for m in hand}
    return tuple(sorted(found))
