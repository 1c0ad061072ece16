"""A lease's disk: a folder with a bound on its bytes, by a file system of its own in a sparse file.

Only root can mount. Where that is not possible a plain folder stands in, and says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import structlog

from cloud_gpu.protocol.errors import ContainerFailed

_log = structlog.get_logger(adapter="disks")
_SMALLEST_MIB: Final = 16
_COMMAND_S: Final = 60


@cache
def are_bounded() -> bool:
    """Whether disks of jobs can be given a size here."""
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if _tool(name) is None]
    possible = os.geteuid() == 0 and Path("/dev/loop-control").exists() and not missing
    if not possible:
        _log.warning(
            "disks_not_bounded", why="needs root, loop devices, mkfs.ext4", missing=missing
        )
    return possible


def make_disk(folder: Path, size_mib: int) -> None:
    """Make a folder into a disk, or mount again what a restart of the machine unmounted.

    Raises `ContainerFailed`, `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not are_bounded() or folder.is_mount():
        return
    image = _image_of(folder)
    if not image.exists():
        new = image.with_suffix(".new")
        with new.open("wb") as file:
            file.truncate(max(_SMALLEST_MIB, size_mib) * 2**20)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "nodiscard", str(new))
        new.replace(image)
    _run("mount", "-o", "loop,nosuid,nodev,noatime", str(image), str(folder))


def drop_disk(folder: Path) -> None:
    """Unmount, if it is a disk, and delete it with all that is on it."""
    if folder.is_mount():
        _run("umount", "--lazy", str(folder))
    _image_of(folder).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _image_of(folder: Path) -> Path:
    return folder.with_name(folder.name + ".ext4")


def _tool(name: str) -> str | None:
    return shutil.which(name, path=f"{os.defpath}:/usr/sbin:/sbin")


def _run(name: str, *arguments: str) -> None:
    program = _tool(name)
    assert program is not None, f"{name} was there when disks were tried"
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=_COMMAND_S, check=False
    )
    if done.returncode:
        raise ContainerFailed(f"{name} {arguments[-1]}: {done.stderr.strip()[:300]}")
