"""The notepad of one review: what is to be done now, when to look again, when to say it again."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud_gpu.protocol.effects import VerifierEffect
from cloud_gpu.protocol.units import Instant, instant

_WAIT_S_MAX = 60


class Retries:
    """When each kind of instruction may be given again; repeats are harmless, floods are not."""

    def __init__(self) -> None:
        self._next: dict[str, tuple[Instant, int]] = {}

    def due(self, what: str, review: Review, first_s: int) -> bool:
        """Whether to give it now; then it waits `first_s`, twice as long each time."""
        at, wait_s = self._next.get(what, (review.now, first_s))
        is_due = review.now >= at
        if is_due:
            at = review.now + instant(wait_s)
            self._next[what] = at, min(2 * wait_s, _WAIT_S_MAX)
        review.look_at(at)
        return is_due

    def has_begun(self, what: str) -> bool:
        """Whether it was given before."""
        return what in self._next


@dataclass(slots=True)
class Review:
    """What is to be done now, and when to look again if nothing happens."""

    now: Instant
    effects: list[VerifierEffect] = field(default_factory=list)
    wake: Instant | None = None

    def do(self, *effects: VerifierEffect) -> None:
        """Give instructions."""
        self.effects += effects

    def look_at(self, at: Instant) -> None:
        """Only what lies ahead can wake anybody: a past instant is looked at with the next fact."""
        if at > self.now and (self.wake is None or at < self.wake):
            self.wake = at
