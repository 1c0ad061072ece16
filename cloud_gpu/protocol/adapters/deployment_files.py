"""The files of a deployment: the one that every party reads, and the one that survives a crash."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.values import Address, Digest, Value


class StepProgress(Value, frozen=True, kw_only=True):
    """One contract on its way."""

    contract: str
    address: Address
    sent: tuple[Digest, ...] = ()
    """Every transaction signed for it; all have one number, so one of them at most is mined."""
    block: int | None = None
    """Where it was seen mined last."""


class Progress(Value, frozen=True, kw_only=True):
    """How far a deployment came; written before a transaction leaves, and after it was mined."""

    plan: Digest
    chain_id: int
    deployer: Address
    first_nonce: int
    began_at: int
    """The newest block then: no log of the contracts is older."""
    steps: tuple[StepProgress, ...]


def progress_path(path: Path) -> Path:
    """Beside the deployment's own file, which is written last."""
    return path.with_name(f"{path.name}.progress")


def write_deployment(path: Path, deployment: Deployment) -> None:
    """Write the JSON file, whole or not at all; replaces an older one. Raises SettingsInvalid."""
    _write_whole(path, "deployment", to_json(deployment))


def write_progress(path: Path, progress: Progress) -> None:
    """As `write_deployment`; durable when it returns."""
    _write_whole(path, "progress", to_json(progress))


def read_deployment(path: Path) -> Deployment:
    """Read the JSON file. Raises SettingsInvalid naming the file, the field and the fix."""
    try:
        return from_json(path.read_bytes(), Deployment)
    except FileNotFoundError as error:
        raise SettingsInvalid(
            f"deployment {path}: there is no such file; correct the setting, or deploy first"
        ) from error
    except (OSError, ValueError) as error:
        raise SettingsInvalid(
            f"deployment {path}: {error}; it must be the JSON file that the deployer wrote"
        ) from error


def read_progress(path: Path) -> Progress | None:
    """None: nothing was begun. Raises SettingsInvalid."""
    try:
        return from_json(path.read_bytes(), Progress)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SettingsInvalid(
            f"progress {path}: {error}; it must be what an interrupted deployment left. Restore"
            " it, or move it away to deploy anew"
        ) from error


def _write_whole(path: Path, what: str, content: bytes) -> None:
    scratch: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(scratch).chmod(0o644)  # nothing in it is secret, and every party reads it
        Path(scratch).replace(path)
    except OSError as error:
        if scratch is not None:
            Path(scratch).unlink(missing_ok=True)
        raise SettingsInvalid(
            f"{what} {path}: cannot be written ({error.strerror or error}); choose a folder"
            " that this user may write to, on a disk with room"
        ) from error
