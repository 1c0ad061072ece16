"""The uniform-price auction: milliseconds to clear a batch, beside numpy on the same orders.

Two thousand ticks of sellers and buyers around one price, eight entry batches. Price, volume and
every fill are compared with numpy's, and at the smallest size with the naive twin's. They take
turns; CPU time, least of the runs. Prints a table, then one JSON line; exit 1 where they differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks._naive_auction import naive_clear, numpy_clear
from market.kernel.auction import Cleared, Orders, clear

SIZES = {1_000: 200, 10_000: 100, 100_000: 20, 1_000_000: 5}
"""Orders, and how often each is cleared."""
SEED = 7
REFERENCE = 2_000
TARGETS = {"ms_10k": 0.4, "ms_1m": 25.0}
"""At most. Source: the issue."""


def made_up_batch(count: int) -> Orders:
    """Buyers around 2,020, sellers around 1,980, one to 64 units each."""
    dice = np.random.default_rng(SEED)
    sides = dice.integers(0, 2, count)
    ticks = np.where(sides == 0, 2_020, 1_980) + dice.normal(0, 60, count).astype(np.int64)
    quantities, entries = dice.integers(1, 65, count), dice.integers(0, 8, count)
    return Orders(sides, np.clip(ticks, 1, 4_094), quantities, entries, dice.permutation(count))


def turns(orders: Orders, times: int) -> tuple[float, float]:
    """Least milliseconds of the kernel and of numpy; ends the benchmark where they differ."""
    least = {clear: 9e9, numpy_clear: 9e9}
    found: dict[Callable[[Orders, int], Cleared], Cleared] = {}
    clear(orders, REFERENCE)
    for _ in range(times):
        for each in least:
            began = time.process_time()
            found[each] = each(orders, REFERENCE)
            least[each] = min(least[each], time.process_time() - began)
    ours, theirs = found[clear], found[numpy_clear]
    same = (ours.tick, ours.volume) == (theirs.tick, theirs.volume)
    if not same or (ours.fills != theirs.fills).any():
        sys.exit(f"{len(orders.sides)} orders: other fills than numpy's")
    return least[clear] * 1e3, least[numpy_clear] * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    orders = made_up_batch(min(SIZES))
    fields = (getattr(orders, name).tolist() for name in Orders.__slots__)
    found = clear(orders, REFERENCE)
    expected = naive_clear(list(zip(*fields, strict=True)), REFERENCE)
    if (found.tick, found.volume, found.fills.tolist()) != expected:
        sys.exit("other fills than the naive twin's")
    print(f"{'orders':>12}{'ms':>10}{'ns/order':>10}{'numpy ms':>10}{'numpy ÷ ours':>14}")
    milliseconds, ratios = {}, {}
    for count, times in SIZES.items():
        took, beside = turns(made_up_batch(count), times)
        milliseconds[count], ratios[count] = took, beside / took
        each = took / count * 1e6
        print(f"{count:>12,}{took:>10.3f}{each:>10.1f}{beside:>10.2f}{beside / took:>14.1f}")
    line = {
        "ms_10k": round(milliseconds[10_000], 3),
        "ms_1m": round(milliseconds[1_000_000], 2),
        "ratio_to_numpy_10k": round(ratios[10_000], 1),
        "ratio_to_numpy_1m": round(ratios[1_000_000], 1),
    }
    print("\ntargets", TARGETS)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
