"""Leases over time: milliseconds to serve bids, beside the naive scan; surplus beside a bound.

Markets of `_offers`, served as lane A does. The naive twin serves all bids of the smaller markets
and the first ones of the larger; every part is compared. Then lane B, greedy and search, where
supply is scarce, against the linear programme. CPU time, least of the runs; indexing the asks is
told apart. Prints tables, then one JSON line; exit 1 where the twin differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks._bound import surplus_bound
from benchmarks._naive_allocation import NaiveCapacity
from benchmarks._offers import HORIZON, made_up_market
from market.kernel.capacity import Capacity, by_price, by_value, surplus

SIZES = ((1_000, 100), (10_000, 1_000), (100_000, 1_000), (10_000, 10_000))
"""Asks, bids."""
NAIVE_BIDS = {(100_000, 1_000): 30, (10_000, 10_000): 300}
"""Of the larger markets, bids that the twin has the time for."""
RUNS = 7
SCARCE = (200, 600)
SCARCE_SEEDS = (1, 2)
OTHER_SEEDS = (3, 4, 5)
"""Told beside; there the best allocation itself may lie below 0.98 of the bound."""
STEPS = 10_000
"""Of the search, as in lane B."""
TARGETS = {"ms_10k_1k": 3.0, "welfare_scarce": 0.98, "welfare_ms": 5.0}
"""At most, at least, at most. Source: the issue, DESIGN.md 7."""


def served(asks: int, bids: int) -> tuple[float, float, float, int]:
    """Milliseconds to index, to serve, and to serve naively per bid; bids filled."""
    offered, wanted = made_up_market(asks, bids, 1, gangs=True)
    order = by_price(wanted)
    least, indexed = 9e9, 9e9
    for _ in range(RUNS):
        began = time.process_time()
        capacity = Capacity(offered, HORIZON)
        ready = time.process_time()
        parts = capacity.allocate(wanted, order)
        least, indexed = min(least, time.process_time() - ready), min(indexed, ready - began)
    some = order[: NAIVE_BIDS.get((asks, bids), bids)]
    twin = NaiveCapacity(offered, HORIZON)
    began = time.process_time()
    expected = twin.allocate(wanted, some.tolist())
    naive = (time.process_time() - began) / len(some)
    if [tuple(part) for part in parts[: len(expected)].tolist()] != expected:
        sys.exit(f"{asks} x {bids}: other parts than the naive twin's")
    return indexed * 1e3, least * 1e3, naive * 1e3, len(np.unique(parts["bid"]))


def welfare(seed: int) -> tuple[list[float], float]:
    """Of a scarce market: surplus over its bound in three orders and after the search; its ms."""
    offered, wanted = made_up_market(*SCARCE, seed, gangs=False)
    bound = surplus_bound(offered, wanted, HORIZON)

    def ratio(order: NDArray[np.int64], steps: int) -> float:
        capacity = Capacity(offered, HORIZON)
        parts = capacity.allocate(wanted, order)
        return surplus(offered, wanted, capacity.improve(wanted, parts, steps, seed)) / bound

    orders = np.arange(len(wanted)), by_price(wanted), by_value(wanted)
    ratios = [ratio(order, 0) for order in orders]
    ratios.append(ratio(orders[2], STEPS))
    least = 9e9
    for _ in range(RUNS):
        capacity = Capacity(offered, HORIZON)
        began = time.process_time()
        parts = capacity.allocate(wanted, by_value(wanted))
        capacity.improve(wanted, parts, STEPS, seed)
        least = min(least, time.process_time() - began)
    return ratios, least * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    print(f"{'asks x bids':<20}{'index ms':>10}{'serve ms':>10}{'filled':>8}{'naive ÷ ours':>14}")
    milliseconds = {}
    for asks, bids in SIZES:
        indexed, took, naive, filled = served(asks, bids)
        milliseconds[asks, bids] = took
        ratio = naive * bids / took
        print(f"{asks:>8,} x {bids:<8,}{indexed:>11.2f}{took:>10.2f}{filled:>8,}{ratio:>14,.0f}")
    asks, bids = SCARCE
    print(f"\nsurplus of {asks} asks x {bids} bids over the bound")
    print(f"{'seed':<8}{'arrival':>9}{'price':>9}{'value':>9}{f'+ {STEPS:,} steps':>16}{'ms':>7}")
    found = {}
    for seed in (*SCARCE_SEEDS, *OTHER_SEEDS):
        ratios, took = found[seed] = welfare(seed)
        arrival, price, value, after = ratios
        print(f"{seed:<8}{arrival:>9.4f}{price:>9.4f}{value:>9.4f}{after:>16.4f}{took:>7.2f}")
    line = {
        "ms_10k_1k": round(milliseconds[10_000, 1_000], 3),
        "equal_to_twin": True,
        "welfare_scarce": round(min(found[seed][0][-1] for seed in SCARCE_SEEDS), 4),
        "welfare_ms": round(max(found[seed][1] for seed in SCARCE_SEEDS), 2),
    }
    print("\ntargets", TARGETS)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
