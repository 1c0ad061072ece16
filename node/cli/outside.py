"""What the commands need of the outside world; `node.main` hands it in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.inventory import MachineReading
from node.settings import NodeSettings
from node.standing import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Functions that only `main` may compose. They raise `CloudGpuError`."""

    load: Callable[[Path], NodeSettings]
    """Reads the settings file and the environment."""
    serve: Callable[[NodeSettings], int]
    """Runs the daemon until it is told to stop; its exit code."""
    probe: Callable[[NodeSettings], Sequence[MachineReading]]
    ask: Callable[[NodeSettings, str], Any]
    """Says a line to the running daemon."""
    examine: Callable[[NodeSettings], Iterable[Finding]]
