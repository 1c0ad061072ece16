"""What no allocation can exceed: the linear programme in which bids may be taken in parts.

One column for each bid of scope ALONE, ask and start, at most one in sum per bid, and per ask and
slot no more GPUs than it has. Solved by HiGHS, with floats: it bounds a figure, and decides none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from benchmarks._naive_allocation import Row, fits, rows


def surplus_bound(asks: NDArray[np.void], bids: NDArray[np.void], horizon: int) -> float:
    """Most surplus, as (limit - price) x GPUs x slots."""
    offered = rows(asks)
    columns = [
        (bid, ask, start)
        for bid in rows(bids)
        for ask in offered
        if fits(bid, ask) and ask.gpus >= bid.gpus
        for start in range(max(bid.earliest, ask.first), min(bid.latest, ask.end - bid.slots) + 1)
    ]
    gains = np.array([_surplus(bid, ask) for bid, ask, _ in columns], float)
    row, column, gpus = [], [], []
    for number, (bid, ask, start) in enumerate(columns):
        row += [bid.row, *(len(bids) + ask.row * horizon + start + n for n in range(bid.slots))]
        column += [number] * (1 + bid.slots)
        gpus += [1, *[bid.gpus] * bid.slots]
    most = np.concatenate([np.ones(len(bids)), np.repeat(asks["gpus"], horizon)])
    used, row_of = np.unique(row, return_inverse=True)
    matrix = csr_array((gpus, (row_of, column)), shape=(len(used), len(columns)))
    scale = gains.max()
    found = linprog(-gains / scale, A_ub=matrix, b_ub=most[used], method="highs-ds")
    if not found.success:
        raise RuntimeError(f"HiGHS found no bound: {found.message}")
    return float(-found.fun * scale)


def _surplus(bid: Row, ask: Row) -> int:
    return int((bid.limit - ask.price) * bid.gpus * bid.slots)
