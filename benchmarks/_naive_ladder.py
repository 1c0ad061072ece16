"""The order book written plainly: dicts of dicts, and sorted lists of ticks. The kernel's twin."""

from __future__ import annotations

from bisect import bisect_left, insort

from market.kernel import ladder as kernel

Fill = tuple[int, int, int, int]
"""Taker, maker, tick, quantity."""


class NaiveLadder:
    """Does what Ladder does, code for code."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.fills: list[Fill] = []
        self.resting: dict[int, tuple[int, int]] = {}
        """Side and tick of each order that rests."""
        self.queues: tuple[dict[int, dict[int, int]], dict[int, dict[int, int]]] = ({}, {})
        """Per side and tick: what is left of each order, oldest first."""
        self.ticks: tuple[list[int], list[int]] = ([], [])
        """Per side, those with orders, ascending."""

    def place(self, order: int, side: int, tick: int, quantity: int) -> int:
        """Returns how many fills it made, or a code."""
        if not 1 <= order <= self.capacity:
            return kernel.ORDER_UNKNOWN
        if side not in (kernel.BUY, kernel.SELL):
            return kernel.SIDE_UNKNOWN
        if not 0 <= tick < kernel.TICKS:
            return kernel.TICK_OUTSIDE
        if not 1 <= quantity <= kernel.QUANTITY_MAX:
            return kernel.QUANTITY_OUTSIDE
        if order in self.resting:
            return kernel.ORDER_RESTS
        before, other = len(self.fills), 1 - side
        while quantity and (best := self.best(other)) >= 0:
            if best > tick if side == kernel.BUY else best < tick:
                break
            quantity = self._take(order, other, best, quantity)
        if quantity:
            if tick not in self.queues[side]:
                self.queues[side][tick] = {}
                insort(self.ticks[side], tick)
            self.queues[side][tick][order] = quantity
            self.resting[order] = side, tick
        return len(self.fills) - before

    def _take(self, order: int, side: int, tick: int, quantity: int) -> int:
        queue = self.queues[side][tick]
        for maker in list(queue):
            filled = min(queue[maker], quantity)
            self.fills.append((order, maker, tick, filled))
            quantity -= filled
            queue[maker] -= filled
            if not queue[maker]:
                self._remove(maker)
            if not quantity:
                break
        return quantity

    def _remove(self, order: int) -> None:
        side, tick = self.resting.pop(order)
        del self.queues[side][tick][order]
        if not self.queues[side][tick]:
            del self.queues[side][tick]
            del self.ticks[side][bisect_left(self.ticks[side], tick)]

    def cancel(self, order: int) -> int:
        """Returns 0, or a code."""
        if order not in self.resting:
            return kernel.ORDER_UNKNOWN
        self._remove(order)
        return 0

    def best(self, side: int) -> int:
        """Highest tick of buyers, lowest of sellers; -1: none."""
        ticks = self.ticks[side]
        return -1 if not ticks else ticks[-1 if side == kernel.BUY else 0]

    def run(self, requests: list[tuple[int, int, int, int, int]]) -> list[int]:
        """Requests in their order; returns a code for each."""
        codes = []
        for kind, order, side, tick, quantity in requests:
            if kind == kernel.PLACE:
                codes.append(min(0, self.place(order, side, tick, quantity)))
            else:
                known = kind == kernel.CANCEL
                codes.append(self.cancel(order) if known else kernel.KIND_UNKNOWN)
        return codes
