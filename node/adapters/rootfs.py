"""The files of a job's image, from the host itself: its Python, a few packages, a few tools.

No registry is asked. Shared libraries come along by what the loader says, under their own names in
/usr/lib, so that no path of the provider's machine is in the image.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import Requirement

from cloud_gpu.protocol.errors import ContainerFailed

_TOOLS: Final = (
    *("sh", "env", "ls", "cat", "cp", "mv", "rm", "mkdir", "ln", "touch", "chmod", "echo"),
    *("head", "tail", "wc", "sort", "uniq", "cut", "tr", "tee", "seq", "sleep", "date", "true"),
    *("false", "test", "grep", "sed", "find", "xargs", "tar", "gzip", "sha256sum", "uname", "id"),
    *("basename", "dirname", "mktemp", "stat", "df", "du", "nproc", "timeout", "kill"),
)
_STDLIB_LEFT_OUT: Final = frozenset(
    {
        *("test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"),
        *("site-packages", "dist-packages"),
    }
)
_EXTENSIONS_LEFT_OUT: Final = ("_tkinter.", "nis.", "_test", "_xx", "xx")
"""They would bring a window system and a directory service along."""

_ALWAYS: Final = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6")
"""Libraries that wheels load by name though nothing here is linked with them."""

_LOADED = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)

_BY_LINES: Final = """\
import sys

sys.stdout.reconfigure(line_buffering=True)
"""
"""Output is seen line by line, as in a terminal.

Not by PYTHONUNBUFFERED: Python then takes every write for a whole one, gVisor writes to a full
pipe in part, and the rest is lost.
"""

_LAYOUT: Final = b"cloud-gpu root 2"
"""Changes with what `write` adds to the files."""

USER: Final = 65_532
"""The job's uid and gid."""


@dataclass(frozen=True, slots=True)
class _Entry:
    source: Path | None
    """None: `content` is the file."""
    content: bytes = b""
    mode: int = 0o644


class RootFilesystem:
    """What an image will hold, and the digest that names it."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._files: dict[str, _Entry] = {}
        self._links: dict[str, str] = {}
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        self._python = f"python{version}"
        self._add_python()
        for name in closure_of(packages):
            self._add_package(name)
        self._add_tools()
        self._add_libraries()
        self._add_text(f"usr/local/lib/{self._python}/site-packages/sitecustomize.py", _BY_LINES)
        self._add_text("etc/passwd", f"job:x:{USER}:{USER}:job:/tmp:/bin/sh\n")
        self._add_text("etc/group", f"job:x:{USER}:\n")
        self._add_text("etc/nsswitch.conf", "hosts: files\n")

    def digest(self) -> str:
        """SHA-256 of paths, modes and contents: the same files are the same image anywhere."""
        whole = hashlib.sha256(_LAYOUT)
        for path, entry in sorted(self._files.items()):
            if "__pycache__" in path:
                continue  # byte-code names the moment at which its source was installed
            content = entry.source.read_bytes() if entry.source else entry.content
            whole.update(f"{path}\0{entry.mode:o}\0".encode())
            whole.update(hashlib.sha256(content).digest())
        for path, target in sorted(self._links.items()):
            whole.update(f"{path}\0-> {target}\0".encode())
        return whole.hexdigest()

    def write(self, path: Path) -> None:
        """As a tar archive, owned by root."""
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for folder in ("proc", "sys", "dev", "job", "ckpt", "run"):
                archive.addfile(_header(folder, tarfile.DIRTYPE, 0o755))
            # runc gives a tmpfs the mode of the folder below it, whatever its options say.
            archive.addfile(_header("tmp", tarfile.DIRTYPE, 0o1777))
            for name, target in sorted(self._links.items()):
                link = _header(name, tarfile.SYMTYPE, 0o777)
                link.linkname = target
                archive.addfile(link)
            for name, entry in sorted(self._files.items()):
                _add_file(archive, name, entry)

    def _add_python(self) -> None:
        executable = Path(sys.executable).resolve()
        self._add(f"usr/local/bin/{self._python}", executable, 0o755)
        for name in ("python", "python3"):
            self._links[f"usr/local/bin/{name}"] = self._python
        library = PurePosixPath("usr/local/lib") / self._python
        roots = {Path(sysconfig.get_path(each)) for each in ("stdlib", "platstdlib")}
        for root in roots:
            if root == Path(sys.prefix) / "lib" / self._python and sys.prefix != sys.base_prefix:
                continue  # a virtual environment has no standard library of its own
            for source in _walk(root, _STDLIB_LEFT_OUT):
                self._add(str(library / source.relative_to(root)), source)
        # Debian's Python looks for packages under another name.
        self._links[str(library / "dist-packages")] = "site-packages"

    def _add_package(self, name: str) -> None:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            parts = file.parts
            source = Path(str(distribution.locate_file(file)))
            if ".." in parts or not source.is_file():
                continue  # console scripts; byte-code listed and not written
            self._add(f"usr/local/lib/{self._python}/site-packages/{file}", source)
            cached = source.parent / "__pycache__"
            for compiled in cached.glob(f"{source.stem}.{sys.implementation.cache_tag}.pyc"):
                inside = PurePosixPath(*parts[:-1], "__pycache__", compiled.name)
                self._add(f"usr/local/lib/{self._python}/site-packages/{inside}", compiled)

    def _add_tools(self) -> None:
        for name in _TOOLS:
            found = shutil.which(name, path="/bin:/usr/bin")
            if found is not None:
                self._add(f"bin/{name}", Path(found).resolve(), 0o755)

    def _add_libraries(self) -> None:
        programs = [
            entry.source
            for path, entry in self._files.items()
            if entry.source is not None and (path.startswith("bin/") or _is_shared(path))
        ]
        programs.append(Path(sys.executable).resolve())
        needed = _libraries_of(programs)
        needed |= _known_libraries(_ALWAYS)
        for name, source in needed.items():
            if name.startswith("ld-"):
                self._add(str(source).lstrip("/"), source.resolve(), 0o755)
            elif not any(path.endswith("/" + name) for path in self._files):
                self._add(f"usr/lib/{name}", source.resolve(), 0o755)

    def _add(self, path: str, source: Path, mode: int | None = None) -> None:
        if mode is None:
            mode = 0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644
        self._files[path] = _Entry(source, mode=mode)

    def _add_text(self, path: str, text: str) -> None:
        self._files[path] = _Entry(None, text.encode())


def closure_of(packages: Iterable[str]) -> list[str]:
    """Installed distributions with all that they need; raises `ContainerFailed`: one is missing."""
    found: dict[str, None] = {}
    waiting = list(packages)
    while waiting:
        name = waiting.pop()
        canonical = re.sub(r"[-_.]+", "-", name).lower()
        if canonical in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise ContainerFailed(
                f"image_packages: {name} is not installed beside the node; install it, or take it"
                " off the list"
            ) from error
        found[canonical] = None
        for requirement in distribution.requires or ():
            parsed = Requirement(requirement)
            if parsed.marker is None or parsed.marker.evaluate({"extra": ""}):
                waiting.append(parsed.name)
    return sorted(found)


def _walk(root: Path, left_out: frozenset[str]) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            each for each in folders if each not in left_out and not each.startswith("config-")
        )
        for name in sorted(files):
            is_kept = ".opt-" not in name and not name.endswith((".a", "sitecustomize.py"))
            if is_kept and not (".so" in name and name.startswith(_EXTENSIONS_LEFT_OUT)):
                yield Path(folder) / name


def _is_shared(path: str) -> bool:
    return ".so" in PurePosixPath(path).suffixes or path.endswith(".so")


def _libraries_of(programs: Sequence[Path]) -> dict[str, Path]:
    """What the loader would load for them, by name; their own bundled libraries are left out."""
    asked = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    )
    bundled = {path.name for path in programs}
    return {
        name or Path(path).name: Path(path)
        for name, path in _LOADED.findall(asked.stdout)
        if Path(path).name not in bundled
    }


def _known_libraries(names: Sequence[str]) -> dict[str, Path]:
    """Libraries by the loader's own index."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    index: Mapping[str, str] = dict(
        re.findall(r"^\s*(\S+) \(libc6,(?:x86-64|AArch64)\S*\) => (\S+)$", listed, re.MULTILINE)
    )
    return {name: Path(index[name]) for name in names if name in index}


def _header(name: str, kind: bytes, mode: int, size: int = 0, mtime: int = 0) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.mode, header.size, header.mtime = kind, mode, size, mtime
    return header


def _add_file(archive: tarfile.TarFile, name: str, entry: _Entry) -> None:
    if entry.source is None:
        header = _header(name, tarfile.REGTYPE, entry.mode, len(entry.content))
        archive.addfile(header, io.BytesIO(entry.content))
        return
    found = entry.source.stat()
    # Byte-code is valid only beside a source of the very second that it was made from.
    header = _header(name, tarfile.REGTYPE, entry.mode, found.st_size, int(found.st_mtime))
    with entry.source.open("rb") as file:
        archive.addfile(header, file)
