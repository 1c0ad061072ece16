"""The files of one session: what was put in, and what its jobs returned, by path and content.

Each job starts in an empty folder, so everything here is its input; files that the node has made
or taken are named by their digest and not sent again.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.job import FileRef, check_job_path

OWN_FOLDER: Final = ".cloud-gpu"
"""Where the session keeps what it installs; users' files do not lie there."""


class Workspace:
    """Path -> file, as the next job will see it."""

    def __init__(self) -> None:
        self._files: dict[str, FileRef] = {}

    @property
    def inputs(self) -> tuple[FileRef, ...]:
        """Everything, in the order of paths."""
        return tuple(self._files[path] for path in sorted(self._files))

    def put(self, files: Iterable[FileRef]) -> None:
        """Add files; a path that is taken gets the new content.

        Raises ValueError: more files than one job may have, or a path below another file.
        """
        merged = {**self._files, **{file.path: file for file in files}}
        if len(merged) > limits.JOB_FILES_MAX:
            raise ValueError(
                f"files: found {len(merged)}, needed at most {limits.JOB_FILES_MAX} in a session."
                " Pack small files into one archive."
            )
        for path in merged:
            for above in PurePosixPath(path).parents:
                if str(above) in merged:
                    raise ValueError(f"files: {path} lies below {above}, which is a file")
        self._files = merged

    def find(self, wanted: str) -> tuple[FileRef, ...]:
        """A file, everything below a folder, or what a pattern ("out/*.pt") matches."""
        path = str(PurePosixPath(wanted))
        if path in self._files:
            return (self._files[path],)
        if path == ".":
            return tuple(f for f in self.inputs if not f.path.startswith(OWN_FOLDER + "/"))
        return tuple(
            file
            for file in self.inputs
            if file.path.startswith(path + "/") or fnmatchcase(file.path, path)
        )


def remote_path(local_name: str, remote: str | None) -> str:
    """Where a local file or folder goes in the job's folder.

    Without `remote`, its own name; a `remote` that ends in "/" is a folder for it. Raises
    ValueError for a path that leaves the job's folder or is the session's own.
    """
    path = local_name if remote is None else remote
    if path.endswith("/"):
        path += local_name
    path = str(PurePosixPath(path))
    if path == ".":
        return path
    check_job_path("remote", path)
    if path.split("/")[0] == OWN_FOLDER:
        raise ValueError(f"remote: {OWN_FOLDER} is where the session keeps what it installs")
    return path
