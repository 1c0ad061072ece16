"""The ladder at its edges: what it refuses, empty and far ticks, and how it runs uncompiled."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks._streams import stream
from market.kernel import ladder as kernel
from market.kernel.ladder import BUY, CANCEL, FILL, PLACE, REQUEST, SELL, TICKS, Ladder

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("order", "side", "tick", "quantity", "code"),
    [
        (0, BUY, 5, 1, kernel.ORDER_UNKNOWN),
        (11, BUY, 5, 1, kernel.ORDER_UNKNOWN),
        (-1, BUY, 5, 1, kernel.ORDER_UNKNOWN),
        (1, 2, 5, 1, kernel.SIDE_UNKNOWN),
        (1, -1, 5, 1, kernel.SIDE_UNKNOWN),
        (1, BUY, -1, 1, kernel.TICK_OUTSIDE),
        (1, SELL, TICKS, 1, kernel.TICK_OUTSIDE),
        (1, BUY, 5, 0, kernel.QUANTITY_OUTSIDE),
        (1, BUY, 5, -1, kernel.QUANTITY_OUTSIDE),
        (1, BUY, 5, 1 << 32, kernel.QUANTITY_OUTSIDE),
        (9, BUY, 5, 1, kernel.ORDER_RESTS),
    ],
)
def test_a_refused_order_has_a_code_and_changes_nothing(
    order: int, side: int, tick: int, quantity: int, code: int
) -> None:
    book = Ladder(10)
    assert book.place(9, SELL, 5, 3) == 0
    assert book.place(order, side, tick, quantity) == code
    assert (book.best(BUY), book.best(SELL)) == (-1, 5)
    assert book.place(10, BUY, 5, 3) == 1
    assert book.last_fills(1) == [10, 9, 5, 3]


def test_a_batch_answers_each_request_with_its_code() -> None:
    requests = np.array(
        [
            (PLACE, 1, SELL, 7, 5),
            (PLACE, 1, SELL, 7, 5),
            (PLACE, 99, SELL, 7, 5),
            (CANCEL, 2, 0, 0, 0),
            (7, 1, 0, 0, 0),
            (PLACE, 2, BUY, 8, 2),
            (CANCEL, 1, 0, 0, 0),
            (CANCEL, 1, 0, 0, 0),
        ],
        REQUEST,
    )
    book = Ladder(10)
    fills, codes = book.run(requests)
    assert codes.tolist() == [
        0,
        kernel.ORDER_RESTS,
        kernel.ORDER_UNKNOWN,
        kernel.ORDER_UNKNOWN,
        kernel.KIND_UNKNOWN,
        0,
        0,
        kernel.ORDER_UNKNOWN,
    ]
    assert fills.tolist() == [(2, 1, 7, 2)]
    assert book.best(SELL) == -1


def test_a_number_beyond_64_bits_is_an_error_of_the_caller() -> None:
    with pytest.raises(OverflowError):
        Ladder(10).place(1, BUY, 5, 1 << 64)


@pytest.mark.parametrize("capacity", [0, -1, kernel.ORDERS_MAX + 1])
def test_a_pool_has_room_for_one_order_at_least(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity: found"):
        Ladder(capacity)


def test_the_best_tick_is_found_across_an_empty_ladder() -> None:
    book = Ladder(10)
    ticks = (0, 63, 64, 4_095, 4_096, TICKS // 2, TICKS - 1)
    for order, tick in enumerate(ticks, 1):
        assert book.place(order, SELL, tick, 1) == 0
    for order, tick in enumerate(ticks, 1):
        assert book.best(SELL) == tick
        assert book.cancel(order) == 0
    assert book.best(SELL) == -1
    for order, tick in enumerate(ticks, 1):
        assert book.place(order, BUY, tick, 1) == 0
        assert book.best(BUY) == tick


def test_an_order_sweeps_the_ladder_in_the_order_of_price_and_time() -> None:
    book = Ladder(10)
    for order, tick in ((1, 900), (2, 100), (3, TICKS - 1), (4, 100)):
        book.place(order, SELL, tick, 10)
    assert book.place(5, BUY, TICKS - 1, 35) == 4
    assert book.last_fills(4) == [
        *(5, 2, 100, 10),
        *(5, 4, 100, 10),
        *(5, 1, 900, 10),
        *(5, 3, TICKS - 1, 5),
    ]
    assert book.cancel(3) == 0
    assert (book.best(BUY), book.best(SELL)) == (-1, -1)


def test_the_log_of_single_calls_begins_anew_and_loses_nothing_new() -> None:
    book, told = Ladder(2), []
    for quantity in range(1, 100):
        assert book.place(1, SELL, 5, quantity) == 0
        assert book.place(2, BUY, 5, quantity) == 1
        told.append((2, 1, 5, quantity))
        assert book.last_fills(1) == list(told[-1])
        assert book.log.tolist() == told[-len(book.log) :]


@pytest.mark.timeout(300)
def test_a_million_requests_give_the_fills_of_the_naive_book() -> None:
    requests, expected = stream(1_000_000, seed=42)
    fills, codes = Ladder(len(requests)).run(requests)
    assert not codes.any()
    assert len(fills) > 300_000
    assert _hash(fills) == _hash(np.array(expected, FILL))


@pytest.mark.timeout(300)
def test_a_second_process_loads_what_the_first_compiled(tmp_path: Path) -> None:
    program = (
        "from market.kernel.ladder import Ladder, run_all, REQUEST\n"
        "import numpy\n"
        "Ladder(1).run(numpy.zeros(1, REQUEST))\n"
        "print(sum(run_all.stats.cache_hits.values()), sum(run_all.stats.cache_misses.values()))"
    )
    found = [_run(program, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    assert found == ["0 1", "1 0"]


@pytest.mark.timeout(300)
def test_a_change_in_any_file_of_the_kernel_compiles_anew(tmp_path: Path) -> None:
    copy = kernel_copy(tmp_path)
    program = (
        "from market.kernel.ladder import best_tick\n"
        "import numpy\n"
        "best_tick(numpy.zeros(2 * 4_161, numpy.uint64), 0)\n"
        "print(sum(best_tick.stats.cache_hits.values()))"
    )
    assert [_run(program, at=tmp_path) for _ in range(2)] == ["0", "1"]
    with (copy / "compiling.py").open("a") as source:
        source.write("# changed\n")
    assert _run(program, at=tmp_path) == "0"


def kernel_copy(to: Path) -> Path:
    """Its folder, without anything compiled."""
    folder = to / "market" / "kernel"
    shutil.copytree(ROOT / "market/kernel", folder, ignore=lambda *_: ["__pycache__"])
    (to / "market/__init__.py").touch()
    return folder


@pytest.mark.timeout(300)
def test_a_folder_that_cannot_be_written_costs_time_and_nothing_else(tmp_path: Path) -> None:
    """No place for the cache: beside the source, nor in the user's folder."""
    copy = kernel_copy(tmp_path)
    for name in ("__pycache__", "home"):
        (copy / name).write_text("a file where a folder would be")
    program = (
        "from market.kernel.ladder import Ladder, place_one\n"
        "book = Ladder(2)\n"
        "print(book.place(1, 0, 5, 1), book.place(2, 1, 5, 1), book.last_fills(1))\n"
        "print(place_one.stats.cache_path)"
    )
    blocked = str(copy / "home")
    told = _run(program, at=tmp_path, HOME=blocked, XDG_CACHE_HOME=blocked)
    assert told.split("\n") == ["0 1 [2, 1, 5, 1]", "None"]


def _hash(fills: np.ndarray) -> str:
    return hashlib.sha256(fills.tobytes()).hexdigest()


def _run(program: str, *arguments: str, at: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=at,
        env={**os.environ, "PYTHONPATH": str(at), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
