"""Where a client keeps what should not last: a temporary folder of its own, and whose is dead.

A client holds the lock in its folder while it lives, however it ends. So the next one of the same
user can tell what was left by a client that was killed, and removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "cloud-gpu-client-"
_LOCK: Final = "lock"


@contextmanager
def client_folder() -> Iterator[Path]:
    """A folder for as long as the block lasts. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / "lock.new").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            (folder / "lock.new").rename(folder / _LOCK)  # nobody sees a lock that is not held
            yield folder
    finally:
        _remove(folder)


def remove_left_folders(owner: int) -> list[Path]:
    """Remove the folders that dead clients of a user id left; those that were removed.

    A folder without a lock is left alone: it may be of a client that starts just now.
    """
    found = Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")
    return [folder for folder in found if _is_removed(folder, owner)]


def _is_removed(folder: Path, owner: int) -> bool:
    with suppress(OSError):  # somebody else's, or gone by now
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != owner:
            return False
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises: its client lives
            _remove(folder)
            return True
        finally:
            os.close(handle)
    return False


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # what is left, the next client finds
