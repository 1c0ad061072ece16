"""Which faults one seed suffers: a random subset, each with its own strength."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Probabilities per event; 0 switches a fault off."""

    loss: float = 0.0
    """Of a message, told to its sender half of the time."""
    repeat: float = 0.0
    delay_ms: int = 30
    """Longest delay: messages overtake each other within it."""
    late: float = 0.0
    """A transaction waits for a later block."""
    reorganise: float = 0.0
    """Per block; one to three blocks are replaced."""
    crash_node: float = 0.0
    """Per second and node."""
    crash_market: float = 0.0
    """Per second."""
    crash_verifier: float = 0.0
    """Per second and verifier."""
    vanish: float = 0.0
    """Of a buyer, per lease: it never speaks again."""
    node_vanishes: float = 0.0
    """Per season, one of them for good."""
    verifier_vanishes: float = 0.0
    """Per season, one of them for good."""
    bad_replay: float = 0.0
    """Of a re-execution: no auditor finishes it."""
    bad_container: float = 0.0
    stubborn: float = 0.0
    """Of a buyer, per lease: it lets the lease run to its end."""


NONE = Faults()


def drawn(rng: random.Random) -> Faults:
    """About half of the faults, each at a random strength."""

    def some(most: float) -> float:
        return rng.uniform(0, most) if rng.random() < 0.5 else 0.0

    return Faults(
        loss=some(0.3),
        repeat=some(0.3),
        delay_ms=rng.choice([30, 200, 1_500]),
        late=some(0.5),
        reorganise=some(0.1),
        crash_node=some(0.02),
        crash_market=some(0.02),
        crash_verifier=some(0.03),
        vanish=some(0.4),
        node_vanishes=some(0.6),
        verifier_vanishes=some(0.3),
        bad_replay=some(0.3),
        bad_container=some(0.3),
        stubborn=some(0.5),
    )
