"""Artefacts between peers, by digest, over a stream of their own.

Who sends announces the size and the sum of each chunk first; who receives says how much of it is
already here and right, then checks every chunk as it comes and the whole at the end. A peer that
sends anything else is cut at the first wrong chunk, and what was right is resumed, from whomever.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import trio
from libp2p.abc import INetStream
from libp2p.io.exceptions import IOException

from cloud_gpu.protocol.adapters.admission import Turns
from cloud_gpu.protocol.adapters.artifacts import (
    CHUNK_BYTES,
    SUM_BYTES,
    ArtifactForged,
    ArtifactStore,
    Manifest,
    Receipt,
    check_digest,
)
from cloud_gpu.protocol.adapters.frames import (
    FrameError,
    FrameReader,
    FrameTooLarge,
    framed,
)
from cloud_gpu.protocol.adapters.gossip import Overlay
from cloud_gpu.protocol.adapters.libp2p_host import reset_quietly
from cloud_gpu.protocol.adapters.requests import write_in_pieces
from cloud_gpu.protocol.errors import (
    ArtifactRejected,
    PeerUnreachable,
    RequestRefused,
    RequestTimedOut,
)
from cloud_gpu.protocol.limits import ARTIFACT_BYTES_MAX

log = logging.getLogger("cloud_gpu.overlay")

ARTIFACT_PROTOCOL = "/cloud-gpu/artifact/1"
PER_PEER_MAX = 4
IN_ALL_MAX = 32

_NOTE_BYTES_MAX = 4_096
_REASON_MAX = 500
_SUMS_BYTES_MAX = SUM_BYTES * ARTIFACT_BYTES_MAX // CHUNK_BYTES

Direction = Literal["fetch", "push"]
"""What a peer asks of us: to be sent an artefact, or to keep one."""

Authorise = Callable[[str, str, Direction, int], bool]
"""(peer id, digest, direction, size in bytes; 0 when it is not here) → whether to."""


class _Wish(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    do: Direction
    digest: str
    size: int = 0


class _Note(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A size announced, an offset to go on from, or a refusal."""

    size: int = 0
    offset: int = 0
    refused: str = ""


T = TypeVar("T", _Wish, _Note)


class ArtifactExchange:
    """Sends and takes artefacts of one store on one overlay.

    Every step of a transfer must happen within `stall_s`; there is no limit on the whole.
    """

    def __init__(
        self,
        overlay: Overlay,
        store: ArtifactStore,
        authorise: Authorise,
        *,
        size_max: int = ARTIFACT_BYTES_MAX,
        stall_s: float = 30.0,
    ) -> None:
        self._overlay, self._store, self._authorise = overlay, store, authorise
        self._size_max, self._stall_s = size_max, stall_s
        self._turns = Turns(per_key=PER_PEER_MAX, in_all=IN_ALL_MAX)
        overlay.serve_stream(ARTIFACT_PROTOCOL, self._serve)

    async def fetch(self, peer: str | Sequence[str], digest: str, *, size_max: int) -> Path:
        """Get an artefact from a peer unless it is here; its path in the store.

        Raises `ArtifactRejected` (what came is not it, too large, no room), `RequestRefused`,
        `PeerUnreachable`, `RequestTimedOut`.
        """
        if self._store.has(digest):
            return self._store.path_of(digest)
        async with self._line_to(peer) as line:
            await line.send(_Wish(do="fetch", digest=digest))
            size = (await line.note()).size
            if size > min(size_max, self._size_max):
                raise ArtifactRejected(f"{digest} has {size} bytes, at most {size_max} were wanted")
            manifest = Manifest(digest=digest, size=size, sums=await line.sums())
            return await self._receive(line, manifest)

    async def push(self, peer: str | Sequence[str], digest: str) -> None:
        """Send an artefact of the store to a peer, until it says that it has it, durably.

        Raises `ArtifactMissing`, `RequestRefused`, `PeerUnreachable`, `RequestTimedOut`.
        """
        manifest = await trio.to_thread.run_sync(self._store.manifest_of, digest)
        async with self._line_to(peer) as line:
            await line.send(_Wish(do="push", digest=digest, size=manifest.size))
            await line.note()
            await line.send_sums(manifest)
            await line.send_file(self._store.path_of(digest), manifest, (await line.note()).offset)
            await line.note()

    @asynccontextmanager
    async def _line_to(self, peer: str | Sequence[str]) -> AsyncIterator[_Line]:
        stream: INetStream | None = None
        done = False
        try:
            with trio.fail_after(self._stall_s):
                stream = await self._overlay.open_stream(peer, ARTIFACT_PROTOCOL)
            yield _Line(stream, self._stall_s)
            await stream.close()
            done = True
        except trio.TooSlowError as error:
            raise RequestTimedOut(f"{peer} was silent for {self._stall_s} s") from error
        except (IOException, FrameError) as error:
            raise PeerUnreachable(f"{peer} was lost in a transfer: {error!r}") from error
        except (msgspec.MsgspecError, ArtifactForged) as error:
            if stream is not None:
                self._overlay.misbehaved(str(stream.muxed_conn.peer_id), f"artefact: {error}")
            if isinstance(error, ArtifactForged):
                raise
            raise ArtifactRejected(f"{peer} does not speak {ARTIFACT_PROTOCOL}") from error
        finally:
            if stream is not None and not done:
                await reset_quietly(stream)

    async def _receive(self, line: _Line, manifest: Manifest) -> Path:
        receipt = self._store.receive(manifest)
        await trio.to_thread.run_sync(receipt.__enter__)
        try:
            await line.send(_Note(offset=receipt.offset))
            return await line.receive(receipt)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(receipt.__exit__)

    async def _serve(self, stream: INetStream) -> None:
        peer = str(stream.muxed_conn.peer_id)
        line = _Line(stream, self._stall_s)
        if not self._turns.begin(peer):
            await line.refuse("busy: too many transfers at once")
            return
        try:
            wish = await line.read(_Wish)
            check_digest(wish.digest)
            await (self._send if wish.do == "fetch" else self._take)(peer, wish, line)
            await stream.close()
        except (ArtifactRejected, RequestRefused) as rejected:
            if isinstance(rejected, ArtifactForged):
                self._overlay.misbehaved(peer, f"artefact: {rejected}")
            await line.refuse(str(rejected))
        except (msgspec.MsgspecError, FrameTooLarge) as error:
            self._overlay.misbehaved(peer, f"{ARTIFACT_PROTOCOL}: {error!r}")
            await reset_quietly(stream)
        except (FrameError, IOException, trio.TooSlowError) as error:
            log.info("a transfer with %s ended early: %r", peer, error)
            await reset_quietly(stream)
        finally:
            self._turns.end(peer)

    async def _send(self, peer: str, wish: _Wish, line: _Line) -> None:
        manifest = None
        if self._store.has(wish.digest):
            manifest = await trio.to_thread.run_sync(self._store.manifest_of, wish.digest)
        if not self._authorise(peer, wish.digest, "fetch", manifest.size if manifest else 0):
            raise RequestRefused("not authorised")
        if manifest is None:
            raise RequestRefused(f"there is no artefact {wish.digest} here")
        await line.send(_Note(size=manifest.size))
        await line.send_sums(manifest)
        offset = (await line.note()).offset
        await line.send_file(self._store.path_of(wish.digest), manifest, offset)

    async def _take(self, peer: str, wish: _Wish, line: _Line) -> None:
        if not 0 <= wish.size <= self._size_max:
            raise RequestRefused(f"{wish.size} bytes, at most {self._size_max} are taken")
        if not self._authorise(peer, wish.digest, "push", wish.size):
            raise RequestRefused("not authorised")
        await line.send(_Note())
        manifest = Manifest(digest=wish.digest, size=wish.size, sums=await line.sums())
        if self._store.has(wish.digest):
            await line.send(_Note(offset=wish.size))
        else:
            await self._receive(line, manifest)
        await line.send(_Note(size=wish.size))


class _Line:
    """One transfer's stream; every step raises `trio.TooSlowError` after `stall_s`."""

    def __init__(self, stream: INetStream, stall_s: float) -> None:
        self._stream, self._stall_s = stream, stall_s
        self._frames = FrameReader(stream)

    async def send(self, what: _Wish | _Note) -> None:
        await self._write(framed(msgspec.json.encode(what)))

    async def read(self, kind: type[T]) -> T:
        with trio.fail_after(self._stall_s):
            return msgspec.json.decode(await self._frames.frame(_NOTE_BYTES_MAX), type=kind)

    async def note(self) -> _Note:
        """The next note. Raises `RequestRefused` when it is a refusal."""
        note = await self.read(_Note)
        if note.refused:
            raise RequestRefused(f"the peer refused: {note.refused[:_REASON_MAX]}")
        return note

    async def refuse(self, why: str) -> None:
        await self.send(_Note(refused=why[:_REASON_MAX]))
        await self._stream.close()

    async def sums(self) -> bytes:
        with trio.fail_after(self._stall_s):
            return await self._frames.frame(_SUMS_BYTES_MAX)

    async def send_sums(self, manifest: Manifest) -> None:
        await self._write(framed(manifest.sums))

    async def send_file(self, path: Path, manifest: Manifest, offset: int) -> None:
        if offset % CHUNK_BYTES and offset != manifest.size:
            raise ArtifactRejected(f"{offset} is not where a chunk begins")
        with path.open("rb") as file:
            file.seek(offset)
            try:
                while chunk := await trio.to_thread.run_sync(file.read, CHUNK_BYTES):
                    await self._write(chunk)
            except IOException:
                # Who refuses in the middle says why and stops reading.
                with trio.move_on_after(1):
                    await self.note()
                raise

    async def receive(self, receipt: Receipt) -> Path:
        while wanted := receipt.wants:
            with trio.fail_after(self._stall_s):
                content = await self._frames.exactly(wanted)
            await trio.to_thread.run_sync(receipt.take, content)
        return await trio.to_thread.run_sync(receipt.finish)

    async def _write(self, body: bytes) -> None:
        with trio.fail_after(self._stall_s):
            await write_in_pieces(self._stream, body)
