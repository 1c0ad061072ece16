"""The seed of a verifier's hash chain, in a file of its own."""

from __future__ import annotations

from pathlib import Path

from cloud_gpu.protocol.adapters.keystore import new_secret, write_secret_file
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.values import Digest
from verifier.draw import Preimages


def load_preimages(path: Path, length: int) -> Preimages:
    """Read the chain. Raises SettingsInvalid: no file, readable by others, not 32 bytes in hex."""
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsInvalid(f"preimages_file: {path} must be readable by you alone (0600)")
        return Preimages(Digest(bytes.fromhex(path.read_text().strip())), length)
    except (OSError, ValueError) as error:
        raise SettingsInvalid(
            f"preimages_file: {path}: found {error}, needed 32 bytes in hex."
            " `cloud-gpu-verifier anchor` makes one."
        ) from error


def make_preimages(path: Path) -> None:
    """Draw a seed and keep it, unless there is one. Raises SettingsInvalid."""
    if not path.exists():
        write_secret_file(path, new_secret().hex().encode() + b"\n")
