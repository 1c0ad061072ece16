"""The shape that every party shares: facts in, instructions out. No I/O, no clock, no randomness.

`handle` has two callers only: the production runner and the simulator's seeded world. It never
blocks and never raises for anything that a peer can send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from cloud_gpu.protocol.units import Instant

EventT_contra = TypeVar("EventT_contra", contravariant=True)
EffectT_co = TypeVar("EffectT_co", covariant=True)


class Party(Protocol[EventT_contra, EffectT_co]):
    """Decides what a party does next; its caller owns time, the network and the chain."""

    @property
    def deadline(self) -> Instant | None:
        """When to call `handle` with `DeadlinePassed`, if nothing happens before."""

    def handle(self, event: EventT_contra, now: Instant) -> Sequence[EffectT_co]:
        """Apply one fact and say what to do about it; `now` is Unix milliseconds."""
