"""One question, one answer: length-prefixed frames on a stream of their own.

libp2p's `RequestResponse` answers every failure with a bare reset, so that a refusal cannot be
told from a lost connection; here the answer carries a status. Sizes, time and concurrency are
bounded on both sides, and a handler that raises costs its caller a refusal, never the host.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

import trio
from libp2p.abc import INetStream
from libp2p.io.exceptions import IOException
from libp2p.peer.id import ID

from cloud_gpu.protocol.adapters.admission import Turns
from cloud_gpu.protocol.adapters.frames import (
    FrameError,
    FrameReader,
    FrameTooLarge,
    framed,
)
from cloud_gpu.protocol.adapters.libp2p_host import reset_quietly
from cloud_gpu.protocol.adapters.links import Links, parse_target
from cloud_gpu.protocol.errors import PeerUnreachable, RequestRefused, RequestTimedOut
from cloud_gpu.protocol.limits import MESSAGE_BYTES_MAX

log = logging.getLogger("cloud_gpu.overlay")

ANSWER_BYTES_MAX = 10 * 2**20
PER_PEER_MAX = 16
"""Requests one peer may have open here; a client of ours queues the rest by itself."""
IN_ALL_MAX = 256
WRITE_BYTES = 256 * 1024

_READ_S = 10.0
_WRITE_S = 60.0
_REASON_BYTES_MAX = 1_024
_ANSWERED, _REFUSED = b"\x00", b"\x01"

Answer = Callable[[str, bytes], Awaitable[bytes]]
"""(peer id, payload) → answer; a `RequestRefused` it raises is passed on with its text."""


class Requests:
    """Both sides of direct requests on one host."""

    def __init__(
        self,
        links: Links,
        *,
        answer_timeout_s: float,
        heard: Callable[[ID], None],
        misbehaved: Callable[[ID, str], None],
    ) -> None:
        self._links = links
        self._answer_timeout_s = answer_timeout_s
        self._heard, self._misbehaved = heard, misbehaved
        self._turns = Turns(per_key=PER_PEER_MAX, in_all=IN_ALL_MAX)
        self._asking: WeakValueDictionary[ID, trio.Semaphore] = WeakValueDictionary()

    async def request(
        self, target: str | Sequence[str], protocol: str, payload: bytes, timeout_s: float
    ) -> bytes:
        """Ask a peer, by its id when connected or known, or by its multiaddrs.

        Raises `ValueError` above 1 MiB, `PeerUnreachable`, `RequestTimedOut`, `RequestRefused`.
        """
        if len(payload) > MESSAGE_BYTES_MAX:
            raise ValueError(
                f"a request of {len(payload)} bytes; at most {MESSAGE_BYTES_MAX} are taken,"
                " send bulk as an artefact"
            )
        peer, _ = parse_target(target)
        stream: INetStream | None = None
        semaphore = self._asking.setdefault(peer, trio.Semaphore(PER_PEER_MAX))
        try:
            with trio.fail_after(timeout_s):
                async with semaphore:
                    stream = await self._links.open_stream(target, protocol)
                    return await self._ask(peer, stream, payload)
        except trio.TooSlowError as error:
            if stream is None:
                raise PeerUnreachable(f"no connection to {peer} within {timeout_s} s") from error
            raise RequestTimedOut(
                f"{peer} did not answer {protocol} within {timeout_s} s"
            ) from error

    async def _ask(self, peer: ID, stream: INetStream, payload: bytes) -> bytes:
        frames = FrameReader(stream)
        done = False
        try:
            await write_in_pieces(stream, framed(payload))
            status = await frames.exactly(1)
            body = await frames.frame(
                ANSWER_BYTES_MAX if status == _ANSWERED else MESSAGE_BYTES_MAX
            )
            self._heard(peer)
            await stream.close()
            done = True
        except FrameTooLarge as error:
            raise RequestRefused(f"{peer} answered with {error}") from error
        except (FrameError, IOException) as error:
            raise PeerUnreachable(f"{peer} was lost before it answered: {error!r}") from error
        finally:
            if not done:
                await reset_quietly(stream)
        if status == _ANSWERED:
            return body
        raise RequestRefused(f"{peer} refused: {body[:_REASON_BYTES_MAX].decode(errors='replace')}")

    def handler(self, protocol: str, answer: Answer) -> Callable[[INetStream], Awaitable[None]]:
        """The stream handler that serves `protocol` with `answer`."""

        async def serve(stream: INetStream) -> None:
            peer = stream.muxed_conn.peer_id
            if not self._turns.begin(str(peer)):
                await self._reply(stream, _REFUSED, b"busy: too many requests at once")
                return
            try:
                with trio.fail_after(_READ_S):
                    payload = await FrameReader(stream).frame(MESSAGE_BYTES_MAX)
                self._heard(peer)
                async with _while_wanted(stream):
                    status, body = await self._answered(protocol, answer, peer, payload)
                    await self._reply(stream, status, body)
            except FrameTooLarge as error:
                self._misbehaved(peer, f"{protocol}: {error}")
                await self._reply(stream, _REFUSED, str(error).encode())
            except (FrameError, IOException, trio.TooSlowError) as error:
                log.debug("a request of %s on %s ended early: %r", peer, protocol, error)
                await reset_quietly(stream)
            finally:
                self._turns.end(str(peer))

        return serve

    async def _answered(
        self, protocol: str, answer: Answer, peer: ID, payload: bytes
    ) -> tuple[bytes, bytes]:
        try:
            with trio.fail_after(self._answer_timeout_s):
                body = await answer(str(peer), payload)
        except RequestRefused as refusal:
            return _REFUSED, str(refusal).encode()[:_REASON_BYTES_MAX]
        except trio.TooSlowError:
            return _REFUSED, f"no answer in {self._answer_timeout_s} s".encode()
        except Exception:
            log.exception("the handler of %s failed on a request of %s", protocol, peer)
            return _REFUSED, b"the handler failed"
        if len(body) > ANSWER_BYTES_MAX:
            log.error("the handler of %s answered with %d bytes", protocol, len(body))
            return _REFUSED, f"the answer has more than {ANSWER_BYTES_MAX} bytes".encode()
        return _ANSWERED, body

    async def _reply(self, stream: INetStream, status: bytes, body: bytes) -> None:
        with trio.fail_after(_WRITE_S):
            await write_in_pieces(stream, status + framed(body))
            await stream.close()


@asynccontextmanager
async def _while_wanted(stream: INetStream) -> AsyncIterator[None]:
    """Cancel the body when the one who asked ends the stream: it has given up.

    Who asks keeps its side open until it has the answer; upstream reports a reset as an end.
    """

    async def watch() -> None:
        with suppress(IOException):
            await stream.read(1)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield
        nursery.cancel_scope.cancel()


async def write_in_pieces(stream: INetStream, body: bytes) -> None:
    """Write `body` in pieces of 256 KiB, so that other streams get their turn."""
    for start in range(0, len(body), WRITE_BYTES):
        await stream.write(body[start : start + WRITE_BYTES])
