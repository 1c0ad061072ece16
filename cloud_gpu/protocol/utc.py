"""Times as people write them, UTC: "2026-12-08", "2026-12-08T16:00"."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_WORD_MAX: Final = 2**32 - 1
"""The contracts keep times in 32 bits."""


def parse_utc(text: str) -> int:
    """Unix seconds; a time without an offset is UTC. Raises ValueError."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(
            f'a time is written like "2026-12-08" or "2026-12-08T16:00" (UTC), found {text!r}'
        ) from error
    at = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    if not 0 < at <= _WORD_MAX or at != int(at):
        raise ValueError(f"a time is a whole second from 1970 to 2106, found {text!r}")
    return int(at)


def format_utc(at: int) -> str:
    """Unix seconds as "2026-12-08T16:00Z"; seconds only where there are some."""
    found = datetime.fromtimestamp(at, UTC)
    return found.strftime("%Y-%m-%dT%H:%MZ" if at % 60 == 0 else "%Y-%m-%dT%H:%M:%SZ")
