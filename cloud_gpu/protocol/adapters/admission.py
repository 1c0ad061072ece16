"""Which gossip is taken: rates per originator, freshness of sequence numbers, peers that misbehave.

Pure bookkeeping with bounded tables; the time is an argument in seconds of any monotonic clock,
except where Unix nanoseconds are named. The overlay asks before it verifies, delivers or forwards.
"""

from __future__ import annotations

from collections import OrderedDict

_KEYS_MAX = 4_096


class TokenBuckets:
    """One token bucket a key: `burst` tokens at first, `rate_s` more each second.

    Keys beyond `keys_max` push out the one that was idle longest, so strangers who invent keys
    cost a bounded amount of memory.
    """

    def __init__(self, *, rate_s: float, burst: int, keys_max: int = _KEYS_MAX) -> None:
        if rate_s <= 0 or burst < 1 or keys_max < 1:
            raise ValueError("a bucket needs a positive rate and room for at least one token")
        self._rate_s, self._burst, self._keys_max = rate_s, burst, keys_max
        self._levels: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def take(self, key: bytes, now: float) -> bool:
        """Take one token if there is one."""
        return self.wait_s(key, now) == 0

    def wait_s(self, key: bytes, now: float) -> float:
        """Take one token and return 0, or return the seconds until there is one."""
        level, since = self._levels.pop(key, (float(self._burst), now))
        level = min(float(self._burst), level + max(0.0, now - since) * self._rate_s)
        taken = level >= 1
        self._levels[key] = (level - 1 if taken else level, now)
        if len(self._levels) > self._keys_max:
            self._levels.popitem(last=False)
        return 0.0 if taken else (1 - level) / self._rate_s


class Freshness:
    """Refuses messages too old to be anything but a replay.

    A sequence number is the originator's Unix time in nanoseconds. A message is stale when it is
    more than `behind_s` older than the newest of its originator (what is younger, the overlay's
    table of seen ids remembers), or further than `skew_s` from our own clock.
    """

    def __init__(self, *, behind_s: float, skew_s: float, keys_max: int = _KEYS_MAX) -> None:
        self._behind_ns, self._skew_ns = int(behind_s * 1e9), int(skew_s * 1e9)
        self._keys_max = keys_max
        self._newest: OrderedDict[bytes, int] = OrderedDict()

    def is_fresh(self, originator: bytes, sequence_ns: int, now_unix_ns: int) -> bool:
        """Whether to take it; a fresh number is remembered."""
        if abs(sequence_ns - now_unix_ns) > self._skew_ns:
            return False
        newest = self._newest.pop(originator, sequence_ns)
        self._newest[originator] = max(newest, sequence_ns)
        if len(self._newest) > self._keys_max:
            self._newest.popitem(last=False)
        return sequence_ns >= newest - self._behind_ns


class Conduct:
    """Counts what a peer does that no honest one does, and bans it for a while.

    `strikes_max` strikes within `window_s` ban a peer for `ban_s`.
    """

    def __init__(self, *, strikes_max: int = 5, window_s: float = 60, ban_s: float = 60) -> None:
        self._strikes_max, self._window_s, self._ban_s = strikes_max, window_s, ban_s
        self._strikes: OrderedDict[str, list[float]] = OrderedDict()
        self._banned_until: OrderedDict[str, float] = OrderedDict()

    def strike(self, peer: str, now: float) -> bool:
        """Note one; True when this one bans the peer."""
        recent = [at for at in self._strikes.pop(peer, []) if now - at < self._window_s]
        recent.append(now)
        if len(recent) < self._strikes_max:
            self._strikes[peer] = recent
            if len(self._strikes) > _KEYS_MAX:
                self._strikes.popitem(last=False)
            return False
        self._banned_until[peer] = now + self._ban_s
        if len(self._banned_until) > _KEYS_MAX:
            self._banned_until.popitem(last=False)
        return True

    def is_banned(self, peer: str, now: float) -> bool:
        until = self._banned_until.get(peer)
        if until is None:
            return False
        if now < until:
            return True
        del self._banned_until[peer]
        return False


class Turns:
    """At most `per_key` things at once for one key, `in_all` for all of them."""

    def __init__(self, *, per_key: int, in_all: int) -> None:
        self._per_key, self._in_all = per_key, in_all
        self._held: dict[str, int] = {}
        self._total = 0

    def begin(self, key: str) -> bool:
        """Take a turn; False when there is none, and then `end` must not be called."""
        held = self._held.get(key, 0)
        if held >= self._per_key or self._total >= self._in_all:
            return False
        self._held[key] = held + 1
        self._total += 1
        return True

    def end(self, key: str) -> None:
        left = self._held[key] - 1
        self._total -= 1
        if left:
            self._held[key] = left
        else:
            del self._held[key]
