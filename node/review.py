"""The notepad of one review: what is to be done now, when to look again, when to say it again."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud_gpu.protocol.effects import ProviderEffect
from cloud_gpu.protocol.units import Instant, instant


class Retries:
    """When each kind of instruction may be given again; repeats are harmless, floods are not."""

    def __init__(self) -> None:
        self._next: dict[str, tuple[Instant, int]] = {}

    def due(self, what: str, now: Instant, first_s: int, last_s: int = 60) -> bool:
        """Whether to give it now; then it waits `first_s`, twice as long each time."""
        at, wait_s = self._next.get(what, (now, first_s))
        if now < at:
            return False
        self._next[what] = now + instant(wait_s), min(2 * wait_s, last_s)
        return True

    def at(self, what: str) -> Instant:
        """When it may be given again; it was given before."""
        return self._next[what][0]

    def forget(self, what: str) -> None:
        """The next time counts as the first."""
        self._next.pop(what, None)


@dataclass(slots=True)
class Review:
    """What is to be done now, and when to look again if nothing happens."""

    now: Instant
    effects: list[ProviderEffect] = field(default_factory=list)
    wake: Instant | None = None

    def do(self, *effects: ProviderEffect) -> None:
        self.effects += effects

    def look_at(self, at: Instant) -> None:
        """Only what lies ahead can wake anybody: a past instant is looked at with the next fact."""
        if at > self.now and (self.wake is None or at < self.wake):
            self.wake = at
