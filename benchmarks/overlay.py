"""Gossip between 20 processes: our overlay beside py-libp2p as it ships, in one run.

In a star everybody dials one hub, as our nodes do; in a graph each dials three others. Each
publishes 500-byte messages at random times, and every other process says when it heard each.
Prints a table, then one JSON line; its `stock_` figures are those of the shape that suits stock
best. All processes are forks of this one, so that latencies share a clock.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Literal

import psutil
import trio
from libp2p import new_host
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from cloud_gpu.protocol.adapters.gossip import OverlaySettings, open_overlay

TOPIC = "asks"
PAYLOAD_BYTES = 500
LISTEN = "/ip4/127.0.0.1/tcp/0"
SETTLE_S = 5.0
DRAIN_S = 8.0
_HEAD = struct.Struct("!HHq")
"""Sender, number, monotonic nanoseconds."""

Kind = Literal["ours", "stock"]
Shape = Literal["star", "graph"]


SHAPES: tuple[Shape, ...] = ("star", "graph")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    processes: int
    rate_s: float
    """Messages a second, all processes together."""
    seconds: float

    def schedule(self, process: int) -> list[float]:
        """When this process publishes, in seconds from the start; the same in every run."""
        count = round(self.rate_s * self.seconds / self.processes)
        generator = random.Random(process)
        return sorted(generator.uniform(0, self.seconds) for _ in range(count))


@dataclass(slots=True)
class Heard:
    """What one process reports."""

    published: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    death: str = ""


class Peer:
    """What the two sides have in common for a measurement."""

    address: str
    dial: Callable[[list[str]], Awaitable[None]]
    publish: Callable[[bytes], Awaitable[None]]
    receive: Callable[[], Awaitable[tuple[str, bytes]]]
    peers_on_topic: Callable[[], int]
    identity: str


@asynccontextmanager
async def ours(process: int) -> AsyncIterator[Peer]:
    settings = OverlaySettings(topics=(TOPIC,), listen=LISTEN)
    async with open_overlay(settings, (process + 1).to_bytes(32, "big")) as overlay:
        messages = overlay.messages(TOPIC)

        async def publish(payload: bytes) -> None:
            await overlay.publish(TOPIC, payload)

        async def receive() -> tuple[str, bytes]:
            message = await messages.receive()
            return message.originator, message.payload

        peer = Peer()
        peer.address, peer.identity = overlay.addresses[0], overlay.peer_id
        peer.dial, peer.publish, peer.receive = overlay.keep_connected, publish, receive
        peer.peers_on_topic = lambda: len(overlay._pubsub.peer_topics.get(TOPIC, ()))
        yield peer


@asynccontextmanager
async def stock(process: int) -> AsyncIterator[Peer]:
    """As the documentation starts it, with the services first so that it survives its start."""
    host = new_host(key_pair=create_new_key_pair((process + 1).to_bytes(32, "big")))
    router = GossipSub(
        [TProtocol("/meshsub/1.1.0")], degree=6, degree_low=4, degree_high=12, heartbeat_interval=1
    )
    pubsub = Pubsub(host, router)
    async with background_trio_service(pubsub), background_trio_service(router):
        await pubsub.wait_until_ready()
        async with host.run(listen_addrs=[Multiaddr(LISTEN)]):
            subscription = await pubsub.subscribe(TOPIC)

            async def dial(addresses: list[str]) -> None:
                for address in addresses:
                    await host.connect(info_from_p2p_addr(Multiaddr(address)))

            async def publish(payload: bytes) -> None:
                await pubsub.publish(TOPIC, payload)

            async def receive() -> tuple[str, bytes]:
                message = await subscription.get()
                return message.from_id.hex(), message.data

            peer = Peer()
            peer.address, peer.identity = str(host.get_addrs()[0]), host.get_id().to_bytes().hex()
            peer.dial, peer.publish, peer.receive = dial, publish, receive
            peer.peers_on_topic = lambda: len(pubsub.peer_topics.get(TOPIC, ()))
            try:
                yield peer
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 3):
                    await host.close()


SIDES: dict[Kind, Callable[[int], AbstractAsyncContextManager[Peer]]] = {
    "stock": stock,
    "ours": ours,
}


async def take_part(kind: Kind, process: int, load: Load, line: Connection, heard: Heard) -> None:
    """One process: connect, publish on schedule, note what is heard."""
    async with SIDES[kind](process) as peer, trio.open_nursery() as nursery:
        line.send(peer.address)
        addresses, expected = await trio.to_thread.run_sync(line.recv)
        nursery.start_soon(peer.dial, addresses)
        with trio.move_on_after(60):
            while peer.peers_on_topic() < expected:  # noqa: ASYNC110  # the two have no event
                await trio.sleep(0.1)
        line.send("connected")
        start_at = await trio.to_thread.run_sync(line.recv)

        async def listen() -> None:
            while True:
                originator, payload = await peer.receive()
                if originator != peer.identity:
                    sent_ns = _HEAD.unpack_from(payload)[2]
                    heard.latencies_ms.append((time.monotonic_ns() - sent_ns) / 1e6)

        nursery.start_soon(listen)
        busy = psutil.Process().cpu_times()
        for number, at in enumerate(load.schedule(process)):
            await trio.sleep(max(0.0, start_at + at - time.monotonic()))
            head = _HEAD.pack(process, number, time.monotonic_ns())
            await peer.publish(head.ljust(PAYLOAD_BYTES, b"."))
            heard.published += 1
        await trio.sleep(max(0.0, start_at + load.seconds + DRAIN_S - time.monotonic()))
        after = psutil.Process().cpu_times()
        heard.cpu_s = after.user + after.system - busy.user - busy.system
        line.send(heard)
        await trio.to_thread.run_sync(line.recv)
        nursery.cancel_scope.cancel()


def run_process(kind: Kind, process: int, load: Load, line: Connection) -> None:
    heard = Heard()
    try:
        trio.run(take_part, kind, process, load, line, heard)
    except BaseException as error:  # a host that dies is a result, not an accident
        heard.death = repr(error)
        line.send(heard)
    os._exit(0)


def dialled_by(shape: Shape, process: int, addresses: list[str]) -> tuple[list[str], int]:
    """Whom a process dials, and how many peers it must have before we begin."""
    if shape == "star":
        return ([], len(addresses) - 1) if process == 0 else (addresses[:1], 1)
    generator = random.Random(process)
    others = [address for number, address in enumerate(addresses) if number != process]
    return generator.sample(others, 3), 3


def measure(kind: Kind, shape: Shape, load: Load) -> list[Heard]:
    """Run all processes of one side; what each reports."""
    context = multiprocessing.get_context("fork")
    lines, processes = [], []
    for number in range(load.processes):
        mine, theirs = context.Pipe()
        process = context.Process(target=run_process, args=(kind, number, load, theirs))
        process.start()
        theirs.close()
        lines.append(mine)
        processes.append(process)
    try:
        addresses = [line.recv() for line in lines]
        for number, line in enumerate(lines):
            line.send(dialled_by(shape, number, addresses))
        connected = [line.recv() for line in lines]
        assert all(word == "connected" or isinstance(word, Heard) for word in connected)
        start_at = time.monotonic() + SETTLE_S
        for line in lines:
            line.send(start_at)
        heard = [line.recv() for line in lines]
        for line in lines:
            line.send("done")
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    return heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    delivered_percent: float
    p50_ms: float
    p99_ms: float
    cpu_percent: float
    """Of one core, mean over the processes."""
    deaths: int


def figures(heard: list[Heard], load: Load) -> Figures:
    expected = sum(len(load.schedule(n)) for n in range(load.processes)) * (load.processes - 1)
    latencies = sorted(each for one in heard for each in one.latencies_ms)
    percentiles = (
        statistics.quantiles(latencies, n=100) if len(latencies) > 1 else [float("inf")] * 99
    )
    return Figures(
        delivered_percent=round(100 * len(latencies) / expected, 2),
        p50_ms=round(percentiles[49], 1),
        p99_ms=round(percentiles[98], 1),
        cpu_percent=round(
            100 * statistics.mean(one.cpu_s for one in heard) / (load.seconds + DRAIN_S), 1
        ),
        deaths=sum(bool(one.death) for one in heard),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--rate", type=float, default=4.0, help="messages a second, all together")
    parser.add_argument("--seconds", type=float, default=15.0)
    asked = parser.parse_args()
    load = Load(processes=asked.processes, rate_s=asked.rate, seconds=asked.seconds)
    print(
        f"{load.processes} processes, {load.rate_s:g} messages/s of {PAYLOAD_BYTES} bytes in total"
        f" for {load.seconds:g} s, load average {os.getloadavg()[0]:.1f} at the start\n"
    )
    print(f"{'':14}{'delivered %':>12}{'p50 ms':>10}{'p99 ms':>10}{'CPU %/proc':>12}{'deaths':>8}")
    results: dict[tuple[Kind, Shape], Figures] = {}
    for shape in SHAPES:
        for kind in SIDES:
            one = results[kind, shape] = figures(measure(kind, shape, load), load)
            print(
                f"{kind + ', ' + shape:14}{one.delivered_percent:>12}{one.p50_ms:>10}"
                f"{one.p99_ms:>10}{one.cpu_percent:>12}{one.deaths:>8}",
                flush=True,
            )
    print()
    star = results["ours", "star"]
    best = max((results["stock", shape] for shape in SHAPES), key=lambda one: one.delivered_percent)
    line = {
        "delivered_percent": star.delivered_percent,
        "p99_ms": star.p99_ms,
        "stock_delivered_percent": best.delivered_percent,
        "stock_p99_ms": best.p99_ms,
        "stock_star_delivered_percent": results["stock", "star"].delivered_percent,
        "graph_delivered_percent": results["ours", "graph"].delivered_percent,
        "graph_p99_ms": results["ours", "graph"].p99_ms,
        "processes": load.processes,
        "messages_per_s": load.rate_s,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
