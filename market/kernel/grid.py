"""Seconds to slots: rounded so that no lease begins too early, ends too late or is too short."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """`slots` slots of `width_s` seconds from `begins` (Unix seconds) on."""

    begins: int
    width_s: int
    slots: int

    def __post_init__(self) -> None:
        """Raises ValueError where there is no slot."""
        for name in ("width_s", "slots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, needed 1 or more")

    def first_from(self, at: int) -> int:
        """The first slot that begins at `at` or later; `slots` where none does.

        For when an ask opens, and for a bid's earliest start.
        """
        return min(max(0, -((self.begins - at) // self.width_s)), self.slots)

    def last_by(self, at: int) -> int:
        """The last slot that begins by `at`, for a bid's latest start; -1 where none does."""
        return min(max(-1, (at - self.begins) // self.width_s), self.slots - 1)

    def whole_until(self, at: int) -> int:
        """How many slots are over by `at`, for an ask's end."""
        return min(max(0, (at - self.begins) // self.width_s), self.slots)

    def needed(self, duration_s: int) -> int:
        """How many slots hold a duration."""
        return -(-duration_s // self.width_s)

    def second(self, slot: int) -> int:
        """When a slot begins, in Unix seconds."""
        return self.begins + slot * self.width_s
