"""A running devnet as other commands find it: a folder with a lock and one JSON file.

The process that keeps the devnet holds the lock while it lives, so "is it running" has one
answer, also after a crash. The file says where everything is, and which processes to end if the
keeper was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cloud_gpu.adapters.mounts import unmount_below
from cloud_gpu.adapters.processes import ProcessMark, end_marked, mark_of, running_with
from cloud_gpu.protocol.errors import OutsideWorldError

STATE_FILE = "devnet.json"
_GRACE_S = 5.0


class DevnetRunning(OutsideWorldError):
    """Another process keeps a devnet in this folder."""


class DevnetState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a devnet is; paths are absolute."""

    folder: str
    nodes: int
    market: str
    """URL of its API."""
    rpc: str
    deployment: str
    keystore: str
    """The buyer's."""
    password_file: str
    max_price: str
    """Tokens per GPU-hour: the buyer's standing limit."""
    started_at: int
    """Unix milliseconds."""
    stand_ins: tuple[str, ...]
    """What is not real here, in words."""
    keeper: ProcessMark
    children: tuple[ProcessMark, ...]
    """In the order they were started."""

    @property
    def ended(self) -> tuple[str, ...]:
        """Names of processes that should run and do not; one started again by hand counts."""
        died = [mark.name for mark in self.children if mark.find() is None]
        again = running_with([str(config_of(Path(self.folder), name)) for name in died])
        return tuple(name for name in died if str(config_of(Path(self.folder), name)) not in again)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep a devnet here, alone. Raises DevnetRunning at once when somebody else does."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _lock(folder).open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DevnetRunning(f"a devnet runs in {folder}") from error
        handle.truncate(0)
        handle.write(msgspec.json.encode(mark_of(os.getpid(), "keeper")).decode())
        handle.flush()
        yield
        handle.truncate(0)


def config_of(folder: Path, name: str) -> Path:
    """The settings file of a daemon."""
    return folder / f"{name}.toml"


def _lock(folder: Path) -> Path:
    """Beside the folder, so that emptying the folder leaves it."""
    return folder.with_name(f"{folder.name}.lock")


def keeper_of(folder: Path) -> ProcessMark | None:
    """Who keeps a devnet here, from its first moment on; None: nobody does."""
    try:
        with _lock(folder).open("r") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except BlockingIOError:
        try:
            return msgspec.json.decode(_lock(folder).read_bytes(), type=ProcessMark)
        except msgspec.DecodeError:  # caught between taking the lock and writing the name
            return None
    return None


def write_state(state: DevnetState) -> None:
    """Replace the file as a whole: a reader never sees half of it."""
    path = Path(state.folder, STATE_FILE)
    scratch = path.with_suffix(".new")
    scratch.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    scratch.replace(path)


def read_state(folder: Path) -> DevnetState | None:
    """None where there is no file, or one of another version or cut short."""
    try:
        return msgspec.json.decode((folder / STATE_FILE).read_bytes(), type=DevnetState)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def running(folder: Path) -> DevnetState | None:
    """The devnet that is kept here and up; a file that an earlier keeper left does not count."""
    state = read_state(folder)
    return state if state is not None and state.keeper == keeper_of(folder) else None


def clear(folder: Path) -> list[str]:
    """Remove what a devnet left here that is not kept any more; the names of those it ended.

    Call while holding the lock: what still runs then has lost its keeper. Raises OutsideWorldError.
    """
    state = read_state(folder)
    ended = end_marked(reversed(state.children), _GRACE_S) if state is not None else []
    if failures := unmount_below(folder):
        raise OutsideWorldError("; ".join(failures))
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return ended
