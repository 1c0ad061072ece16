"""Length-prefixed frames over a byte stream that returns short reads.

The gossip reader, requests and artefact transfers all read through `FrameReader`: it takes what
is there in large reads and cuts frames out of its own buffer, because each small read of a yamux
stream sends a window update. A frame's length is checked before a byte of it is buffered.
"""

from __future__ import annotations

from typing import Protocol

READ_BYTES = 65_536
_VARINT_BYTES_MAX = 10
_LENGTH_BYTES = 4


class ByteStream(Protocol):
    """The part of a libp2p stream that frames need; both calls may raise a `StreamError`."""

    async def read(self, n: int | None = None, /) -> bytes: ...
    async def write(self, data: bytes, /) -> None: ...


class FrameError(Exception):
    """The bytes on the stream are not what the protocol allows."""


class FrameTooLarge(FrameError):
    """A frame announces more bytes than its reader takes."""


class FrameCut(FrameError):
    """The stream ended inside a frame."""


class StreamEnded(FrameError):
    """The stream ended cleanly, between two frames."""


class FrameReader:
    """Frames out of one stream; not to be shared by two tasks."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._held = bytearray()

    async def exactly(self, count: int) -> bytes:
        """The next `count` bytes. Raises `StreamEnded` before the first, `FrameCut` after it."""
        while len(self._held) < count:
            if not await self._more():
                raise (
                    FrameCut(f"{len(self._held)} of {count} bytes")
                    if self._held
                    else (StreamEnded())
                )
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    async def frame(self, bytes_max: int) -> bytes:
        """The next frame with a 4-byte big-endian length. Raises `FrameError`."""
        length = int.from_bytes(await self.exactly(_LENGTH_BYTES), "big")
        return await self._body(length, bytes_max)

    async def varint_frame(self, bytes_max: int) -> bytes:
        """The next frame with an unsigned LEB128 length, as libp2p's gossip has it."""
        length = shift = 0
        while True:
            try:
                byte = (await self.exactly(1))[0]
            except StreamEnded:
                if shift:
                    raise FrameCut("inside a length") from None
                raise
            length |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return await self._body(length, bytes_max)
            if shift >= 7 * _VARINT_BYTES_MAX:
                raise FrameError("a length of more than 10 bytes")

    async def some(self, count_max: int) -> bytes:
        """Between 1 and `count_max` bytes, what is there. Raises `StreamEnded`."""
        if not self._held and not await self._more():
            raise StreamEnded()
        taken = bytes(self._held[:count_max])
        del self._held[:count_max]
        return taken

    async def _body(self, length: int, bytes_max: int) -> bytes:
        if length > bytes_max:
            raise FrameTooLarge(f"a frame of {length} bytes, at most {bytes_max} are taken")
        try:
            return await self.exactly(length)
        except StreamEnded:
            raise FrameCut(f"0 of {length} bytes") from None

    async def _more(self) -> bool:
        try:
            got = await self._stream.read(READ_BYTES)
        except EOFError:  # libp2p's StreamEOF is one
            return False
        self._held += got
        return bool(got)


def framed(body: bytes) -> bytes:
    """`body` behind its 4-byte big-endian length."""
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body
