"""The order book: nanoseconds a request, in a batch and one by one, beside bare C and PyPI.

One stream (`_streams`); all fills are compared with the naive book's. The kernel takes turns with
the C loop on the same memory. Each peer runs in a process of its own, as ours does, in an
environment that `make` keeps under .tools/bench. CPU time, least of the runs. Prints a table,
then one JSON line with the worst of each ratio; exit 1 where fills differ.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks._naive_ladder import NaiveLadder
from benchmarks._peers import PEERS, digests
from benchmarks._streams import stream
from benchmarks._yardstick import compiled
from market.kernel.ladder import FILL, empty_book, run_all

ROOT = Path(__file__).parents[1]
SIZES = (20_000, 200_000, 2_000_000)
WORK = 8_000_000
"""Requests that each batch loop answers in all, at each size."""
SEED = 42
TARGETS = {"batch_ratio_to_c": 0.7, "percall_ratio_to_best_peer": 3.0, "growth_10x": 1.5}
"""At least, at least, at most. Source: the issue, DESIGN.md 7."""

Took = dict[str, float]
"""Least nanoseconds a request, of each that was measured."""


@dataclass(frozen=True)
class Stream:
    """Requests, and the digests of the fills that must come of them."""

    requests: NDArray[np.void]
    fills: str
    pairs: str

    def check(self, who: str, fills: str, pairs: str) -> None:
        """Ends the benchmark where somebody matched otherwise; litebook names another price."""
        if fills != self.fills and (who != "litebook" or pairs != self.pairs):
            sys.exit(f"{who}: other fills than the naive book's on {len(self.requests)} requests")


def streams(sizes: list[int]) -> list[Stream]:
    """The longest one, and its first parts."""
    requests, _ = stream(max(sizes), SEED)
    found = []
    for size in sizes:
        twin = NaiveLadder(size)
        twin.run(requests[:size].tolist())
        found.append(Stream(requests[:size], *digests(twin.fills)))
    return found


def batches(stream: Stream) -> Took:
    """The kernel and C take turns on one memory, cleared before each."""
    requests, count = stream.requests, len(stream.requests)
    pool, ladder, bits = empty_book(count)
    fills, codes = np.zeros(2 * count, FILL), np.zeros(count, np.int8)
    words = fills.view(np.uint32), requests.view(np.uint32)
    run, memory = compiled("ladder").run, ctypes.c_void_p
    run.restype = ctypes.c_long
    run.argtypes = [memory, ctypes.c_uint32, *[memory] * 4, ctypes.c_long]
    arrays = [each.ctypes.data for each in (ladder, bits, fills, requests)]

    def kernel() -> NDArray[np.void]:
        return fills[: run_all(pool, ladder, bits, *words, codes)]

    def bare_c() -> NDArray[np.void]:
        return fills[: run(pool.ctypes.data, count, *arrays, count)]

    loops: tuple[Callable[[], NDArray[np.void]], ...] = (kernel, bare_c)
    took: Took = {}
    for turn in range(max(4, WORK // count)):
        for loop in loops:
            for array in (pool, ladder, bits):
                array.fill(0)
            began = time.process_time()
            filled = loop()
            seconds = time.process_time() - began
            if turn < 2:
                stream.check(loop.__name__, *digests(filled.tolist()))
            else:
                took[loop.__name__] = min(took.get(loop.__name__, 9e9), seconds / count * 1e9)
    return took


def single_calls(stream: Stream, times: int) -> Took:
    """Ours and each peer, turn by turn."""
    subprocess.run(["make", "--silent", ".tools/bench/.ready"], cwd=ROOT, check=True)
    took: Took = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.npy"
        np.save(path, stream.requests)
        for _ in range(times):
            for peer in ("ours", *(each.__name__ for each in PEERS)):
                python = sys.executable if peer == "ours" else ".tools/bench/bin/python"
                program = [python, "-m", "benchmarks._peers", peer, str(path)]
                done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, check=True)
                told = json.loads(done.stdout)
                stream.check(peer, told["fills"], told["pairs"])
                took[peer] = min(took.get(peer, 9e9), told["ns"])
    return took


def row(name: str, took: float, beside: float) -> None:
    """One line of the table."""
    print(f"  {name:<34}{took:>10,.1f}{1e3 / took:>10.3f}{beside / took:>10.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of the stream")
    parser.add_argument("--runs", type=int, default=2, help="of each peer, at least")
    asked = parser.parse_args()
    ratios: dict[str, list[float]] = {"c": [], "peer": []}
    kernel: list[float] = []
    print(f"{'':<36}{'ns':>10}{'M/s':>10}{'ratio':>10}")
    for each in streams(sorted(asked.sizes)):
        took = batches(each)
        print(f"{len(each.requests):,} requests in a batch; ratio to C")
        row("bare C", took["bare_c"], took["bare_c"])
        row("kernel", took["kernel"], took["bare_c"])
        calls = single_calls(each, max(asked.runs, 100_000 // len(each.requests)))
        best = min(ns for peer, ns in calls.items() if peer != "ours")
        print(f"{len(each.requests):,} requests one by one; ratio to the best peer")
        for peer, ns in sorted(calls.items(), key=lambda pair: pair[1]):
            row(peer, ns, best)
        kernel.append(took["kernel"])
        ratios["c"].append(took["bare_c"] / took["kernel"])
        ratios["peer"].append(best / calls["ours"])
    growth = [after / before for before, after in pairwise(kernel)]
    found = {
        "batch_ratio_to_c": round(min(ratios["c"]), 3),
        "percall_ratio_to_best_peer": round(min(ratios["peer"]), 2),
        "growth_10x": round(max(growth, default=1.0), 2),
    }
    print("\ntargets", TARGETS)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
