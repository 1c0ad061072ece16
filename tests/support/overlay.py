"""Peers for overlay tests: ours with short times, and py-libp2p as it ships, to be attacked or to
attack with."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import trio
from libp2p import new_host
from libp2p.abc import IHost, INetStream
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.network.stream.exceptions import StreamError
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX
from libp2p.tools.anyio_service import background_trio_service
from libp2p.utils.varint import encode_varint_prefixed
from multiaddr import Multiaddr  # type: ignore[import-untyped]
from trio_typing import TaskStatus

from cloud_gpu.protocol.adapters.gossip import Overlay, OverlaySettings, open_overlay

TOPIC = "asks"
MESHSUB = "/meshsub/1.1.0"
LOOPBACK = Multiaddr("/ip4/127.0.0.1/tcp/0")

QUICK = OverlaySettings(
    topics=(TOPIC,),
    gossip_heartbeat_s=0.3,
    heartbeat_s=0.3,
    silence_s=4.0,
    dial_timeout_s=2.0,
    redial_s=0.5,
)


def secret_of(number: int) -> bytes:
    return number.to_bytes(32, "big")


async def stay(
    settings: OverlaySettings,
    secret: bytes,
    *,
    task_status: TaskStatus[Overlay] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a peer until cancelled; started by `nursery.start`, which returns it."""
    async with open_overlay(settings, secret) as overlay:
        task_status.started(overlay)
        await trio.sleep_forever()


@asynccontextmanager
async def star(leaves: int, settings: OverlaySettings = QUICK) -> AsyncIterator[list[Overlay]]:
    """A hub and its leaves, all of whom know each other's subscription; the hub comes first.

    They stop side by side, which takes libp2p a quarter of a second.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        hub = await nursery.start(stay, settings, secret_of(1))
        joining = replace(settings, bootstrap=hub.addresses)
        peers = [hub] + [
            await nursery.start(stay, joining, secret_of(2 + leaf)) for leaf in range(leaves)
        ]
        await hub.wait_for_peers(TOPIC, leaves)
        for peer in peers[1:]:
            await peer.wait_for_peers(TOPIC, 1)
        try:
            yield peers
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def take(overlay: Overlay, count: int, timeout_s: float = 10.0) -> list[bytes]:
    """The payloads of the next `count` messages, fewer when the time is over."""
    taken: list[bytes] = []
    with trio.move_on_after(timeout_s):
        async with overlay.messages(TOPIC) as messages:
            while len(taken) < count:
                taken.append((await messages.receive()).payload)
    return taken


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Whether it came true in time."""
    with trio.move_on_after(timeout_s):
        while not condition():  # noqa: ASYNC110  # the condition is anyone's state
            await trio.sleep(0.02)
    return condition()


async def echo(peer: str, payload: bytes) -> bytes:
    return payload


async def answers(server: Overlay, client: Overlay) -> bool:
    """Whether the server still does its work: the proof that nothing took it down."""
    server.serve("/test/alive/1", echo)
    return await client.request(server.addresses, "/test/alive/1", b"?", 10) == b"?"


@dataclass
class Stock:
    """A host with nothing of ours."""

    host: IHost

    @property
    def peer(self) -> ID:
        return self.host.get_id()

    @property
    def address(self) -> str:
        return str(self.host.get_addrs()[0])

    async def connect(self, address: str) -> ID:
        info = info_from_p2p_addr(Multiaddr(address))
        await self.host.connect(info)
        return info.peer_id

    async def stream(self, address: str, protocol: str) -> INetStream:
        return await self.host.new_stream(await self.connect(address), [TProtocol(protocol)])

    async def throw(self, address: str, protocol: str, junk: bytes) -> None:
        """Write bytes on a new stream and leave it open; the peer may have cut it by then."""
        stream = await self.stream(address, protocol)
        with suppress(StreamError):
            await stream.write(junk)

    def message(self, payload: bytes, sequence_ns: int | None = None) -> rpc_pb2.Message:
        """A rightly signed message of this peer."""
        sequence = time.time_ns() if sequence_ns is None else sequence_ns
        message = rpc_pb2.Message(
            data=payload,
            topicIDs=[TOPIC],
            from_id=self.peer.to_bytes(),
            seqno=sequence.to_bytes(8, "big"),
        )
        message.signature = self.host.get_private_key().sign(
            PUBSUB_SIGNING_PREFIX.encode() + message.SerializeToString()
        )
        message.key = self.host.get_public_key().serialize()
        return message


def packed(*messages: rpc_pb2.Message) -> bytes:
    """One gossip RPC as it goes over the stream."""
    return encode_varint_prefixed(rpc_pb2.RPC(publish=messages).SerializeToString())


@dataclass
class Gossiping(Stock):
    """A host and gossip with nothing of ours."""

    pubsub: Pubsub
    router: GossipSub


def plain(secret: bytes) -> Stock:
    return Stock(new_host(key_pair=create_new_key_pair(secret)))


def gossiping(secret: bytes) -> Gossiping:
    host = new_host(key_pair=create_new_key_pair(secret))
    router = GossipSub(
        [TProtocol(MESHSUB)], degree=6, degree_low=4, degree_high=8, heartbeat_interval=1
    )
    return Gossiping(host, Pubsub(host, router), router)


@asynccontextmanager
async def running_host(host: IHost) -> AsyncIterator[None]:
    async with host.run(listen_addrs=[LOOPBACK]):
        try:
            yield
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 3):
                await host.close()


@asynccontextmanager
async def running_plain(secret: bytes) -> AsyncIterator[Stock]:
    made = plain(secret)
    async with running_host(made.host):
        yield made


@asynccontextmanager
async def running_gossiping(secret: bytes) -> AsyncIterator[Gossiping]:
    made = gossiping(secret)
    async with background_trio_service(made.pubsub), background_trio_service(made.router):
        await made.pubsub.wait_until_ready()
        async with running_host(made.host):
            yield made


async def raising(stream: INetStream) -> None:
    await stream.read(1)
    raise RuntimeError("a handler with a bug")


S = TypeVar("S", bound=Stock)


async def dies(
    victim: AbstractAsyncContextManager[S], attack: Callable[[S], Awaitable[None]]
) -> bool:
    """Whether a stock host ends when it is attacked."""
    try:
        with trio.fail_after(6):
            async with victim as attacked:
                await attack(attacked)
                await trio.sleep(1.5)
                return False
    except BaseExceptionGroup:
        return True
