"""The files that a job gets and those that it returns: by digest, bounded, and never by a link.

The folder was in a stranger's hands. It is read when nothing of the job runs any more, only regular
files count, and no symbolic link is followed, neither to a file nor on the way to one.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

from cloud_gpu.protocol.errors import ArtifactRejected
from cloud_gpu.protocol.job import FileRef, JobSpec, check_job_path
from cloud_gpu.protocol.limits import JOB_FILES_MAX
from cloud_gpu.protocol.ports import Artifacts

_ENTRIES_MAX: Final = 200_000
_DEPTH_MAX: Final = 64

Marks = dict[str, tuple[int, int]]
"""Path → size and mtime in ns, by which a changed file is told."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What came of the collection, and what was left out, in words."""

    files: tuple[FileRef, ...]
    left_out: str


def bring_inputs(spec: JobSpec, folder: Path, store: Artifacts) -> Marks:
    """Copy a job's inputs into its empty folder; raises `ArtifactRejected`, `OSError`.

    Copies, never links: a job may write to its inputs, and the store's files are everybody's.
    """
    for file in spec.inputs:
        source = store.path_of(file.sha256)
        if source.stat().st_size != file.size:
            raise ArtifactRejected(
                f"{file.path}: {file.sha256} has {source.stat().st_size} bytes, not {file.size}"
            )
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if file.executable else 0o644)
    return {path: (found.st_size, found.st_mtime_ns) for path, found in _files(folder, [])}


def collect(
    spec: JobSpec, folder: Path, before: Marks, store: Artifacts, bytes_max: int
) -> Returned:
    """Put what a finished job returns into the store.

    `spec.outputs` names it; where it names nothing, whatever is new or changed is returned.
    """
    left_out: list[str] = []
    chosen: list[tuple[str, os.stat_result]] = []
    matched: set[str] = set()
    for path, found in _files(folder, left_out):
        patterns = [pattern for pattern in spec.outputs if _matches(path, pattern)]
        matched.update(patterns)
        if patterns or (
            not spec.outputs and before.get(path) != (found.st_size, found.st_mtime_ns)
        ):
            chosen.append((path, found))
    left_out += [
        f"nothing matches {pattern!r}" for pattern in spec.outputs if pattern not in matched
    ]
    files: list[FileRef] = []
    left_bytes = bytes_max
    for path, found in sorted(chosen):
        try:
            check_job_path("output", path)
            path.encode()
        except ValueError:
            left_out.append(f"{path[:80]!r} is no name that a job may return")
            continue
        if len(files) == JOB_FILES_MAX:
            left_out.append(f"more than {JOB_FILES_MAX} files")
            break
        if found.st_size > left_bytes:
            left_out.append(f"{path} ({found.st_size} bytes): more than {bytes_max} bytes in all")
            continue
        try:
            digest = store.put_file(folder / path)
        except ArtifactRejected as rejected:
            left_out.append(f"{path}: {rejected}")
            continue
        left_bytes -= found.st_size
        files.append(
            FileRef(
                path=path,
                sha256=digest,
                size=found.st_size,
                executable=bool(found.st_mode & stat.S_IXUSR),
            )
        )
    return Returned(tuple(files), "; ".join(left_out)[:1_000])


def _files(folder: Path, left_out: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files below a folder, by their paths in it; links are neither named nor followed."""
    waiting: list[tuple[str, int]] = [("", 0)]
    seen = 0
    while waiting:
        below, depth = waiting.pop()
        try:
            entries = list(os.scandir(folder / below))
        except PermissionError:
            left_out.append(f"{below}: not readable")
            continue
        for entry in entries:
            seen += 1
            if seen > _ENTRIES_MAX:
                left_out.append(f"all beyond {_ENTRIES_MAX} files and folders")
                return
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH_MAX:
                    waiting.append((path, depth + 1))
                else:
                    left_out.append(f"{path[:80]}: more than {_DEPTH_MAX} folders deep")
            elif entry.is_file(follow_symlinks=False):
                yield path, entry.stat(follow_symlinks=False)


def _matches(path: str, pattern: str) -> bool:
    """Whether a path is the pattern, lies below it, or fits it; `**` stands for any folders."""
    clean = str(PurePosixPath(pattern))
    if clean == "." or path == clean or path.startswith(clean + "/"):
        return True
    return _fits(path.split("/"), clean.split("/"))


def _fits(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Component by component. A pattern of n components is tried on at most n·len(parts) pairs."""
    reachable = {0}
    for pattern in patterns:
        if pattern == "**":
            reachable = set(range(min(reachable), len(parts) + 1)) if reachable else set()
        else:
            reachable = {
                at + 1 for at in reachable if at < len(parts) and fnmatchcase(parts[at], pattern)
            }
    # What lies below a folder that fits is returned with it.
    return any(at > 0 for at in reachable)
