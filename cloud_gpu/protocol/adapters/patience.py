"""How long to wait before looking again, while nothing has changed."""

from __future__ import annotations


class Patience:
    """Waits that double from a first one, up to a bound, until something moves. Seconds."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = self._next_s = first_s
        self._most_s = most_s

    def longer(self) -> float:
        """The next wait."""
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, self._most_s)
        return wait_s

    def reset(self) -> None:
        """Something moved: short waits again."""
        self._next_s = self._first_s
