"""Times in a person's words: on the clock, or from now."""

from __future__ import annotations

from cloud_gpu.bidding import WordUnclear
from cloud_gpu.protocol.units import parse_duration
from cloud_gpu.protocol.utc import parse_utc


def read_moment(field: str, word: str, at: int, step: int = 1) -> int:
    """A UTC time, or a duration from `at` on, up to the next multiple of `step`; Unix seconds.

    Raises `WordUnclear`.
    """
    try:
        return parse_utc(word)
    except ValueError as error:
        unclear = error
    try:
        wanted = at + parse_duration(word)
    except ValueError:
        text = f'{unclear}; or a duration from now, like "3d"'
        raise WordUnclear(field, text) from unclear
    return wanted + -wanted % step
