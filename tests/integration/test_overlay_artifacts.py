"""Artefacts between two peers: whole and right, or a clear error and what was right kept."""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import trio
from libp2p.abc import INetStream

from cloud_gpu.protocol.adapters.artifact_exchange import (
    ARTIFACT_PROTOCOL,
    ArtifactExchange,
    Direction,
)
from cloud_gpu.protocol.adapters.artifacts import (
    CHUNK_BYTES,
    ArtifactForged,
    ArtifactMissing,
    ArtifactQuotaExceeded,
    ArtifactStore,
    Manifest,
)
from cloud_gpu.protocol.adapters.frames import FrameReader, framed
from cloud_gpu.protocol.adapters.gossip import Overlay
from cloud_gpu.protocol.errors import (
    ArtifactRejected,
    PeerUnreachable,
    RequestRefused,
    RequestTimedOut,
)
from tests.support.overlay import answers, running_plain, secret_of, star, until

CONTENT = os.urandom(3 * CHUNK_BYTES + 4_321)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
QUOTA = 64 * CHUNK_BYTES


@dataclass
class Side:
    overlay: Overlay
    store: ArtifactStore
    exchange: ArtifactExchange
    asked: list[tuple[str, str, Direction, int]]
    allows: bool = True


def side(overlay: Overlay, folder: Path, quota: int = QUOTA, stall_s: float = 5.0) -> Side:
    asked: list[tuple[str, str, Direction, int]] = []

    def authorise(peer: str, digest: str, direction: Direction, size: int) -> bool:
        asked.append((peer, digest, direction, size))
        return made.allows

    store = ArtifactStore(folder, quota)
    exchange = ArtifactExchange(
        overlay, store, authorise, size_max=32 * CHUNK_BYTES, stall_s=stall_s
    )
    made = Side(overlay, store, exchange, asked)
    return made


@asynccontextmanager
async def two(
    folder: Path, *, quota: int = QUOTA, stall_s: float = 5.0
) -> AsyncIterator[list[Side]]:
    """A server, and a client that keeps connected to it."""
    async with star(1) as (hub, leaf):
        yield [
            side(hub, folder / "hub", quota, stall_s),
            side(leaf, folder / "leaf", stall_s=stall_s),
        ]


@pytest.mark.parametrize("content", [b"", b"x", CONTENT])
async def test_an_artefact_is_pushed_and_fetched(tmp_path: Path, content: bytes) -> None:
    async with two(tmp_path) as (hub, leaf):
        digest = leaf.store.put_bytes(content)
        await leaf.exchange.push(hub.overlay.peer_id, digest)
        assert hub.store.path_of(digest).read_bytes() == content
        leaf.store.remove(digest)
        path = await leaf.exchange.fetch(hub.overlay.addresses, digest, size_max=QUOTA)
        assert path.read_bytes() == content
        assert leaf.store.bytes_used == hub.store.bytes_used == len(content)
        peer = leaf.overlay.peer_id
        assert hub.asked == [
            (peer, digest, direction, len(content)) for direction in ("push", "fetch")
        ]


async def test_what_is_there_already_is_not_sent_again(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, leaf):
        for each in (hub, leaf):
            each.store.put_bytes(CONTENT)
        with trio.fail_after(10):
            await leaf.exchange.push(hub.overlay.peer_id, DIGEST)
            await leaf.exchange.fetch("a peer that is not needed", DIGEST, size_max=QUOTA)
        assert hub.store.digests() == [DIGEST]


async def test_a_peer_that_is_not_authorised_gets_and_leaves_nothing(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, leaf):
        hub.allows = False
        mine, theirs = leaf.store.put_bytes(b"mine"), hub.store.put_bytes(b"theirs")
        with pytest.raises(RequestRefused, match="not authorised"):
            await leaf.exchange.push(hub.overlay.peer_id, mine)
        for wanted in (theirs, "0" * 64):  # nor learns what is here
            with pytest.raises(RequestRefused, match="not authorised"):
                await leaf.exchange.fetch(hub.overlay.peer_id, wanted, size_max=QUOTA)
        assert hub.store.digests() == [theirs]


async def test_what_cannot_be_sent_says_why(tmp_path: Path) -> None:
    async with two(tmp_path, quota=CHUNK_BYTES) as (hub, leaf):
        peer = hub.overlay.peer_id
        with pytest.raises(RequestRefused, match="no artefact 0000"):
            await leaf.exchange.fetch(peer, "0" * 64, size_max=QUOTA)
        with pytest.raises(ArtifactMissing):
            await leaf.exchange.push(peer, "0" * 64)
        with pytest.raises(ArtifactRejected, match="not a SHA-256 digest"):
            await leaf.exchange.fetch(peer, "../../etc/passwd", size_max=QUOTA)
        leaf.store.put_bytes(CONTENT)
        with pytest.raises(RequestRefused, match=r"does not fit.*raise the quota"):
            await leaf.exchange.push(peer, DIGEST)
        large = leaf.store.put_bytes(b"\x00" * 33 * CHUNK_BYTES)
        with pytest.raises(RequestRefused, match="at most 33554432 are taken"):
            await leaf.exchange.push(peer, large)
        assert hub.store.bytes_used == 0


async def test_more_than_was_wanted_or_fits_is_not_fetched(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, leaf):
        hub.store.put_bytes(CONTENT)
        with pytest.raises(ArtifactRejected, match="at most 1000 were wanted"):
            await leaf.exchange.fetch(hub.overlay.peer_id, DIGEST, size_max=1_000)
        leaf.store.bytes_max = 1_000
        with pytest.raises(ArtifactQuotaExceeded):
            await leaf.exchange.fetch(hub.overlay.peer_id, DIGEST, size_max=QUOTA)
        assert leaf.store.bytes_used == 0


def manifest_of(content: bytes, digest: str) -> Manifest:
    chunks = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
    sums = b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)
    return Manifest(digest=digest, size=len(content), sums=sums)


@dataclass
class Liar:
    """Serves `announced` and sends `sent`, counting what it got rid of before it was cut."""

    announced: Manifest
    sent: bytes
    bytes_taken: int = 0
    offset: int = -1

    async def serve(self, stream: INetStream) -> None:
        frames = FrameReader(stream)
        await frames.frame(4_096)
        await stream.write(framed(msgspec.json.encode({"size": self.announced.size})))
        await stream.write(framed(self.announced.sums))
        self.offset = msgspec.json.decode(await frames.frame(4_096))["offset"]
        for at in range(self.offset, len(self.sent), 65_536):
            await stream.write(self.sent[at : at + 65_536])
            self.bytes_taken = at + 65_536
        await stream.close()


async def test_a_liar_is_cut_at_the_first_wrong_chunk(tmp_path: Path) -> None:
    content = CONTENT + os.urandom(20 * CHUNK_BYTES)
    digest = hashlib.sha256(content).hexdigest()
    wrong = content[:CHUNK_BYTES] + b"?" + content[CHUNK_BYTES + 1 :]
    async with two(tmp_path) as (hub, leaf):
        liar = Liar(manifest_of(content, digest), wrong)
        hub.overlay.serve_stream(ARTIFACT_PROTOCOL, liar.serve)
        with pytest.raises(ArtifactForged, match="chunk 1 of"):
            await leaf.exchange.fetch(hub.overlay.peer_id, digest, size_max=QUOTA)
        assert leaf.overlay.counters.misbehaviour == 1
        await trio.sleep(0.2)
        assert liar.bytes_taken < 12 * CHUNK_BYTES
        assert leaf.store.bytes_used == CHUNK_BYTES  # the chunk that was right
        assert not leaf.store.has(digest)


async def test_a_liar_with_sums_to_match_is_found_out_at_the_end(tmp_path: Path) -> None:
    lie = b"?" * len(CONTENT)
    async with two(tmp_path) as (hub, leaf):
        hub.overlay.serve_stream(ARTIFACT_PROTOCOL, Liar(manifest_of(lie, DIGEST), lie).serve)
        with pytest.raises(ArtifactForged, match="the bytes have digest"):
            await leaf.exchange.fetch(hub.overlay.peer_id, DIGEST, size_max=QUOTA)
        assert leaf.store.bytes_used == 0
        # And an honest peer can still send it.
        hub.store.put_bytes(CONTENT)
        hub.overlay.serve_stream(ARTIFACT_PROTOCOL, hub.exchange._serve)
        path = await leaf.exchange.fetch(hub.overlay.peer_id, DIGEST, size_max=QUOTA)
        assert path.read_bytes() == CONTENT


async def test_a_transfer_cut_short_is_resumed(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, leaf):
        short = Liar(manifest_of(CONTENT, DIGEST), CONTENT[: 2 * CHUNK_BYTES + 5])
        hub.overlay.serve_stream(ARTIFACT_PROTOCOL, short.serve)
        with pytest.raises(PeerUnreachable, match="lost in a transfer"):
            await leaf.exchange.fetch(hub.overlay.peer_id, DIGEST, size_max=QUOTA)
        assert leaf.store.bytes_used == 2 * CHUNK_BYTES
        rest = Liar(manifest_of(CONTENT, DIGEST), CONTENT)
        hub.overlay.serve_stream(ARTIFACT_PROTOCOL, rest.serve)
        path = await leaf.exchange.fetch(hub.overlay.peer_id, DIGEST, size_max=QUOTA)
        assert rest.offset == 2 * CHUNK_BYTES
        assert path.read_bytes() == CONTENT


async def test_a_push_that_is_cancelled_is_resumed(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, leaf):
        content = os.urandom(24 * CHUNK_BYTES)
        digest = leaf.store.put_bytes(content)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leaf.exchange.push, hub.overlay.peer_id, digest)
            partial = tmp_path / "hub" / "partial" / digest
            assert await until(lambda: partial.exists() and partial.stat().st_size > CHUNK_BYTES)
            nursery.cancel_scope.cancel()
        assert await until(lambda: not hub.store._receiving)
        assert 0 < hub.store.bytes_used < len(content)
        await leaf.exchange.push(hub.overlay.peer_id, digest)
        assert hub.store.path_of(digest).read_bytes() == content
        assert hub.store.bytes_used == len(content)


async def test_a_peer_that_stalls_is_given_up(tmp_path: Path) -> None:
    async def stall(_: INetStream) -> None:
        await trio.sleep_forever()

    async with two(tmp_path, stall_s=0.4) as (hub, leaf):
        hub.overlay.serve_stream(ARTIFACT_PROTOCOL, stall)
        with trio.fail_after(20), pytest.raises(RequestTimedOut):
            await leaf.exchange.fetch(hub.overlay.peer_id, DIGEST, size_max=QUOTA)


async def test_a_wish_that_is_junk_harms_nobody(tmp_path: Path) -> None:
    zeros = "0" * 64
    wishes = (
        "not json",
        "{}",
        '{"do":"format","digest":"x"}',
        f'{{"do":"push","digest":"{zeros}","size":-1}}',
        '{"do":"push","digest":"../../x","size":1}',
        f'{{"do":"fetch","digest":"{zeros}","more":1}}',
        "x" * 5_000,
    )
    async with two(tmp_path) as (hub, leaf):
        for number, wish in enumerate(wishes):
            async with running_plain(secret_of(901 + number)) as attacker:
                line = framed(wish.encode())
                await attacker.throw(hub.overlay.addresses[0], ARTIFACT_PROTOCOL, line)
        assert await until(lambda: hub.overlay.counters.misbehaviour == 5)
        assert await answers(hub.overlay, leaf.overlay)
        assert hub.store.digests() == []


async def test_four_transfers_at_once_share_the_line(tmp_path: Path) -> None:
    async with two(tmp_path) as (hub, leaf):
        digests = [leaf.store.put_bytes(os.urandom(2 * CHUNK_BYTES)) for _ in range(4)]
        async with trio.open_nursery() as nursery:
            for digest in digests:
                nursery.start_soon(leaf.exchange.push, hub.overlay.peer_id, digest)
        assert hub.store.digests() == sorted(digests)
