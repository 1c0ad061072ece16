"""Artefacts on disk, by the SHA-256 of their bytes.

A file is in the store under its digest or it is not there: what arrives is written aside, checked
and renamed. Beside each lie the SHA-256 sums of its chunks, by which a receiver notices at once
that what it is sent is not what was announced. One process owns a folder; calls may come from
several of its threads.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from cloud_gpu.protocol.errors import ArtifactRejected
from cloud_gpu.protocol.limits import ARTIFACT_BYTES_MAX

CHUNK_BYTES = 2**20
"""The manifest of the largest artefact, 64 GiB, is then 2 MiB."""

SUM_BYTES = 32
SUMS_SUFFIX = ".sums"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ArtifactMissing(ArtifactRejected):
    """No such artefact in the store."""


class ArtifactForged(ArtifactRejected):
    """The bytes are not those that were announced, or not those of the digest."""


class ArtifactQuotaExceeded(ArtifactRejected):
    """The store has no room for it; nothing was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """An artefact's size and the SHA-256 of each chunk of 1 MiB. Raises `ArtifactRejected`."""

    digest: str
    size: int
    sums: bytes

    def __post_init__(self) -> None:
        check_digest(self.digest)
        if not 0 <= self.size <= ARTIFACT_BYTES_MAX:
            raise ArtifactRejected(
                f"an artefact of {self.size} bytes, at most {ARTIFACT_BYTES_MAX}"
            )
        if len(self.sums) != SUM_BYTES * self.chunks:
            raise ArtifactRejected(
                f"{len(self.sums)} bytes of chunk sums, needed {SUM_BYTES * self.chunks}"
            )

    @property
    def chunks(self) -> int:
        return -(-self.size // CHUNK_BYTES)

    def sum_of(self, chunk: int) -> bytes:
        return self.sums[chunk * SUM_BYTES : (chunk + 1) * SUM_BYTES]


def check_digest(digest: str) -> str:
    """`digest` itself. Raises `ArtifactRejected` unless it is 64 lower-case hex digits."""
    if not _DIGEST.fullmatch(digest):
        raise ArtifactRejected(f"{digest[:80]!r} is not a SHA-256 digest in lower-case hex")
    return digest


class ArtifactStore:
    """A folder of artefacts with a quota in bytes, partial ones included.

    Raises `OSError` where the folder cannot be written.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._whole, self._partial = folder / "whole", folder / "partial"
        for each in (self._whole, self._partial):
            each.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._putting = threading.Lock()
        """Two leases of one program may put the same file at once: the second finds it there."""
        self._receiving: set[str] = set()
        self._used = sum(
            entry.stat().st_size
            for entry in (*self._whole.glob("??/*"), *self._partial.iterdir())
            if not entry.suffix
        )

    @property
    def bytes_used(self) -> int:
        """Bytes of artefacts, whole and partial, and what is reserved for those arriving."""
        return self._used

    def has(self, sha256: str) -> bool:
        """Whether the artefact is here, whole. Raises `ArtifactRejected` for a bad digest."""
        return self._path(sha256).is_file()

    def path_of(self, sha256: str) -> Path:
        """The file, to be read only. Raises `ArtifactMissing`."""
        path = self._path(sha256)
        if not path.is_file():
            raise ArtifactMissing(f"there is no artefact {sha256} here")
        return path

    def manifest_of(self, digest: str) -> Manifest:
        """Size and chunk sums. Raises `ArtifactMissing`."""
        path = self.path_of(digest)
        try:
            sums = path.with_suffix(SUMS_SUFFIX).read_bytes()
        except FileNotFoundError:
            with path.open("rb") as opened:
                return _read_manifest(opened)
        return Manifest(digest=digest, size=path.stat().st_size, sums=sums)

    def digests(self) -> list[str]:
        """Every artefact that is here, whole."""
        return sorted(path.name for path in self._whole.glob("??/*") if not path.suffix)

    def put_bytes(self, content: bytes) -> str:
        """Store; the digest. Raises `ArtifactQuotaExceeded`."""
        return self._put(io.BytesIO(content))

    def put_file(self, path: Path) -> str:
        """Store a copy of a file; its digest. Raises `ArtifactQuotaExceeded`, `OSError`."""
        with path.open("rb") as opened:
            return self._put(opened)

    def _put(self, opened: BinaryIO) -> str:
        manifest = _read_manifest(opened)
        with self._putting:
            if not self.has(manifest.digest):
                with self.receive(manifest) as receipt:
                    opened.seek(receipt.offset)
                    while chunk := opened.read(CHUNK_BYTES):
                        receipt.take(chunk)
                    receipt.finish()
        return manifest.digest

    def receive(self, manifest: Manifest) -> Receipt:
        """Begin or resume taking an artefact; enter the result as a context.

        Entering raises `ArtifactQuotaExceeded`, or `ArtifactRejected` while it is being received
        already.
        """
        return Receipt(self, manifest)

    def remove(self, digest: str) -> None:
        """Forget an artefact and what there is of it in part."""
        path = self._path(digest)
        with self._lock:
            if digest in self._receiving:
                raise ArtifactRejected(f"{digest} is being received")
            for each in (path, self._partial / digest):
                self._used -= _size_of(each)
                each.unlink(missing_ok=True)
        path.with_suffix(SUMS_SUFFIX).unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        check_digest(digest)
        return self._whole / digest[:2] / digest

    def _begin(self, manifest: Manifest) -> Path:
        """Reserve room, and the only place as its writer; the file of what is here in part."""
        digest = manifest.digest
        path = self._partial / digest
        with self._lock:
            if digest in self._receiving:
                raise ArtifactRejected(f"{digest} is being received already")
            more = manifest.size - _size_of(path)
            if self._used + more > self.bytes_max:
                raise ArtifactQuotaExceeded(
                    f"an artefact of {manifest.size} bytes does not fit: {self._used} of"
                    f" {self.bytes_max} bytes are used. Remove artefacts or raise the quota"
                )
            self._used += more
            self._receiving.add(digest)
        return path

    def _end(self, manifest: Manifest, path: Path) -> None:
        """Give back what was reserved and is not on the disk."""
        with self._lock:
            self._receiving.discard(manifest.digest)
            if not self.has(manifest.digest):
                self._used -= manifest.size - _size_of(path)


class Receipt:
    """One artefact being taken, chunk by chunk, each checked before it is written.

    Left without `finish`, it keeps what was right, to be resumed.
    """

    def __init__(self, store: ArtifactStore, manifest: Manifest) -> None:
        self._store, self.manifest = store, manifest
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self._whole = hashlib.sha256()
        self.offset = 0
        """Bytes that are here and right: where the sender goes on."""

    def __enter__(self) -> Self:
        path = self._path = self._store._begin(self.manifest)
        try:
            self._file = path.open("r+b" if path.is_file() else "w+b")
            self._resume(self._file)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._file is not None:
                self._file.close()
        finally:
            if self._path is not None:
                self._store._end(self.manifest, self._path)

    def _resume(self, file: BinaryIO) -> None:
        # Another peer's lie may lie in the way: keep what agrees with this manifest.
        for chunk in range(self.manifest.chunks):
            content = file.read(self._length_of(chunk))
            if hashlib.sha256(content).digest() != self.manifest.sum_of(chunk):
                break
            self._whole.update(content)
            self.offset += len(content)
        file.seek(self.offset)
        file.truncate()

    def _length_of(self, chunk: int) -> int:
        return min(CHUNK_BYTES, self.manifest.size - chunk * CHUNK_BYTES)

    @property
    def wants(self) -> int:
        """Bytes of the next chunk; 0 when all are here."""
        return self._length_of(self.offset // CHUNK_BYTES) if not self.is_complete else 0

    @property
    def is_complete(self) -> bool:
        return self.offset == self.manifest.size

    def take(self, content: bytes) -> None:
        """Write the next chunk. Raises `ArtifactForged` when it is not what was announced."""
        assert self._file is not None, "enter the receipt first"
        chunk = self.offset // CHUNK_BYTES
        if len(content) != self.wants or not content:
            raise ArtifactForged(f"chunk {chunk} has {len(content)} bytes, needed {self.wants}")
        if hashlib.sha256(content).digest() != self.manifest.sum_of(chunk):
            raise ArtifactForged(f"chunk {chunk} of {self.manifest.digest} is not as announced")
        with _naming_a_full_disk():
            self._file.write(content)
        self._whole.update(content)
        self.offset += len(content)

    def finish(self) -> Path:
        """Check the whole and put it in its place, durably; its path.

        Raises `ArtifactRejected` when chunks are missing, `ArtifactForged` when the announced
        sums were lies: then nothing is kept.
        """
        assert self._file is not None, "enter the receipt first"
        assert self._path is not None
        if not self.is_complete:
            raise ArtifactRejected(f"{self.offset} of {self.manifest.size} bytes came")
        if self._whole.hexdigest() != self.manifest.digest:
            self._file.truncate(0)
            raise ArtifactForged(
                f"the bytes have digest {self._whole.hexdigest()}, not {self.manifest.digest}"
            )
        target = self._store._path(self.manifest.digest)
        target.parent.mkdir(exist_ok=True)
        sums = self._path.with_suffix(SUMS_SUFFIX)
        with _naming_a_full_disk():
            self._file.flush()
            os.fsync(self._file.fileno())
            _write_durably(sums, self.manifest.sums)
        sums.replace(target.with_suffix(SUMS_SUFFIX))
        self._path.replace(target)
        for folder in (target.parent, target.parent.parent):
            _sync_folder(folder)
        return target


@contextmanager
def _naming_a_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ArtifactQuotaExceeded(f"the disk is full: {error}") from error
        raise


def _read_manifest(opened: BinaryIO) -> Manifest:
    whole, sums, size = hashlib.sha256(), bytearray(), 0
    while chunk := opened.read(CHUNK_BYTES):
        whole.update(chunk)
        sums += hashlib.sha256(chunk).digest()
        size += len(chunk)
    return Manifest(digest=whole.hexdigest(), size=size, sums=bytes(sums))


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
