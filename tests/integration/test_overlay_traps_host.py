"""One test per trap in py-libp2p 0.8.1's host, swarm and muxer that the overlay works around.

Each shows upstream's behaviour first, then ours: it fails when upstream repairs the trap (drop the
patch then) and when the patch is lost. The numbers go on in `test_overlay_traps_gossip.py`.
"""

import inspect
import socket
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import libp2p.network.swarm as swarm_module
import pytest
import trio
from libp2p import new_host
from libp2p.abc import IHost, INetStream
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.exceptions import StreamError
from libp2p.network.swarm import Swarm
from libp2p.peer.peerinfo import PeerInfo, info_from_p2p_addr
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from libp2p.stream_muxer.yamux.yamux import MAX_WINDOW_SIZE, Yamux
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from cloud_gpu.protocol.adapters import libp2p_host
from cloud_gpu.protocol.adapters.frames import FrameReader
from cloud_gpu.protocol.adapters.gossip import open_overlay
from cloud_gpu.protocol.errors import PeerUnreachable
from tests.support.overlay import (
    LOOPBACK,
    MESHSUB,
    QUICK,
    Stock,
    answers,
    dies,
    packed,
    plain,
    raising,
    running_host,
    running_plain,
    secret_of,
    star,
    take,
    until,
)


def swarm_of(made: Stock) -> Swarm:
    return cast(Swarm, made.host.get_network())


async def test_01_an_exception_in_a_stream_handler_ends_only_that_stream() -> None:
    async with running_plain(secret_of(901)) as attacker:

        async def attack(victim: Stock) -> None:
            victim.host.set_stream_handler(cast(Any, "/boom/1"), raising)
            await attacker.throw(victim.address, "/boom/1", b"x")

        assert await dies(running_plain(secret_of(900)), attack)
        async with star(1) as (hub, leaf):
            hub.serve_stream("/boom/1", raising)
            await attacker.throw(hub.addresses[0], "/boom/1", b"x")
            assert await answers(hub, leaf)


async def test_08_gossip_while_starting_or_stopping_ends_no_process() -> None:
    async with running_plain(secret_of(901)) as attacker:

        async def attack(victim: Stock) -> None:
            # The host listens and Pubsub does not run, as with upstream's `bootstrap=`.
            Pubsub(victim.host, GossipSub([cast(Any, MESHSUB)], 6, 4, 8))
            await attacker.throw(victim.address, MESHSUB, packed(attacker.message(b"early")))

        assert await dies(running_plain(secret_of(900)), attack)

    async def flood(address: str, flooder: Stock) -> None:
        stream = await flooder.stream(address, MESHSUB)
        with suppress(StreamError):  # it ends when the victim does
            while True:
                await stream.write(packed(flooder.message(b"late")))

    for attempt in range(3):
        async with running_plain(secret_of(910 + attempt)) as flooder, trio.open_nursery() as by:
            async with open_overlay(QUICK, secret_of(1)) as victim:
                by.start_soon(flood, victim.addresses[0], flooder)
                assert await take(victim, 5)
            by.cancel_scope.cancel()


async def test_09_a_closed_inbound_connection_leaves_nothing_behind() -> None:
    async def visits(address: str) -> None:
        for number in range(6):
            async with running_plain(secret_of(910 + number)) as visitor:
                await visitor.connect(address)

    async with running_plain(secret_of(901)) as host:
        await visits(host.address)
        assert swarm_of(host)._inbound_limiter.borrowed_tokens == 6
        assert swarm_of(host)._inbound_limiter.total_tokens == 250  # then it is deaf for ever
    async with open_overlay(QUICK, secret_of(1)) as overlay:
        await visits(overlay.addresses[0])
        swarm = cast(Swarm, overlay._host.get_network())
        assert await until(lambda: swarm._inbound_limiter.borrowed_tokens == 0)
        assert swarm._inbound_limiter.total_tokens == 1_024


async def test_10_a_dial_does_not_wait_a_quarter_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        open_overlay(QUICK, secret_of(1)) as there,
        open_overlay(QUICK, secret_of(2)) as here,
    ):

        async def dialled_s() -> float:
            started = trio.current_time()
            await here._links.reach(there.addresses)
            took_s = trio.current_time() - started
            await here.disconnect(there.peer_id)
            return took_s

        assert min([await dialled_s() for _ in range(5)]) < 0.25
        monkeypatch.setattr(swarm_module, "_HAPPY_EYEBALLS_DELAY", 0.25)  # upstream's
        assert await dialled_s() >= 0.25
    written = inspect.getsource(swarm_module)
    assert "\n_HAPPY_EYEBALLS_DELAY = (\n    0.250" in written


async def test_11_a_failed_dial_is_tried_again_at_once() -> None:
    async with open_overlay(QUICK, secret_of(1)) as overlay:
        address = overlay.addresses[0]
    here = info_from_p2p_addr(Multiaddr(address))
    port = replace(QUICK, listen=str(here.addrs[0]))
    async with running_plain(secret_of(901)) as dialler:
        swarm_of(dialler).retry_config.max_retries = 0
        with pytest.raises(SwarmException, match="unable to connect"):
            await dialler.host.connect(here)
        async with open_overlay(port, secret_of(1)):
            with pytest.raises(SwarmException, match="negative cache"):
                await dialler.host.connect(here)
    async with open_overlay(QUICK, secret_of(2)) as ours:
        with pytest.raises(PeerUnreachable):
            await ours._links.reach((address,))
        async with open_overlay(port, secret_of(1)):
            await ours._links.reach((address,))
            assert len(ours.peers()) == 1


async def test_11_a_peer_that_moved_is_dialled_at_its_new_address() -> None:
    async with open_overlay(QUICK, secret_of(1)) as overlay:
        old = info_from_p2p_addr(Multiaddr(overlay.addresses[0]))
    async with (
        open_overlay(QUICK, secret_of(1)) as moved,
        open_overlay(QUICK, secret_of(2)) as ours,
        running_plain(secret_of(901)) as dialler,
    ):
        new = info_from_p2p_addr(Multiaddr(moved.addresses[0]))
        swarm_of(dialler).retry_config.max_retries = 0
        with pytest.raises(SwarmException):
            await dialler.host.connect(PeerInfo(old.peer_id, [*old.addrs, *new.addrs]))
        await ours._links.reach([f"{old.addrs[0]}/p2p/{old.peer_id}", moved.addresses[0]])
        assert len(ours.peers()) == 1


async def test_14_a_frame_is_read_whole_though_reads_are_short() -> None:
    async with running_plain(secret_of(901)) as sender, star(1) as (hub, _):
        lengths: list[int] = []

        async def short(stream: INetStream) -> None:
            lengths.append(len(await stream.read(300_000)))

        async def whole(stream: INetStream) -> None:
            lengths.append(len(await FrameReader(stream).exactly(300_000)))

        hub.serve_stream("/short/1", short)
        hub.serve_stream("/whole/1", whole)
        for protocol in ("/short/1", "/whole/1"):
            await sender.throw(hub.addresses[0], protocol, b"x" * 200_000 + b"y" * 100_000)
        assert await until(lambda: len(lengths) == 2)
        assert min(lengths) < 300_000 == max(lengths)


async def test_16_plaintext_where_anyone_may_claim_any_name_is_not_spoken() -> None:
    key_pair = create_new_key_pair(secret_of(903))
    impostor = new_host(
        key_pair=key_pair, sec_opt={PLAINTEXT_PROTOCOL_ID: InsecureTransport(key_pair)}
    )
    async with impostor.run(listen_addrs=[LOOPBACK]):
        cast(Swarm, impostor.get_network()).retry_config.max_retries = 0
        async with running_plain(secret_of(901)) as victim:
            await impostor.connect(info_from_p2p_addr(Multiaddr(victim.address)))
        async with open_overlay(QUICK, secret_of(1)) as ours:
            with pytest.raises(SwarmException):
                await impostor.connect(info_from_p2p_addr(Multiaddr(ours.addresses[0])))
        await impostor.close()


async def test_17_a_taken_port_is_refused_and_not_shared() -> None:
    async with running_plain(secret_of(901)) as first:
        listen = str(info_from_p2p_addr(Multiaddr(first.address)).addrs[0])
        second = new_host(key_pair=create_new_key_pair(secret_of(902)))
        async with second.run(listen_addrs=[Multiaddr(listen)]):
            assert str(second.get_addrs()[0]).startswith(listen)  # both have the port
            await second.close()
        with pytest.raises(OSError, match="Address already in use"):
            async with open_overlay(replace(QUICK, listen=listen), secret_of(1)):
                pytest.fail("it must not start")


async def test_17_a_port_in_time_wait_is_taken_again() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fixed = replace(QUICK, listen=f"/ip4/127.0.0.1/tcp/{port}")
    for _ in range(2):
        async with (
            open_overlay(fixed, secret_of(1)) as hub,
            open_overlay(QUICK, secret_of(2)) as to,
        ):
            await to._links.reach(hub.addresses)


async def test_18_a_peer_that_ignores_its_window_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libp2p_host, "BUFFERED_BYTES_MAX", 4 * 2**20)

    async def overflow(attacker: Stock, address: str) -> Yamux:
        stream = await attacker.stream(address, "/idle/1")
        muxed = cast(Any, stream).muxed_stream
        with trio.move_on_after(3):
            for _ in range(80):
                muxed.send_window = MAX_WINDOW_SIZE  # whatever the receiver said
                try:
                    await stream.write(b"x" * 65_000)
                except Exception:
                    break
        return cast(Yamux, muxed.conn)

    async def idle(stream: INetStream) -> None:
        await trio.sleep_forever()

    async with running_plain(secret_of(901)) as attacker:
        async with running_plain(secret_of(902)) as victim:
            victim.host.set_stream_handler(cast(Any, "/idle/1"), idle)
            assert not (await overflow(attacker, victim.address)).is_closed
        async with star(1) as (hub, leaf):
            hub.serve_stream("/idle/1", idle)
            connection = await overflow(attacker, hub.addresses[0])
            assert await until(lambda: connection.is_closed)
            assert await answers(hub, leaf)


async def test_20_no_stranger_is_dialled_because_we_have_few_peers() -> None:
    async with running_plain(secret_of(901)) as known:
        here = info_from_p2p_addr(Multiaddr(known.address))
        upstream = plain(secret_of(902))
        upstream.host.get_peerstore().add_addrs(here.peer_id, here.addrs, 100)
        async with running_host(upstream.host):
            assert await until(lambda: here.peer_id in upstream.host.get_connected_peers(), 2)
        async with open_overlay(QUICK, secret_of(1)) as ours:
            ours._host.get_peerstore().add_addrs(here.peer_id, here.addrs, 100)
            swarm = cast(Swarm, ours._host.get_network())
            await swarm.auto_connector.maybe_connect()
            assert ours.peers() == ()


async def test_23_a_cancelled_write_does_not_break_the_connection() -> None:
    class Slow:
        """A socket that takes half of what it is given, and the rest a little later."""

        def __init__(self, stream: trio.SocketStream) -> None:
            self.stream, self.half_sent = stream, trio.Event()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stream, name)

        async def send_all(self, body: bytes) -> None:
            await self.stream.send_all(body[: len(body) // 2])
            if len(body) > 1_000:
                self.half_sent.set()
            await trio.sleep(0.2)
            await self.stream.send_all(body[len(body) // 2 :])

    async def survives(dialler: IHost, address: str, within_s: float) -> bool:
        """Whether a second stream works after a write on the first was cancelled."""
        peer = info_from_p2p_addr(Multiaddr(address))
        await dialler.connect(peer)
        first, second = [
            await dialler.new_stream(peer.peer_id, [cast(Any, "/test/echo/1")]) for _ in range(2)
        ]
        socket_under: Any = first.muxed_conn
        raw = socket_under.secured_conn.conn.read_writer.read_write_closer.stream
        raw.stream = slow = Slow(raw.stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.write, b"x" * 1_000)
            await slow.half_sent.wait()
            nursery.cancel_scope.cancel()
        answer = b""
        with trio.move_on_after(within_s):
            await second.write(b"ping")
            answer = await second.read(4)
        return answer == b"ping"

    async def echoing(stream: INetStream) -> None:
        await stream.write(await stream.read(1_000))

    async with running_plain(secret_of(901)) as upstream, running_plain(secret_of(902)) as server:
        server.host.set_stream_handler(cast(Any, "/test/echo/1"), echoing)
        assert not await survives(upstream.host, server.address, 0.8)
        async with open_overlay(QUICK, secret_of(1)) as ours:
            assert await survives(ours._host, server.address, 20)
