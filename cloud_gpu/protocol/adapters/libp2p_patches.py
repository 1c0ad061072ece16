"""Everything this project changes in py-libp2p 0.8.1, and nothing else.

As it ships, one hostile or merely buggy packet ends the process, peers outside a mesh hear
nothing, and bursts vanish. Each override names the upstream behaviour it mends; the tests in
`test_overlay_traps.py` fail when upstream repairs one or a patch here is lost. Private names are
used, so the version is pinned.
"""

from __future__ import annotations

import logging
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import libp2p.network.swarm as _swarm_module
import trio
from google.protobuf.message import DecodeError
from libp2p import new_host
from libp2p.abc import IHost, IMuxedConn, INetStream, ISecureConn
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
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.pubsub.validators import signature_validator
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_PROTOCOL
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX_PROTOCOL
from libp2p.stream_muxer.yamux.yamux import Yamux

from cloud_gpu.protocol.adapters.admission import Turns
from cloud_gpu.protocol.adapters.frames import FrameError, FrameReader, StreamEnded

log = logging.getLogger("cloud_gpu.overlay")

GOSSIP_PROTOCOL = TProtocol("/meshsub/1.1.0")
"""1.2's IDONTWANT raised p99 from 47 ms to 1.9 s with five processes."""

OUTBOUND_RPCS_MAX = 1_024
CONNECTIONS_MAX = 1_024
STREAMS_PER_PEER_MAX = 64
STREAMS_MAX = 4_096
BUFFERED_BYTES_MAX = 64 * 2**20
"""What one connection may have unread here: four windows of 16 MiB."""

_MESSAGES_PER_RPC_MAX = 4_096
_SUBSCRIPTIONS_PER_RPC_MAX = 256
_SEQUENCE_BYTES = 8

# What upstream reports of a failed dial or stream, our exceptions say; without a handler it would
# go to stderr. LIBP2P_DEBUG installs handlers of its own.
logging.getLogger("libp2p").addHandler(logging.NullHandler())

# Every dial waits 250 ms for an alternative that plain TCP does not have.
_swarm_module._HAPPY_EYEBALLS_DELAY = 0


class GossipInlet(Protocol):
    """What the overlay decides about gossip; every call is synchronous and does not raise."""

    def heard(self, peer: ID) -> None: ...
    def misbehaved(self, peer: ID, what: str) -> None: ...
    def is_banned(self, peer: ID) -> bool: ...
    def pause_s(self, forwarder: ID) -> float: ...
    def is_admitted(self, originator: bytes, sequence_ns: int) -> bool: ...
    def deliver(self, topic: str, originator: ID, payload: bytes) -> None: ...


class RoomyQueues(dict[ID, RpcQueue]):
    """Upstream's 32 places drop the tail of any burst, without a word."""

    def __setitem__(self, peer: ID, queue: RpcQueue) -> None:
        queue._queue.max_size = OUTBOUND_RPCS_MAX
        super().__setitem__(peer, queue)


class ContainedPubsub(Pubsub):
    """Pubsub in which a peer can break nothing but its own stream."""

    def __init__(
        self,
        host: IHost,
        router: GossipSub,
        *,
        inlet: GossipInlet,
        topics: frozenset[str],
        payload_bytes_max: int,
    ) -> None:
        super().__init__(host, router, allowed_topics=topics)
        self._inlet = inlet
        self._payload_bytes_max = payload_bytes_max
        self._writing: WeakKeyDictionary[INetStream, trio.Lock] = WeakKeyDictionary()
        self.peer_queues = RoomyQueues()

    def _next_seqno(self) -> bytes:
        # Upstream counts up from the second it started in, so a busy node that restarts uses
        # its numbers again and is not heard. Time also lets receivers tell a replay.
        self.counter = max(self.counter + 1, time.time_ns())
        return self.counter.to_bytes(_SEQUENCE_BYTES, "big")

    async def stream_handler(self, stream: INetStream) -> None:
        # Upstream lets a DecodeError through, which ends the host.
        peer = stream.muxed_conn.peer_id
        try:
            await self.continuously_read_stream(stream)
            return
        except (IOException, RawConnError) as error:
            log.debug("gossip from %s ended: %s", peer, error)
        except Exception as error:
            log.info("gossip from %s is not gossip: %r", peer, error)
            self._inlet.misbehaved(peer, f"gossip stream: {error!r}")
        await reset_quietly(stream)
        self._handle_dead_peer(peer)

    async def continuously_read_stream(self, stream: INetStream) -> None:
        # Upstream reads lengths byte by byte and starts a task per message; here a peer's
        # messages are taken one after another, so a flood holds up the one who sends it.
        peer = stream.muxed_conn.peer_id
        frames = FrameReader(stream)
        while self.manager.is_running:
            try:
                raw = await frames.varint_frame(self.max_inbound_rpc_size)
            except StreamEnded:
                return
            if self._inlet.is_banned(peer):
                raise FrameError("the peer is banned")
            self._inlet.heard(peer)
            rpc = rpc_pb2.RPC()
            try:
                rpc.ParseFromString(raw)
            except DecodeError as error:
                raise FrameError("not a gossip RPC") from error
            await self._take(peer, rpc)

    async def _take(self, peer: ID, rpc: rpc_pb2.RPC) -> None:
        if len(rpc.publish) > _MESSAGES_PER_RPC_MAX:
            raise FrameError(f"{len(rpc.publish)} messages in one RPC")
        if len(rpc.subscriptions) > _SUBSCRIPTIONS_PER_RPC_MAX:
            raise FrameError(f"{len(rpc.subscriptions)} subscriptions in one RPC")
        for message in rpc.publish:
            if self._is_subscribed_to_msg(message):
                while pause_s := self._inlet.pause_s(peer):  # noqa: ASYNC110  # a known time
                    await trio.sleep(pause_s)
                await self.push_msg(peer, message)
        for subscription in rpc.subscriptions:
            self.handle_subscription(peer, subscription)
        if rpc.HasField("control"):
            # We dial addresses from signed asks and settings; a record in every RPC only costs
            # a signature check each.
            rpc.ClearField("senderRecord")
            await self.router.handle_rpc(rpc, peer)

    async def push_msg(self, msg_forwarder: ID, msg: rpc_pb2.Message) -> None:
        # Upstream raises on a junk key, takes a raising validator for the end of the service,
        # and remembers a message only after awaiting its validators.
        is_own = msg_forwarder == self.my_id
        if not is_own and not self._is_worth_taking(msg_forwarder, msg):
            return
        self._mark_msg_seen(msg)
        if not is_own:
            self._inlet.deliver(msg.topicIDs[0], ID(msg.from_id), msg.data)
        await self.router.publish(msg_forwarder, msg)

    def _is_worth_taking(self, forwarder: ID, msg: rpc_pb2.Message) -> bool:
        if self._is_msg_seen(msg) or msg.from_id == self.my_id.to_bytes():
            return False
        is_formed = (
            len(msg.topicIDs) == 1
            and msg.topicIDs[0] in self.topic_ids
            and len(msg.seqno) == _SEQUENCE_BYTES
            and len(msg.data) <= self._payload_bytes_max
        )
        if not is_formed or not is_signed_by_originator(msg):
            # An honest peer checks before it forwards, so this one is to blame.
            self._inlet.misbehaved(forwarder, "forwarded a malformed or forged message")
            return False
        if self._inlet.is_admitted(msg.from_id, int.from_bytes(msg.seqno, "big")):
            return True
        # Seen, so that nobody's IHAVE makes us ask for it again.
        self._mark_msg_seen(msg)
        return False

    async def write_msg(self, stream: INetStream, rpc_msg: rpc_pb2.RPC) -> bool:
        # A catch-up and the queue may write at once; above one yamux frame they would mix.
        async with self._writing.setdefault(stream, trio.Lock()):
            return await super().write_msg(stream, rpc_msg)


def is_signed_by_originator(msg: rpc_pb2.Message) -> bool:
    """Whether the signature is the originator's; upstream's check raises on a junk key."""
    try:
        return signature_validator(msg)
    except Exception:
        return False


class RepairingGossipSub(GossipSub):
    """GossipSub whose lazy repair also reaches peers in PRUNE back-off."""

    def __init__(self, *, degree_high: int, heartbeat_s: float) -> None:
        super().__init__(
            [GOSSIP_PROTOCOL],
            degree=6,
            degree_low=4,
            degree_high=degree_high,
            heartbeat_interval=heartbeat_s,  # type: ignore[arg-type]  # only ever slept for
            adaptive_gossip_enabled=False,  # "poor health" stretches the heartbeat to 30 s
            spam_protection_enabled=False,  # 10 a second per forwarder, the publisher included
            eclipse_protection_enabled=False,  # wants three addresses; we limit by originator
        )
        # Weights are sign-flipped against the specification; `Conduct` cuts and bans instead.
        self.scorer = None

    def gossip_heartbeat(self) -> defaultdict[ID, dict[str, list[bytes]]]:
        # Upstream announces (IHAVE) to nobody in back-off: a pruned leaf is deaf for a minute.
        announced: defaultdict[ID, dict[str, list[bytes]]] = defaultdict(dict)
        assert self.pubsub is not None
        for topic in self.mesh.keys() | self.fanout.keys():
            recent = list(self.mcache.window(topic))
            in_mesh = self.mesh.get(topic, set())
            outside = [
                peer
                for peer in self.pubsub.peer_topics.get(topic, ())
                if peer in self.peer_protocol and peer not in in_mesh
            ]
            if recent and outside:
                for peer in random.sample(outside, min(len(outside), max(6, len(outside) // 4))):
                    announced[peer][topic] = recent
        return announced

    async def heartbeat(self) -> None:
        while True:
            try:
                await super().heartbeat()
            except Exception:
                log.warning("a gossip heartbeat failed", exc_info=True)
            await trio.sleep(self.heartbeat_interval)


class BoundedYamux(Yamux):
    """Yamux that closes a connection whose peer ignores the windows it was given.

    Upstream logs the excess and keeps it, without bound.
    """

    async def _read_data_body(self, length: int) -> bytes:
        held = sum(len(buffer) for buffer in self.stream_buffers.values())
        if held + length > BUFFERED_BYTES_MAX:
            log.info("%s sent %d unread bytes: cut", self.peer_id, held + length)
            await self._cleanup_on_error()
            raise RawConnError("more unread bytes than a connection may have")
        return await super()._read_data_body(length)


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


async def cut(host: BasicHost, peer: ID) -> None:
    """End every connection to a peer now.

    The socket goes first: a stopped peer does not read, so upstream's farewell waits for ever.
    """
    for connection in host.get_network().get_connections(peer):
        layer: Any = connection.muxed_conn
        for name in ("secured_conn", "conn", "read_writer", "read_write_closer", "stream"):
            layer = getattr(layer, name, layer)
        stream = getattr(layer, "stream", layer)
        if isinstance(stream, trio.SocketStream):
            await trio.aclose_forcefully(stream)
        else:
            log.warning("no socket found under the connection to %s", peer)
    with trio.move_on_after(2):
        await host.disconnect(peer)
