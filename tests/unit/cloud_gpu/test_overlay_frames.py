"""Frames are cut out of short reads, and refused before they are buffered."""

import pytest

from cloud_gpu.protocol.adapters.frames import (
    FrameCut,
    FrameError,
    FrameReader,
    FrameTooLarge,
    StreamEnded,
    framed,
)


class Pieces:
    """A stream that gives what it has in the pieces it was made of, then ends."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    async def read(self, n: int | None = None, /) -> bytes:
        if not self.pieces:
            raise EOFError
        return self.pieces.pop(0)

    async def write(self, data: bytes, /) -> None:
        raise AssertionError("a reader does not write")


def in_single_bytes(body: bytes) -> Pieces:
    return Pieces(*(body[i : i + 1] for i in range(len(body))))


async def test_frames_survive_any_cut_of_the_stream() -> None:
    written = framed(b"one") + framed(b"") + framed(b"three" * 100)
    for stream in (Pieces(written), in_single_bytes(written)):
        frames = FrameReader(stream)
        assert [await frames.frame(1_000) for _ in range(3)] == [b"one", b"", b"three" * 100]
        with pytest.raises(StreamEnded):
            await frames.frame(1_000)


async def test_varint_frames_have_lengths_of_one_to_ten_bytes() -> None:
    frames = FrameReader(in_single_bytes(b"\x01a" + b"\xac\x02" + b"b" * 300))
    assert await frames.varint_frame(300) == b"a"
    assert await frames.varint_frame(300) == b"b" * 300
    with pytest.raises(FrameError, match="more than 10 bytes"):
        await FrameReader(Pieces(b"\x80" * 11)).varint_frame(1)


async def test_a_frame_that_is_too_large_is_refused_by_its_length_alone() -> None:
    stream = Pieces((2**31).to_bytes(4, "big"), b"never read")
    with pytest.raises(FrameTooLarge, match="2147483648 bytes, at most 10"):
        await FrameReader(stream).frame(10)
    assert stream.pieces == [b"never read"]


@pytest.mark.parametrize("cut", [b"\x00\x00", b"\x00\x00\x00\x05", b"\x00\x00\x00\x05abc"])
async def test_a_stream_that_ends_inside_a_frame_is_told_from_one_that_ends(cut: bytes) -> None:
    with pytest.raises(FrameCut):
        await FrameReader(Pieces(cut)).frame(10)


async def test_a_varint_cut_in_its_length_is_told_too() -> None:
    with pytest.raises(FrameCut):
        await FrameReader(Pieces(b"\x80")).varint_frame(10)


async def test_some_gives_what_is_there_and_no_more_than_asked() -> None:
    frames = FrameReader(Pieces(b"abcdef", b"g"))
    assert [await frames.some(4), await frames.some(4), await frames.some(4)] == [
        b"abcd",
        b"ef",
        b"g",
    ]
    with pytest.raises(StreamEnded):
        await frames.some(4)
