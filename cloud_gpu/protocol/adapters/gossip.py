"""The overlay: one libp2p host per process for gossip, requests and streams, on trio.

`open_overlay` starts it; whatever a peer sends, the host stays up. Orders and documents are
opaque bytes here: signatures on them are the parties' business, the libp2p key only says which
peer a message came from.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Self

import trio
from libp2p.abc import INetStream
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.peer.id import ID
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from cloud_gpu.protocol.adapters.admission import Conduct, Freshness, TokenBuckets
from cloud_gpu.protocol.adapters.libp2p_gossip import ContainedPubsub, RepairingGossipSub
from cloud_gpu.protocol.adapters.libp2p_host import briefly_shielded, build_host
from cloud_gpu.protocol.adapters.links import PING_PROTOCOL, Links, Pulse, parse_target
from cloud_gpu.protocol.adapters.requests import Answer, Requests
from cloud_gpu.protocol.errors import PeerUnreachable
from cloud_gpu.protocol.limits import GOSSIP_BYTES_MAX

log = logging.getLogger("cloud_gpu.overlay")

_OWN = b"own"
_FAREWELL_S = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlaySettings:
    """How one peer takes part; seconds and bytes."""

    topics: tuple[str, ...]
    """Everything this peer hears and may publish."""

    listen: str = "/ip4/127.0.0.1/tcp/0"
    bootstrap: tuple[str, ...] = ()
    """Multiaddrs that end in /p2p/<peer id>; kept connected for ever."""

    degree_high: int = 64
    """Mesh size from which peers are pruned; a pruned leaf of a star hears late."""

    gossip_heartbeat_s: float = 1.0
    heartbeat_s: float = 2.0
    """A peer silent for so long is pinged,"""

    silence_s: float = 5.0
    """and cut when it does not answer for so long."""

    dial_timeout_s: float = 5.0
    redial_s: float = 5.0
    """How often a peer to keep connected is dialled while it is not, give or take a fifth."""

    answer_timeout_s: float = 120.0
    rate_per_originator: float = 20.0
    """Messages a second taken from one originator, forwarded by whomever."""

    burst_per_originator: int = 256
    rate_per_forwarder: float = 500.0
    """Messages a second read from one connection; above it the sender is held up."""

    publish_rate: float = 100.0
    payload_bytes_max: int = GOSSIP_BYTES_MAX
    held_messages_max: int = 4_096
    """Messages a topic's reader may be behind; then the oldest is dropped."""

    replay_behind_s: float = 110.0
    """Below the 120 s for which ids of seen messages are kept."""

    clock_skew_s: float = 900.0
    """How far an originator's clock may be from ours."""

    def __post_init__(self) -> None:
        if self.silence_s < self.heartbeat_s:
            raise ValueError("silence_s must not be shorter than heartbeat_s")
        Multiaddr(self.listen)
        for address in self.bootstrap:
            parse_target((address,))


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipMessage:
    """One message, once. `originator` is the peer id that signed it, not who forwarded it."""

    topic: str
    originator: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerView:
    """A connected peer; seconds."""

    peer_id: str
    silent_s: float
    round_trip_s: float | None


@dataclass(slots=True, kw_only=True)
class OverlayCounters:
    """What happened since the start."""

    published: int = 0
    delivered: int = 0
    dropped_reader_behind: int = 0
    over_rate: int = 0
    stale: int = 0
    misbehaviour: int = 0
    banned: int = 0


class _Inlet:
    """Decides what gossip gets in, and hands it to the readers."""

    def __init__(self, settings: OverlaySettings, counters: OverlayCounters) -> None:
        self._counters = counters
        self._originators = TokenBuckets(
            rate_s=settings.rate_per_originator, burst=settings.burst_per_originator
        )
        self._forwarders = TokenBuckets(
            rate_s=settings.rate_per_forwarder, burst=int(settings.rate_per_forwarder) or 1
        )
        self._freshness = Freshness(behind_s=settings.replay_behind_s, skew_s=settings.clock_skew_s)
        self._conduct = Conduct()
        self._channels = {
            topic: trio.open_memory_channel[GossipMessage](settings.held_messages_max)
            for topic in settings.topics
        }
        self.pulse: Pulse | None = None

    def reader(self, topic: str) -> trio.MemoryReceiveChannel[GossipMessage]:
        return self._channels[topic][1].clone()

    def heard(self, peer: ID) -> None:
        if self.pulse is not None:
            self.pulse.heard(peer)

    def misbehaved(self, peer: ID, what: str) -> None:
        self._counters.misbehaviour += 1
        log.info("%s misbehaves: %s", peer, what)
        if self._conduct.strike(str(peer), trio.current_time()):
            self._counters.banned += 1
            log.warning("%s is banned for a while, last for: %s", peer, what)

    def is_banned(self, peer: ID) -> bool:
        return self._conduct.is_banned(str(peer), trio.current_time())

    def pause_s(self, forwarder: ID) -> float:
        return self._forwarders.wait_s(forwarder.to_bytes(), trio.current_time())

    def is_admitted(self, originator: bytes, sequence_ns: int) -> bool:
        if not self._freshness.is_fresh(originator, sequence_ns, time.time_ns()):
            self._counters.stale += 1
            return False
        if not self._originators.take(originator, trio.current_time()):
            self._counters.over_rate += 1
            return False
        return True

    def deliver(self, topic: str, originator: ID, payload: bytes) -> None:
        message = GossipMessage(topic=topic, originator=str(originator), payload=payload)
        send, receive = self._channels[topic]
        while True:
            try:
                send.send_nowait(message)
            except trio.WouldBlock:
                # A newer ask replaces an older one: better to lose the old.
                receive.receive_nowait()
                self._counters.dropped_reader_behind += 1
            else:
                self._counters.delivered += 1
                return


class Overlay:
    """A running peer. Made by `open_overlay`."""

    def __init__(self, settings: OverlaySettings, host: BasicHost, router: RepairingGossipSub):
        self.counters = OverlayCounters()
        self._settings, self._host = settings, host
        self._inlet = _Inlet(settings, self.counters)
        self._pubsub = ContainedPubsub(
            host,
            router,
            inlet=self._inlet,
            topics=frozenset(settings.topics),
            payload_bytes_max=settings.payload_bytes_max,
        )
        self._published_at = -math.inf
        self._pace = TokenBuckets(rate_s=settings.publish_rate, burst=256)
        self._links = Links(
            host, dial_timeout_s=settings.dial_timeout_s, redial_s=settings.redial_s
        )
        self._pulse = self._inlet.pulse = Pulse(
            self._links,
            heartbeat_s=settings.heartbeat_s,
            silence_s=settings.silence_s,
            is_banned=self._inlet.is_banned,
        )
        self._requests = Requests(
            self._links,
            answer_timeout_s=settings.answer_timeout_s,
            heard=self._inlet.heard,
            misbehaved=self._inlet.misbehaved,
        )
        self.peer_id = str(host.get_id())
        self.serve_stream(PING_PROTOCOL, self._pulse.echo)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Multiaddrs at which peers can dial this one, each ending in /p2p/<peer id>."""
        return tuple(str(address) for address in self._host.get_addrs())

    async def publish(self, topic: str, payload: bytes) -> None:
        """Send to everyone on the topic, at a measured pace.

        Raises `ValueError` for an unknown topic or a payload above `payload_bytes_max`.
        """
        if topic not in self._settings.topics:
            raise ValueError(f"{topic!r} is not one of this peer's topics {self._settings.topics}")
        if len(payload) > self._settings.payload_bytes_max:
            raise ValueError(
                f"a gossip message of {len(payload)} bytes; at most"
                f" {self._settings.payload_bytes_max} are taken, send bulk as an artefact"
            )
        while pause_s := self._pace.wait_s(_OWN, trio.current_time()):  # noqa: ASYNC110
            await trio.sleep(pause_s)
        await self._pubsub.publish(topic, payload)
        self.counters.published += 1
        self._published_at = trio.current_time()

    def messages(self, topic: str) -> trio.MemoryReceiveChannel[GossipMessage]:
        """What others publish on the topic since the start, each message once.

        Several readers share the messages: give each topic one. Raises `KeyError` for a topic
        that is not in the settings.
        """
        return self._inlet.reader(topic)

    def serve(self, protocol: str, answer: Answer) -> None:
        """Answer requests on `protocol` (a path such as `/cloud-gpu/offers/1`)."""
        self.serve_stream(protocol, self._requests.handler(protocol, answer))

    async def request(
        self, peer: str | Sequence[str], protocol: str, payload: bytes, timeout_s: float = 10.0
    ) -> bytes:
        """Ask one peer: its id when it is connected or was dialled before, else its multiaddrs.

        Raises `ValueError` above 1 MiB, `PeerUnreachable`, `RequestTimedOut`, `RequestRefused`.
        """
        return await self._requests.request(peer, protocol, payload, timeout_s)

    def serve_stream(self, protocol: str, handler: Callable[[INetStream], Awaitable[None]]) -> None:
        """Hand raw streams to `handler`; what it raises resets the stream and is logged."""
        self._host.set_stream_handler(TProtocol(protocol), handler)

    async def open_stream(self, peer: str | Sequence[str], protocol: str) -> INetStream:
        """A raw stream; bound it by a deadline. Raises `PeerUnreachable`, `RequestRefused`."""
        return await self._links.open_stream(peer, protocol)

    async def keep_connected(self, addresses: Sequence[str]) -> None:
        """Dial each peer whenever it is not connected, every `redial_s`. Never returns."""
        await self._links.keep_connected(addresses)

    def peers(self) -> tuple[PeerView, ...]:
        """Who is connected now."""
        return tuple(
            PeerView(
                peer_id=str(peer),
                silent_s=self._pulse.silent_s(peer),
                round_trip_s=self._pulse.round_trip_s(peer),
            )
            for peer in self._links.connected()
        )

    async def wait_for_peers(self, topic: str, count: int, timeout_s: float = 10.0) -> None:
        """Until `count` peers are known to be on the topic. Raises `PeerUnreachable`."""
        deadline = trio.current_time() + timeout_s
        while (found := len(self._pubsub.peer_topics.get(topic, ()))) < count:
            if trio.current_time() >= deadline:
                raise PeerUnreachable(f"{found} of {count} peers on {topic!r} after {timeout_s} s")
            await trio.sleep(0.02)

    def misbehaved(self, peer: str, what: str) -> None:
        """Report what no honest peer does; a few times within a minute ban it for another."""
        self._inlet.misbehaved(parse_target(peer)[0], what)

    async def disconnect(self, peer: str) -> None:
        """End every connection to a peer now."""
        await self._links.cut(parse_target(peer)[0])

    async def _stop(self) -> None:
        with trio.move_on_after(_FAREWELL_S):
            while not self._pubsub.is_drained:  # noqa: ASYNC110  # bounded, and rare
                await trio.sleep(0.01)
            if trio.current_time() - self._published_at < _FAREWELL_S:
                # A closed connection takes with it what its other end had not read yet.
                await trio.sleep(_FAREWELL_S / 2)
        async with trio.open_nursery() as nursery:
            for peer in self._links.connected():
                nursery.start_soon(self._links.cut, peer)
        await self._host.close()

    @classmethod
    @asynccontextmanager
    async def _running(cls, settings: OverlaySettings, secret: bytes) -> AsyncIterator[Self]:
        router = RepairingGossipSub(
            degree_high=settings.degree_high, heartbeat_s=settings.gossip_heartbeat_s
        )
        host = build_host(create_new_key_pair(secret))
        overlay = cls(settings, host, router)
        listen = Multiaddr(settings.listen)
        _require_free_port(listen)
        async with AsyncExitStack() as stack:
            # Services outside and the host inside: gossip that arrives before Pubsub runs, or
            # after it stopped, would end the process.
            await stack.enter_async_context(background_trio_service(overlay._pubsub))
            await stack.enter_async_context(background_trio_service(router))
            await overlay._pubsub.wait_until_ready()
            await stack.enter_async_context(host.run(listen_addrs=[listen]))
            if not host.get_transport_addrs():
                raise OSError(f"cannot listen on {settings.listen}")
            for topic in settings.topics:
                await overlay._pubsub.subscribe(topic)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(overlay._pulse.watch)
                nursery.start_soon(overlay._links.keep_connected, settings.bootstrap)
                try:
                    yield overlay
                finally:
                    nursery.cancel_scope.cancel()
                    with briefly_shielded(4):
                        await overlay._stop()


@asynccontextmanager
async def open_overlay(settings: OverlaySettings, secret: bytes) -> AsyncIterator[Overlay]:
    """Run a peer whose identity is the 32-byte secp256k1 `secret` (a node or session key).

    What the body raises leaves bare, not wrapped in exception groups. Raises `OSError` when the
    address to listen on is taken or not ours.
    """
    failure: Exception | None = None
    async with Overlay._running(settings, secret) as overlay:
        try:
            yield overlay
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


def _require_free_port(listen: Multiaddr) -> None:
    """Upstream listens with SO_REUSEPORT: a second process would silently share the port."""
    port = int(listen.value_for_protocol("tcp") or 0)
    if port:
        version = "ip6" if "ip6" in {protocol.name for protocol in listen.protocols()} else "ip4"
        family = socket.AF_INET6 if version == "ip6" else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((listen.value_for_protocol(version) or "", port))
