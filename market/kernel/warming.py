"""Compiles the whole kernel, or loads it from disk, before anybody waits for a round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from market.kernel.allocation import ANY
from market.kernel.auction import Orders, clear
from market.kernel.capacity import ASK, BID, Capacity, by_value
from market.kernel.ladder import REQUEST, SELL, Ladder

_FUNCTIONS_MAX = 8
"""More than any of the three below compiles."""


def warm_up() -> str | None:
    """Call everything once; seconds where nothing was kept, else a tenth of one.

    Returns why compiled code could not be kept on disk, or None; each start takes the seconds then.
    """
    failure = None
    for use in (_use_ladder, _use_capacity, _use_auction):
        failure = _used(use) or failure
    return failure


def _used(use: Callable[[], None]) -> str | None:
    """numba compiles a function before it fails to write it, so that the next call finds it."""
    failure = None
    for _ in range(_FUNCTIONS_MAX):
        try:
            use()
        except OSError as error:
            failure = str(error)
        else:
            break
    return failure


def _use_ladder() -> None:
    book = Ladder(1)
    book.place(1, SELL, 5, 1)
    book.cancel(1)
    book.best(SELL)
    book.run(np.zeros(1, REQUEST))


def _use_capacity() -> None:
    asks, bids = np.zeros(2, ASK), np.zeros(2, BID)
    for name, value in (("price", 1), ("gpus", 1), ("lot", 1), ("end", 1)):
        asks[name] = value
    for name, value in (("limit", 1), ("models", 1), ("regions", 1), ("owner", 1)):
        bids[name] = value
    for name in ("gpus", "slots", "least"):
        bids[name] = 1
    bids["scope"][1] = ANY
    capacity = Capacity(asks, 1)
    capacity.improve(bids, capacity.allocate(bids, by_value(bids)), 1, 1)


def _use_auction() -> None:
    fields = np.array([[0, 1], [1, 1], [2, 1], [0, 0], [0, 1]], np.int64)
    clear(Orders(*fields), 1)
