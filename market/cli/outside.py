"""What the commands need of the outside world; `market.main` hands it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.orders import Bid, SignedAdvert
from cloud_gpu.protocol.rounds import SignedHeader
from market.settings import MarketSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BookPage:
    """What `book` shows."""

    asks: Sequence[SignedAdvert]
    waiting: Sequence[tuple[Bid, BidReport]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Functions that only `main` may compose. They raise `CloudGpuError`."""

    load: Callable[[Path], MarketSettings]
    """Reads the settings file and the environment."""
    serve: Callable[[MarketSettings], int]
    """Runs the daemon until it is told to stop; its exit code."""
    serve_api: Callable[[MarketSettings, int], int]
    """Runs so many API processes until it is told to stop; its exit code."""
    replay: Callable[[str, Sequence[SignedHeader]], Iterator[bytes]]
    """Lines of a journal's matches, by the database's URL; with headers that it must hold."""
    rounds: Callable[[str], Iterator[bytes]]
    """Published rounds as JSON, by the URL of an API or the path of a file or folder."""
    book: Callable[[str, int], BookPage]
    """What rests in a database, so many rows at most."""
