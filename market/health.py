"""How well the market is: what it lags behind, and whether that is a reason to look at it."""

from __future__ import annotations

from cloud_gpu.protocol.units import Instant, unix_seconds
from cloud_gpu.protocol.values import Value
from market.matchmaker import MarketStatus
from market.rules import MarketRules

BEHIND_MAX = 1_000
"""Orders or events that wait for the matchmaker before that is called unwell."""


class Health(Value, frozen=True, kw_only=True):
    """One look at the market."""

    ok: bool
    problems: tuple[str, ...]
    """Empty when all is well."""
    block: int
    chain_lag_s: int
    """Age of the newest block."""
    peers: int
    """Connected on the overlay."""
    inbox_behind: int
    """Acknowledged orders that the matchmaker has not handled yet."""
    events_waiting: int
    rounds: int
    """Of lane A, cleared."""
    bids_waiting: int
    asks: int
    openings: int


def health_of(
    status: MarketStatus,
    *,
    rules: MarketRules,
    now: Instant,
    peers: int,
    inbox_read: int,
    events_waiting: int,
) -> Health:
    """Judge; peers are told and not judged, since a market may wait for its first node."""
    lag_s = max(0, unix_seconds(now) - status.chain_at)
    behind = max(0, inbox_read - status.inbox)
    problems = []
    if lag_s * 1000 > rules.silence_ms:
        problems.append(f"chain: no block for {lag_s} s, so nothing is matched")
    if not status.is_registered:
        problems.append(f"chain: LeaseBook does not know market {rules.market_id}")
    if behind > BEHIND_MAX or events_waiting > BEHIND_MAX:
        problems.append(f"matchmaker: {behind} orders and {events_waiting} events behind")
    return Health(
        ok=not problems,
        problems=tuple(problems),
        block=status.block,
        chain_lag_s=lag_s,
        peers=peers,
        inbox_behind=behind,
        events_waiting=events_waiting,
        rounds=status.rounds,
        bids_waiting=status.waiting,
        asks=status.asks,
        openings=status.openings,
    )
