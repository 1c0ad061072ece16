"""Connections to peers: dialling, keeping them, and noticing one that stopped.

A killed peer is seen at once by its socket; a stopped, hung or unplugged one only by asking, so
every connected peer that has been silent is pinged and cut when it does not answer.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import trio
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo, info_from_p2p_addr
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from cloud_gpu.protocol.adapters.frames import FrameError, FrameReader
from cloud_gpu.protocol.adapters.libp2p_host import cut, reset_quietly
from cloud_gpu.protocol.errors import PeerUnreachable, RequestRefused

log = logging.getLogger("cloud_gpu.overlay")

PING_PROTOCOL = "/cloud-gpu/ping/1"
_NONCE_BYTES = 8
_ADDRESSES_MAX = 8
_KNOWN_PEERS_MAX = 8_192


def parse_target(target: str | Sequence[str]) -> tuple[ID, tuple[Multiaddr, ...]]:
    """A peer id, one multiaddr or several of one peer, taken apart. Raises `PeerUnreachable`."""
    written = (target,) if isinstance(target, str) else tuple(target)
    try:
        if isinstance(target, str) and not target.startswith("/"):
            return ID.from_string(target), ()
        infos = [info_from_p2p_addr(Multiaddr(text)) for text in written[:_ADDRESSES_MAX]]
    except Exception as error:  # multiaddr and base58 raise a dozen kinds
        raise PeerUnreachable(f"{written} is not a peer's address: {error}") from error
    if len({info.peer_id for info in infos}) != 1:
        raise PeerUnreachable(f"{written} does not name exactly one peer")
    return infos[0].peer_id, tuple(address for info in infos for address in info.addrs)


class Links:
    """Connections by peer id; remembers the addresses it was given."""

    def __init__(self, host: BasicHost, *, dial_timeout_s: float, redial_s: float) -> None:
        self._host = host
        swarm = host.get_network()
        assert isinstance(swarm, Swarm)
        self._swarm = swarm
        self._dial_timeout_s, self._redial_s = dial_timeout_s, redial_s
        self._known: dict[ID, tuple[Multiaddr, ...]] = {}
        self._dialling: WeakValueDictionary[ID, trio.Lock] = WeakValueDictionary()

    def is_connected(self, peer: ID) -> bool:
        return any(not connection.is_closed for connection in self._swarm.get_connections(peer))

    def connected(self) -> tuple[ID, ...]:
        return tuple(peer for peer in self._swarm.get_connections_map() if self.is_connected(peer))

    async def reach(self, target: str | Sequence[str]) -> ID:
        """The peer's id, with a connection to it. Raises `PeerUnreachable`."""
        peer, addresses = parse_target(target)
        if addresses:
            if len(self._known) >= _KNOWN_PEERS_MAX and peer not in self._known:
                del self._known[next(iter(self._known))]
            self._known[peer] = addresses
        if self.is_connected(peer):
            return peer
        if peer == self._host.get_id():
            raise PeerUnreachable(f"{peer} is this peer itself")
        addresses = self._known.get(peer, ())
        if not addresses:
            raise PeerUnreachable(f"{peer} is not connected and none of its addresses is known")
        lock = self._dialling.setdefault(peer, trio.Lock())
        async with lock:
            if not self.is_connected(peer):
                await self._dial(peer, addresses)
        return peer

    async def _dial(self, peer: ID, addresses: tuple[Multiaddr, ...]) -> None:
        failure = "no answer in time"
        store = self._host.get_peerstore()
        for address in addresses:
            # Upstream remembers a failed dial for 60 s, and of all TCP addresses it knows it
            # tries one: an old one when the peer has moved.
            self._swarm.unblock_peer(peer)
            if peer in store.peer_ids():
                store.clear_addrs(peer)
            try:
                with trio.move_on_after(self._dial_timeout_s):
                    await self._host.connect(PeerInfo(peer, [address]))
                    if self.is_connected(peer):
                        return
            except Exception as error:
                failure = str(error.__cause__ or error)
        tried = ", ".join(str(address) for address in addresses)
        raise PeerUnreachable(f"{peer} does not answer at {tried}: {failure}")

    async def open_stream(self, target: str | Sequence[str], protocol: str) -> INetStream:
        """A new stream. Raises `PeerUnreachable`, or `RequestRefused` for an unknown protocol."""
        for is_last in (False, True):
            peer = await self.reach(target)
            try:
                return await self._host.new_stream(peer, [TProtocol(protocol)])
            except Exception as error:
                why = str(error.__cause__ or error)  # upstream wraps it in a general error
                if "not supported" in why:
                    raise RequestRefused(f"{peer} does not serve {protocol}") from error
                if is_last or "timeout" in why or peer not in self._known:
                    raise PeerUnreachable(f"the connection to {peer} failed: {why}") from error
            # The peer went and its socket has not said so yet: dial again, once.
            await self.cut(peer)
        raise AssertionError("the last try returns or raises")

    async def keep_connected(self, addresses: Sequence[str]) -> None:
        """Dial each peer whenever it is not connected, every `redial_s`, for ever."""
        by_peer: dict[ID, list[str]] = {}
        for address in addresses:
            by_peer.setdefault(parse_target(address)[0], []).append(address)
        by_peer.pop(self._host.get_id(), None)
        async with trio.open_nursery() as nursery:
            for of_one_peer in by_peer.values():
                nursery.start_soon(self._keep, of_one_peer)

    async def _keep(self, addresses: list[str]) -> None:
        while True:
            try:
                await self.reach(addresses)
            except PeerUnreachable as error:
                log.debug("will dial again: %s", error)
            await trio.sleep(self._redial_s * random.uniform(0.8, 1.2))  # noqa: S311  # jitter

    async def cut(self, peer: ID) -> None:
        await cut(self._host, peer)


class Pulse:
    """Pings silent peers and cuts those that do not answer.

    A peer is pinged after `heartbeat_s` without a sign of life and cut when `silence_s` pass
    without an answer; whatever it sends on any stream counts as one.
    """

    def __init__(
        self,
        links: Links,
        *,
        heartbeat_s: float,
        silence_s: float,
        is_banned: Callable[[ID], bool],
    ) -> None:
        self._links, self._is_banned = links, is_banned
        self._heartbeat_s, self._silence_s = heartbeat_s, silence_s
        self._heard: dict[ID, float] = {}
        self._unanswered_since: dict[ID, float] = {}
        self._round_trip_s: dict[ID, float] = {}
        self._streams: dict[ID, tuple[INetStream, FrameReader]] = {}
        self._asking: set[ID] = set()
        self._cutting: set[ID] = set()

    def heard(self, peer: ID) -> None:
        """Note a sign of life."""
        if peer in self._heard:
            self._heard[peer] = trio.current_time()
            self._unanswered_since.pop(peer, None)

    def silent_s(self, peer: ID) -> float:
        """Seconds since the last sign of life of a connected peer."""
        now = trio.current_time()
        return now - self._heard.get(peer, now)

    def round_trip_s(self, peer: ID) -> float | None:
        return self._round_trip_s.get(peer)

    async def echo(self, stream: INetStream) -> None:
        """Serve pings: what comes in goes back, eight bytes at a time."""
        peer = stream.muxed_conn.peer_id
        frames = FrameReader(stream)
        while True:
            nonce = await frames.exactly(_NONCE_BYTES)
            self.heard(peer)
            await stream.write(nonce)

    async def watch(self) -> None:
        """Look at every connection twice a heartbeat, for ever."""
        async with trio.open_nursery() as nursery:
            while True:
                connected = set(self._links.connected())
                now = trio.current_time()
                for peer in self._heard.keys() - connected:
                    self._forget(peer)
                for peer in connected - self._cutting:
                    silent_s = now - self._heard.setdefault(peer, now)
                    unanswered_s = now - self._unanswered_since.get(peer, now)
                    if self._is_banned(peer) or unanswered_s >= self._silence_s:
                        # Not the asking task's business: its write to a stopped peer may hang.
                        self._cutting.add(peer)
                        log.info("cutting %s, silent for %.1f s", peer, silent_s)
                        nursery.start_soon(self._cut, peer)
                    elif silent_s >= self._heartbeat_s and peer not in self._asking:
                        self._asking.add(peer)
                        self._unanswered_since.setdefault(peer, now)
                        nursery.start_soon(self._ask, peer)
                await trio.sleep(self._heartbeat_s / 2)

    def _forget(self, peer: ID) -> None:
        for table in (self._heard, self._unanswered_since, self._round_trip_s, self._streams):
            table.pop(peer, None)

    async def _ask(self, peer: ID) -> None:
        asked = trio.current_time()
        try:
            await self._ping(peer)
            self._round_trip_s[peer] = trio.current_time() - asked
            self.heard(peer)
        except RequestRefused:
            self.heard(peer)  # it does not know our ping, but it is there
        except Exception as error:
            log.debug("a ping to %s failed: %r", peer, error)
            if held := self._streams.pop(peer, None):
                await reset_quietly(held[0])
        finally:
            self._asking.discard(peer)

    async def _ping(self, peer: ID) -> None:
        if peer not in self._streams:
            stream = await self._links.open_stream(str(peer), PING_PROTOCOL)
            self._streams[peer] = stream, FrameReader(stream)
        stream, frames = self._streams[peer]
        nonce = os.urandom(_NONCE_BYTES)
        await stream.write(nonce)
        if await frames.exactly(_NONCE_BYTES) != nonce:
            raise FrameError("a ping came back changed")

    async def _cut(self, peer: ID) -> None:
        try:
            self._streams.pop(peer, None)
            await self._links.cut(peer)
        finally:
            self._cutting.discard(peer)
