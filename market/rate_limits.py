"""How much one account or one client address may ask for: token buckets, the time an argument.

A bucket is one number: when it will be full again (the generic cell rate algorithm). Full buckets
are forgotten; when there are too many others, newcomers share one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

from cloud_gpu.protocol.units import Instant

BULK_ORDERS_MAX: Final = 1_000
"""What one post of many orders may hold; no burst is smaller."""
KEYS_MAX: Final = 50_000
_NEWCOMERS: Final = object()
_PREFIX_BITS: Final = 64
"""Who has an IPv6 address has 2^64 of them."""

Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """So many a second for ever, and `burst` at once after a rest. `per_s` 0: no limit."""

    name: str
    per_s: int
    burst: int


class TokenBuckets:
    """One bucket a key, all of one limit."""

    def __init__(self, limit: RateLimit, keys_max: int = KEYS_MAX) -> None:
        self.limit = limit
        self._keys_max = keys_max
        self._full_at: dict[Hashable, int] = {}
        """Microseconds; what is not here is full."""

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: Hashable, count: int, now: Instant) -> int:
        """0: `count` tokens were taken; else none were, and how many milliseconds are missing.

        A count above the burst is never given.
        """
        limit, at = self.limit, now * 1_000
        if not limit.per_s:
            return 0
        if key not in self._full_at and len(self._full_at) >= self._keys_max:
            self._forget(at)
            if len(self._full_at) >= self._keys_max:
                key = _NEWCOMERS
        full_at = max(self._full_at.get(key, at), at) + count * 1_000_000 // limit.per_s
        over = full_at - at - limit.burst * 1_000_000 // limit.per_s
        if over > 0:
            return -(-over // 1_000)
        self._full_at[key] = full_at
        return 0

    def _forget(self, at: int) -> None:
        self._full_at = {key: full for key, full in self._full_at.items() if full > at}


def client_address(peer: str, forwarded: str, trusted: tuple[Network, ...]) -> str:
    """Whose request it is: the peer's, unless it is a trusted proxy that says for whom it asks.

    `forwarded` is `X-Forwarded-For`. Read from the right, since a client may write its left.
    """
    for each in reversed(forwarded.split(",") if forwarded else []):
        if not _is_in(peer, trusted):
            break
        peer = each.strip()
    return peer


def _is_in(peer: str, networks: tuple[Network, ...]) -> bool:
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    return any(address in each for each in networks)


@lru_cache(maxsize=4_096)
def bucket_of(address: str) -> str | None:
    """The key of an address: IPv6 by its first 64 bits. None: this machine itself."""
    try:
        found = ip_address(address)
    except ValueError:  # a Unix socket's, or a proxy's nonsense: one bucket for all of them
        return ""
    if isinstance(found, IPv6Address):
        found = found.ipv4_mapped or found
    if found.is_loopback:
        return None
    if isinstance(found, IPv6Address):
        return str(IPv6Network((int(found) >> _PREFIX_BITS << _PREFIX_BITS, _PREFIX_BITS)))
    return str(found)
