"""The same source as plain Python: every answer, word for word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

PROGRAM = """
import hashlib
from benchmarks._offers import HORIZON, made_up_market
from benchmarks._streams import stream
from benchmarks.auction import made_up_batch
from market.kernel import Capacity, Ladder, clear
from market.kernel.capacity import by_value

requests, _ = stream(2_000, seed=7)
fills, codes = Ladder(len(requests)).run(requests)
single = Ladder(len(requests))
for kind, order, side, tick, quantity in requests.tolist():
    single.cancel(order) if kind else single.place(order, side, tick, quantity)
assert (single.log == fills).all() and len(fills) > 300
asks, bids = made_up_market(100, 150, 3, gangs=True)
capacity = Capacity(asks, HORIZON)
parts = capacity.improve(bids, capacity.allocate(bids, by_value(bids)), 300, 5)
assert len(parts) > 50
cleared = clear(made_up_batch(500), 2_000)
assert cleared.volume > 1_000
for found in (fills, codes, parts, capacity.free, cleared.fills):
    print(hashlib.sha256(found.tobytes()).hexdigest())
"""


@pytest.mark.timeout(300)
def test_the_same_source_runs_uncompiled() -> None:
    compiled, plain = (
        subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
        )
        for disabled in ("0", "1")
    )
    assert (compiled.returncode, plain.returncode) == (0, 0), compiled.stderr + plain.stderr
    assert compiled.stdout == plain.stdout
    assert len(plain.stdout.split()) == 5
