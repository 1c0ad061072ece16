"""Bids that take asks, written plainly: every bid looks at every ask, slot and start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from market.kernel.allocation import ALONE, ANY, CANDIDATES_MAX, FABRIC

Part = tuple[int, int, int, int]
"""Bid, ask, start, GPUs."""


class Row(SimpleNamespace):
    """An ask or a bid with its fields as attributes, all of them integers."""

    row: int

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int: ...


def rows(found: NDArray[np.void]) -> list[Row]:
    """Of a structured array."""
    names: Any = found.dtype.names
    return [
        Row(row=n, **dict(zip(names, values, strict=True)))
        for n, values in enumerate(found.tolist())
    ]


class Free(dict[int, list[int]]):
    """Free GPUs per slot of the asks that somebody looked at, by row."""

    def __init__(self, asks: list[Row], horizon: int) -> None:
        super().__init__()
        self._asks = {ask.row: ask for ask in asks}
        self._horizon = horizon

    def __missing__(self, row: int) -> list[int]:
        ask = self._asks[row]
        whole = [ask.gpus if ask.first <= slot < ask.end else 0 for slot in range(self._horizon)]
        self[row] = whole
        return whole


class NaiveCapacity:
    """Does what Capacity.allocate does."""

    def __init__(self, asks: NDArray[np.void], horizon: int) -> None:
        self.asks = sorted(rows(asks), key=lambda ask: (ask.price, ask.rank))
        self.free = Free(self.asks, horizon)

    def allocate(self, bids: NDArray[np.void], order: Iterable[int]) -> list[Part]:
        """What bids take, in the order of service."""
        every, parts = rows(bids), list[Part]()
        for bid in (every[row] for row in order):
            fitting = [ask for ask in self.asks if fits(bid, ask)]
            ways = self.alone(bid, fitting) if bid.scope == ALONE else self.gangs(bid, fitting)
            _cost, start, _tie, taken = min(ways, default=(0, 0, 0, []))
            for ask, gpus in taken:
                for slot in range(start, start + bid.slots):
                    self.free[ask][slot] -= gpus
                parts.append((bid.row, ask, start, gpus))
        return parts

    def starts(self, bid: Row, ask: Row, gpus: int) -> Iterator[int]:
        """At which the ask has so many GPUs for all of the bid's slots, earliest first."""
        low, high = max(bid.earliest, ask.first), min(bid.latest, ask.end - bid.slots)
        for start in range(low, high + 1):
            if min(self.free[ask.row][start : start + bid.slots]) >= gpus:
                yield start

    def alone(self, bid: Row, fitting: list[Row]) -> Iterator[tuple[int, int, int, Any]]:
        """Ways to take all of one ask: price, start, rank, and that ask."""
        for ask in fitting:
            if ask.gpus >= bid.gpus and bid.gpus % ask.lot == 0:
                for start in islice(self.starts(bid, ask, bid.gpus), 1):
                    yield ask.price, start, ask.rank, [(ask.row, bid.gpus)]

    def gangs(self, bid: Row, fitting: list[Row]) -> Iterator[tuple[int, int, int, Any]]:
        """Ways to take parts of one group: price of all, start, group, and the parts."""
        groups: dict[int, list[Row]] = {}
        in_time = [
            ask
            for ask in fitting
            if ask.first <= bid.latest and ask.end >= bid.earliest + bid.slots
        ]
        for ask in in_time[:CANDIDATES_MAX]:
            of = 0 if bid.scope == ANY else ask.fabric if bid.scope == FABRIC else ask.region
            groups.setdefault(of, []).append(ask)
        for number, group in enumerate(groups.values()):
            for start in range(bid.earliest, bid.latest + 1):
                need, cost, taken = bid.gpus, 0, []
                for ask in group:
                    if ask.first > start or ask.end < start + bid.slots:
                        continue
                    has = min(self.free[ask.row][start : start + bid.slots])
                    gpus = min(has, need) // ask.lot * ask.lot
                    if gpus and gpus >= min(bid.least, need):
                        taken.append((ask.row, gpus))
                        cost += gpus * ask.price
                        need -= gpus
                    if not need:
                        yield cost, start, number, taken
                        break


def fits(bid: Row, ask: Row) -> bool:
    """Whether price and capacity alone decide."""
    return bool(
        ask.price <= bid.limit
        and bid.models >> ask.model & 1
        and bid.regions >> ask.region & 1
        and ask.traits & bid.needs == bid.needs
        and ask.owner != bid.owner
    )
