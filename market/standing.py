"""How the market stands, in its own words: what the matchmaker tells, and API workers tell on."""

from __future__ import annotations

from msgspec.structs import replace

from cloud_gpu.protocol.units import BasisPoints, Instant
from cloud_gpu.protocol.values import Value
from market.health import Health

SILENCE_MS_MAX = 10_000
"""It is told every second; older than this, the matchmaker is called silent."""


class Standing(Value, frozen=True, kw_only=True):
    """One look at the matchmaker's process."""

    at: Instant
    fee: BasisPoints
    peer: str
    addresses: tuple[str, ...]
    """Where the overlay reaches it."""
    health: Health


def health_at(standing: Standing, now: Instant) -> Health:
    """Its health as it looks later, when nothing newer was told."""
    silent = now - standing.at
    if silent <= SILENCE_MS_MAX:
        return standing.health
    problem = f"matchmaker: silent for {silent // 1000} s; orders are kept, none is matched"
    return replace(standing.health, ok=False, problems=(problem, *standing.health.problems))
