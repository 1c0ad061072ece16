"""When to look at what again. Stale entries are pruned, so that nothing waits for nothing."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from cloud_gpu.protocol.units import Instant


class Ordered(Hashable, Protocol):
    """A key with a total order, so that equal instants come in one order everywhere."""

    def __lt__(self, other: Any) -> bool: ...


KeyT = TypeVar("KeyT", bound=Ordered)


class Timers(Generic[KeyT]):
    """One next look per key; `next_look` is asked again before an entry counts."""

    def __init__(self, next_look: Callable[[KeyT], Instant | None]) -> None:
        self._next_look = next_look
        self._heap: list[tuple[Instant, KeyT]] = []

    def set(self, key: KeyT) -> None:
        """The key's next look may have changed."""
        when = self._next_look(key)
        if when is not None:
            heapq.heappush(self._heap, (when, key))

    @property
    def first(self) -> Instant | None:
        """The earliest look that still counts."""
        while self._heap:
            when, key = self._heap[0]
            if self._next_look(key) == when:
                return when
            heapq.heappop(self._heap)
        return None

    def due(self, now: Instant) -> list[KeyT]:
        """Take out the keys whose look is due, earliest first, each once."""
        keys: dict[KeyT, None] = {}
        while (when := self.first) is not None and when <= now:
            keys[heapq.heappop(self._heap)[1]] = None
        return list(keys)
