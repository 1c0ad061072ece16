"""The artefact store: only what has its digest gets in, whatever goes wrong on the way."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloud_gpu.protocol.adapters.artifacts import (
    CHUNK_BYTES,
    ArtifactForged,
    ArtifactMissing,
    ArtifactQuotaExceeded,
    ArtifactStore,
    Manifest,
)
from cloud_gpu.protocol.errors import ArtifactRejected
from cloud_gpu.protocol.limits import ARTIFACT_BYTES_MAX
from cloud_gpu.protocol.ports import Artifacts

QUOTA = 16 * CHUNK_BYTES
CONTENT = b"".join(bytes([n]) * CHUNK_BYTES for n in range(3)) + b"tail"


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store", QUOTA)


def manifest_of(content: bytes, digest: str | None = None) -> Manifest:
    chunks = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
    return Manifest(
        digest=digest or hashlib.sha256(content).hexdigest(),
        size=len(content),
        sums=b"".join(hashlib.sha256(chunk).digest() for chunk in chunks),
    )


def test_the_store_is_the_port_that_parties_know(store: ArtifactStore) -> None:
    port: Artifacts = store
    assert not port.has("0" * 64)


@pytest.mark.parametrize("content", [b"", b"x", b"y" * CHUNK_BYTES, CONTENT])
def test_what_is_put_is_found_under_its_digest(store: ArtifactStore, content: bytes) -> None:
    digest = store.put_bytes(content)
    assert digest == hashlib.sha256(content).hexdigest()
    assert store.has(digest)
    assert store.path_of(digest).read_bytes() == content
    assert store.manifest_of(digest) == manifest_of(content)
    assert store.digests() == [digest]


def test_a_file_is_copied_and_counted_once(store: ArtifactStore, tmp_path: Path) -> None:
    source = tmp_path / "weights.bin"
    source.write_bytes(CONTENT)
    assert store.put_file(source) == store.put_file(source) == store.put_bytes(CONTENT)
    assert store.bytes_used == len(CONTENT)
    source.write_bytes(b"changed")
    assert store.path_of(store.digests()[0]).read_bytes() == CONTENT


def test_a_store_opened_again_knows_what_it_has(store: ArtifactStore, tmp_path: Path) -> None:
    digest = store.put_bytes(CONTENT)
    again = ArtifactStore(tmp_path / "store", QUOTA)
    assert again.has(digest)
    assert again.bytes_used == len(CONTENT)


@pytest.mark.parametrize(
    "digest",
    ["../../etc/passwd", "..", "", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 63 + "/", "0\n"],
)
def test_a_digest_that_is_a_path_or_nonsense_reaches_no_file(
    store: ArtifactStore, digest: str
) -> None:
    for use in (store.has, store.path_of, store.manifest_of, store.remove):
        with pytest.raises(ArtifactRejected, match="not a SHA-256 digest"):
            use(digest)
    with pytest.raises(ArtifactRejected, match="not a SHA-256 digest"):
        Manifest(digest=digest, size=0, sums=b"")


def test_what_is_not_here_is_said_to_be_missing(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissing, match="no artefact 0000"):
        store.path_of("0" * 64)


@pytest.mark.parametrize(
    ("size", "sums"),
    [(-1, b""), (ARTIFACT_BYTES_MAX + 1, b""), (1, b""), (0, b"x"), (1, b"x" * 64)],
)
def test_a_manifest_that_does_not_add_up_is_refused(size: int, sums: bytes) -> None:
    with pytest.raises(ArtifactRejected):
        Manifest(digest="0" * 64, size=size, sums=sums)


def test_more_than_the_quota_is_refused_and_leaves_nothing(store: ArtifactStore) -> None:
    store.put_bytes(CONTENT)
    with pytest.raises(ArtifactQuotaExceeded, match="Remove artefacts or raise the quota"):
        store.put_bytes(os.urandom(QUOTA))
    assert store.bytes_used == len(CONTENT)
    store.remove(store.digests()[0])
    assert store.bytes_used == 0
    store.put_bytes(b"z" * QUOTA)


def test_room_is_reserved_before_a_byte_comes(store: ArtifactStore) -> None:
    first, second = manifest_of(b"a" * QUOTA), manifest_of(b"b" * CHUNK_BYTES)
    with store.receive(first), pytest.raises(ArtifactQuotaExceeded), store.receive(second):
        pytest.fail("there is no room")
    with store.receive(second):
        assert store.bytes_used == CHUNK_BYTES
    assert store.bytes_used == 0


def test_a_wrong_chunk_is_refused_before_it_is_written(store: ArtifactStore) -> None:
    with store.receive(manifest_of(CONTENT)) as receipt:
        receipt.take(CONTENT[:CHUNK_BYTES])
        with pytest.raises(ArtifactForged, match="chunk 1 of"):
            receipt.take(b"!" * CHUNK_BYTES)
        assert receipt.offset == CHUNK_BYTES
        with pytest.raises(ArtifactRejected, match="of 3145732 bytes came"):
            receipt.finish()
    assert store.digests() == []
    assert store.bytes_used == CHUNK_BYTES


@pytest.mark.parametrize("length", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES + 1])
def test_a_chunk_of_another_length_is_refused(store: ArtifactStore, length: int) -> None:
    with (
        store.receive(manifest_of(CONTENT)) as receipt,
        pytest.raises(ArtifactForged, match=f"has {length} bytes"),
    ):
        receipt.take(b"\x00" * length)


def test_an_interrupted_receipt_goes_on_where_it_was(store: ArtifactStore, tmp_path: Path) -> None:
    with store.receive(manifest_of(CONTENT)) as receipt:
        receipt.take(CONTENT[:CHUNK_BYTES])
        receipt.take(CONTENT[CHUNK_BYTES : 2 * CHUNK_BYTES])
    again = ArtifactStore(tmp_path / "store", QUOTA)
    assert again.bytes_used == 2 * CHUNK_BYTES
    with again.receive(manifest_of(CONTENT)) as receipt:
        assert receipt.offset == 2 * CHUNK_BYTES
        receipt.take(CONTENT[2 * CHUNK_BYTES : 3 * CHUNK_BYTES])
        assert receipt.wants == 4
        receipt.take(CONTENT[3 * CHUNK_BYTES :])
        assert receipt.finish().read_bytes() == CONTENT
    assert again.bytes_used == len(CONTENT)


def test_a_liars_part_is_not_built_upon(store: ArtifactStore) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    lie = CONTENT[:CHUNK_BYTES] + b"?" * 2 * CHUNK_BYTES
    with store.receive(manifest_of(lie, digest)) as receipt:
        for at in range(0, len(lie), CHUNK_BYTES):
            receipt.take(lie[at : at + CHUNK_BYTES])
    with store.receive(manifest_of(CONTENT)) as receipt:
        assert receipt.offset == CHUNK_BYTES  # the one chunk on which both agree


def test_sums_that_lie_together_are_found_out_at_the_end(store: ArtifactStore) -> None:
    lie = b"?" * CHUNK_BYTES
    with store.receive(manifest_of(lie, "0" * 64)) as receipt:
        receipt.take(lie)
        with pytest.raises(ArtifactForged, match="the bytes have digest"):
            receipt.finish()
    assert store.digests() == []
    assert store.bytes_used == 0


def test_one_artefact_is_received_once_at_a_time(store: ArtifactStore) -> None:
    manifest = manifest_of(CONTENT)
    with store.receive(manifest):
        with (
            pytest.raises(ArtifactRejected, match="being received already"),
            store.receive(manifest),
        ):
            pytest.fail("two writers")
        with pytest.raises(ArtifactRejected, match="being received"):
            store.remove(manifest.digest)
    with store.receive(manifest):
        pass


def test_threads_put_side_by_side(store: ArtifactStore) -> None:
    contents = [bytes([n]) * 1_000 for n in range(32)]
    threads = [threading.Thread(target=store.put_bytes, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.digests()) == 32
    assert store.bytes_used == 32_000


def test_lost_sums_are_computed_again(store: ArtifactStore) -> None:
    digest = store.put_bytes(CONTENT)
    store.path_of(digest).with_suffix(".sums").unlink()
    assert store.manifest_of(digest) == manifest_of(CONTENT)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="NOT TESTED, no /dev/full here")
def test_a_full_disk_is_said_to_be_full(store: ArtifactStore) -> None:
    with store.receive(manifest_of(CONTENT)) as receipt, Path("/dev/full").open("wb") as full:
        opened, receipt._file = receipt._file, full
        with pytest.raises(ArtifactQuotaExceeded, match="the disk is full"):
            receipt.take(CONTENT[:CHUNK_BYTES])
        receipt._file = opened
    assert store.bytes_used == 0


def test_many_threads_may_put_the_same_file_at_once(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store", 2**30)
    path = tmp_path / "file"
    path.write_bytes(b"x" * (3 * CHUNK_BYTES + 1))
    with ThreadPoolExecutor(8) as pool:
        digests = {pool.submit(store.put_file, path) for _ in range(16)}
    assert len({each.result() for each in digests}) == 1
    assert store.bytes_used == 3 * CHUNK_BYTES + 1
