"""Start-up: everything is compiled once, and found by the next process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

PROGRAM = """
import importlib
from numba.core.dispatcher import Dispatcher
from market.kernel import warm_up
told = warm_up()
modules = [importlib.import_module(f"market.kernel.{name}")
           for name in ("ladder", "allocation", "ejection", "auction")]
kept = [found for module in modules for found in vars(module).values()
        if isinstance(found, Dispatcher) and found.stats.cache_path]
assert all(found.signatures for found in kept), [f for f in kept if not f.signatures]
hits = sum(sum(found.stats.cache_hits.values()) for found in kept)
misses = sum(sum(found.stats.cache_misses.values()) for found in kept)
print(len(kept) > 8, bool(hits), bool(misses), told)
"""


def run(program: str, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.timeout(600)  # compiles everything: a quarter of a minute of an idle core
def test_the_second_start_compiles_nothing(tmp_path: Path) -> None:
    assert run(PROGRAM, tmp_path) == "True False True None"
    assert run(PROGRAM, tmp_path) == "True True False None"


def test_a_full_disk_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """No file may grow: what numba compiled stays in memory."""
    program = (
        "import resource\n"
        "from market.kernel.auction import _fill\n"
        "from market.kernel.warming import _use_auction, _used\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "print(_used(_use_auction), len(_fill.signatures))"
    )
    told = run(program, tmp_path)
    assert told.startswith("[Errno"), told
    assert told.endswith(" 1"), told
