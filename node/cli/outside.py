"""What the commands need of the outside world; `node.main` hands it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from node.settings import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Functions that only `main` may compose. They raise `CloudGpuError`."""

    load: Callable[[Path], NodeSettings]
    """Reads the settings file and the environment."""
    serve: Callable[[NodeSettings], int]
    """Runs the daemon until it is told to stop; its exit code."""
