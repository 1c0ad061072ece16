"""The words of a wish as the flags they came from: what a person typed is what is said back."""

from __future__ import annotations

import re
from typing import Final

_FLAGS: Final = {
    "gpu_type": "--gpu",
    "gpu_memory_mib_min": "--gpu",
    "count": "--count",
    "max_price": "--max-price",
    "timeout": "--duration",
    "start_timeout": "--start-by",
    "region": "--region",
    "regions": "--region",
    "isolation": "--isolation",
    "isolation_min": "--isolation",
    "verified": "--verified",
    "audit_bps": "--audit-bps",
    "exclude_providers": "--exclude-provider",
    "provider": "--provider",
}
_WORDS: Final = frozenset({"count", "timeout", "region", "isolation", "verified", "provider"})
"""Those that also are words of a sentence: only with a value they are meant as flags."""

_MEANT = re.compile(rf"\b({'|'.join(_FLAGS)})\b(?:=\"([^\"]*)\"|=(\d+))?")


def flag_of(field: str) -> str:
    """The flag of a wish's word; what has none keeps its name."""
    return _FLAGS.get(field, field)


def in_flags(text: str) -> str:
    """Say a change of a wish in flags: `Ask for count=2.` is `Ask for --count 2.`"""
    return _MEANT.sub(_said, text)


def _said(found: re.Match[str]) -> str:
    name, quoted, number = found.groups()
    value = quoted or number
    if value is None:
        return name if name in _WORDS else flag_of(name)
    return f"{flag_of(name)} {value}"
