"""What this project changes in py-libp2p 0.8.1's host, swarm and muxer.

As it ships, one buggy handler ends the process, anyone may speak plaintext under any name, and a
hub is deaf after 250 visits. Each override names the upstream behaviour it mends; the tests in
`test_overlay_traps_host.py` fail when upstream repairs one or a patch here is lost. Private names
are used, so the version is pinned.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import libp2p.network.swarm as _swarm_module
import trio
from libp2p import new_host
from libp2p.abc import IMuxedConn, INetStream, ISecureConn
from libp2p.crypto.keys import KeyPair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.io.exceptions import IOException
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_PROTOCOL
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_PROTOCOL
from libp2p.stream_muxer.yamux.yamux import Yamux

from cloud_gpu.protocol.adapters.admission import Turns
from cloud_gpu.protocol.adapters.frames import StreamEnded

log = logging.getLogger("cloud_gpu.overlay")

CONNECTIONS_MAX = 1_024
STREAMS_PER_PEER_MAX = 64
STREAMS_MAX = 4_096
BUFFERED_BYTES_MAX = 64 * 2**20
"""What one connection may have unread here: four windows of 16 MiB."""

# What upstream reports of a failed dial or stream, our exceptions say; without a handler it would
# go to stderr. LIBP2P_DEBUG installs handlers of its own.
logging.getLogger("libp2p").addHandler(logging.NullHandler())

# Every dial waits 250 ms for an alternative that plain TCP does not have.
_swarm_module._HAPPY_EYEBALLS_DELAY = 0


class BoundedYamux(Yamux):
    """Yamux whose frames are written whole, and that closes on a peer who ignores its windows.

    Upstream logs the excess and keeps it, without bound.
    """

    def __init__(
        self, secured_conn: ISecureConn, peer_id: ID, is_initiator: bool | None = None
    ) -> None:
        super().__init__(secured_conn, peer_id, is_initiator)
        self._line = trio.Semaphore(1)

    async def start(self) -> None:
        try:
            await super().start()
        finally:
            close_socket(self)  # upstream forgets it when it is cancelled while cleaning up

    async def _read_data_body(self, length: int) -> bytes:
        held = sum(len(buffer) for buffer in self.stream_buffers.values())
        if held + length > BUFFERED_BYTES_MAX:
            log.info("%s sent %d unread bytes: cut", self.peer_id, held + length)
            await self._cleanup_on_error()
            raise RawConnError("more unread bytes than a connection may have")
        return await super()._read_data_body(length)

    async def _write_frame(self, data: bytes) -> None:
        # A write that upstream lets a time-out cancel leaves half a packet on the wire, which
        # breaks the connection for every stream. Here the frame's own task goes on.
        if self._nursery is None:
            await super()._write_frame(data)
            return
        await self._line.acquire()
        done, failures = trio.Event(), list[Exception]()
        try:
            self._nursery.start_soon(self._write_whole, data, done, failures)
        except RuntimeError as error:  # the connection's nursery has ended
            self._line.release()
            raise RawConnError("the connection is closed") from error
        await done.wait()
        if failures:
            raise failures[0]

    async def _write_whole(self, data: bytes, done: trio.Event, failures: list[Exception]) -> None:
        try:
            await self.secured_conn.write(data)
        except Exception as error:
            failures.append(error)
        finally:
            self._line.release()
            done.set()


def build_host(key_pair: KeyPair) -> BasicHost:
    """A host that is not listening yet, with every patch of this module applied."""
    host = new_host(
        key_pair=key_pair,
        # Upstream also offers plaintext, where a peer is whoever it says it is.
        sec_opt={
            NOISE_PROTOCOL: NoiseTransport(
                key_pair, noise_privkey=create_noise_key_pair().private_key
            )
        },
        muxer_opt={TProtocol(YAMUX_PROTOCOL): BoundedYamux},
        connection_config=ConnectionConfig(
            max_connections=CONNECTIONS_MAX,
            min_connections=0,  # what is kept free for outbound is refused to inbound
            low_watermark=0,
            high_watermark=CONNECTIONS_MAX,
            inbound_stream_protocol_negotiation_timeout=5,
            outbound_stream_protocol_negotiation_timeout=10,
        ),
        disable_identify_address_discovery=True,  # peers must not choose what we advertise
    )
    assert isinstance(host, BasicHost)
    swarm = host.get_network()
    assert isinstance(swarm, Swarm)
    swarm.retry_config = RetryConfig(max_retries=0)  # the keep-connected loop tries again
    # One limit for all peers' streams: a single peer could take every place. Ours is per peer.
    swarm._resource_manager = swarm._stream_semaphore = None
    swarm.set_stream_handler(_contained(host._swarm_stream_handler))
    for owner, name, ours in (
        (swarm, "_do_handle_inbound_connection", _inbound_holder(swarm)),
        (swarm.upgrader.muxer_multistream, "new_conn", _bounded_muxer(swarm)),
        (swarm.auto_connector, "start", _nothing),
    ):
        assert hasattr(owner, name), f"py-libp2p has no {name} any more"
        setattr(owner, name, ours)
    return host


async def _nothing() -> None:
    """Not to start: with fewer than 200 connections upstream dials whoever it ever heard of."""


def _bounded_muxer(swarm: Swarm) -> Callable[[ISecureConn, ID], Awaitable[IMuxedConn]]:
    """Upstream builds its own Yamux, whatever class `muxer_opt` names."""
    upstream = swarm.upgrader.muxer_multistream

    async def new_conn(connection: ISecureConn, peer: ID) -> IMuxedConn:
        await upstream._selector.select(
            connection, connection.is_initiator, upstream.negotiate_timeout
        )
        return BoundedYamux(connection, peer, is_initiator=connection.is_initiator)

    return new_conn


def _contained(
    handler: Callable[[INetStream], Awaitable[None]],
) -> Callable[[INetStream], Awaitable[None]]:
    """Upstream: an exception in any stream handler, negotiation included, ends the host."""
    turns = Turns(per_key=STREAMS_PER_PEER_MAX, in_all=STREAMS_MAX)

    async def contained(stream: INetStream) -> None:
        peer = str(stream.muxed_conn.peer_id)
        if not turns.begin(peer):
            log.info("%s has %d streams open: one more refused", peer, STREAMS_PER_PEER_MAX)
            await reset_quietly(stream)
            return
        try:
            await handler(stream)
        except (StreamEnded, IOException, RawConnError) as error:
            log.debug("a stream of %s ended: %r", peer, error)
            await reset_quietly(stream)
        except Exception as error:
            log.warning("a stream of %s failed: %r", peer, error)
            await reset_quietly(stream)
        finally:
            turns.end(peer)

    return contained


def _inbound_holder(swarm: Swarm) -> Callable[..., Awaitable[None]]:
    """Upstream holds one of 250 inbound places until the host stops, not until the peer leaves.

    It is also the task and the record that leak for every connection ever accepted.
    """

    async def hold(read_write_closer: Any, maddr: Any, _failure: Any) -> None:
        connection = RawConnection(read_write_closer, False)
        try:
            muxed = await swarm.upgrade_inbound_raw_conn(connection, maddr)
            assert isinstance(muxed, Yamux)
            await muxed.event_closed.wait()
        except Exception as error:
            log.debug("an inbound connection failed: %r", error)
        finally:
            with suppress(Exception), briefly_shielded():
                await connection.close()

    return hold


def briefly_shielded(seconds: float = 1) -> trio.CancelScope:
    """Room for a last write while being cancelled, and an end to it if the peer does not read."""
    return trio.CancelScope(shield=True, deadline=trio.current_time() + seconds)


async def reset_quietly(stream: INetStream) -> None:
    """Give up a stream; it may be gone already."""
    with suppress(Exception), briefly_shielded():
        await stream.reset()


def close_socket(connection: IMuxedConn) -> None:
    """Close the socket under a connection at once; what is written to it fails from then on."""
    layer: Any = connection
    for name in ("secured_conn", "conn", "read_writer", "read_write_closer", "stream", "stream"):
        layer = getattr(layer, name, None)
    if layer is None:
        log.warning("no socket found under the connection to %s", connection.peer_id)
    else:
        layer.socket.close()


async def cut(host: BasicHost, peer: ID) -> None:
    """End every connection to a peer now.

    The socket goes first: a stopped peer does not read, so upstream's farewell waits for ever.
    """
    for connection in host.get_network().get_connections(peer):
        close_socket(connection.muxed_conn)
    with trio.move_on_after(2):
        await host.disconnect(peer)
