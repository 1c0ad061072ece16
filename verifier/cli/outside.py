"""What the commands need of the outside world; `verifier.main` hands it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cloud_gpu.protocol.values import Digest
from verifier.checking import Check
from verifier.settings import VerifierSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """Which record to check, against which chain."""

    deployment: Path
    rpc: str
    record: Path | None
    """A file that a verifier published."""
    verifier: str | None
    """Or the multiaddr of one that is asked for it,"""
    batch: str | None
    """by the batch's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Functions that only `main` may compose. They raise `CloudGpuError`."""

    load: Callable[[Path], VerifierSettings]
    """Reads the settings file and the environment."""
    serve: Callable[[VerifierSettings], int]
    """Runs the daemon until it is told to stop; its exit code."""
    anchor: Callable[[VerifierSettings], Digest]
    """The anchor of the settings' preimages; their seed is made where there is none."""
    check: Callable[[Audited], tuple[Check, ...]]
    """Recomputes an audit."""
