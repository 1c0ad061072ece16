"""One test per trap of py-libp2p 0.8.1 that the overlay works around.

Each shows upstream's behaviour first, then ours: it fails when upstream repairs the trap (drop the
patch then) and when the patch is lost.
"""

import importlib.util
import inspect
import socket
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import libp2p.network.swarm as swarm_module
import pytest
import trio
from libp2p import new_host
from libp2p.abc import INetStream
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.exceptions import StreamError
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo, info_from_p2p_addr
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.pubsub.score import PeerScorer, ScoreParams, TopicScoreParams
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from libp2p.stream_muxer.yamux.yamux import MAX_WINDOW_SIZE, Yamux
from libp2p.utils.varint import encode_varint_prefixed
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from cloud_gpu.protocol.adapters import libp2p_patches
from cloud_gpu.protocol.adapters.frames import FrameReader
from cloud_gpu.protocol.adapters.gossip import Overlay, open_overlay
from cloud_gpu.protocol.adapters.libp2p_patches import RepairingGossipSub, RoomyQueues
from cloud_gpu.protocol.errors import PeerUnreachable
from tests.support.overlay import (
    LOOPBACK,
    MESHSUB,
    QUICK,
    TOPIC,
    Gossiping,
    Stock,
    answers,
    dies,
    gossiping,
    packed,
    plain,
    raising,
    running_gossiping,
    running_host,
    running_plain,
    secret_of,
    star,
    take,
    until,
)

UNPARSABLE = encode_varint_prefixed(b"\xff" * 40)


def junk_message() -> rpc_pb2.Message:
    return rpc_pb2.Message(
        data=b"x", topicIDs=[TOPIC], from_id=b"junk", seqno=b"\x00" * 8, key=b"junk", signature=b"s"
    )


def pubsub_of(overlay: Overlay) -> Pubsub:
    return overlay._pubsub


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


async def test_02_an_unparsable_gossip_frame_ends_only_its_stream() -> None:
    async with running_plain(secret_of(901)) as attacker:

        async def attack(victim: Stock) -> None:
            await attacker.throw(victim.address, MESHSUB, UNPARSABLE)

        assert await dies(running_gossiping(secret_of(900)), attack)
        async with star(1) as (hub, leaf):
            await attacker.throw(hub.addresses[0], MESHSUB, UNPARSABLE)
            assert await until(lambda: hub.counters.misbehaviour == 1)
            assert await answers(hub, leaf)


async def test_02_a_junk_originator_and_key_are_refused() -> None:
    made = gossiping(secret_of(901))
    with pytest.raises(Exception, match=r".*"):
        await made.pubsub.push_msg(made.peer, junk_message())
    async with running_plain(secret_of(902)) as attacker, star(1) as (hub, leaf):
        await attacker.throw(hub.addresses[0], MESHSUB, packed(junk_message()))
        assert await until(lambda: hub.counters.misbehaviour == 1)
        assert await answers(hub, leaf)


async def test_03_no_check_of_ours_can_raise_or_let_duplicates_through() -> None:
    async with (
        running_gossiping(secret_of(901)) as victim,
        running_gossiping(secret_of(902)) as origin,
    ):
        subscription = await victim.pubsub.subscribe(TOPIC)

        def broken(forwarder: ID, message: rpc_pb2.Message) -> bool:
            raise ValueError("a validator with a bug")

        victim.pubsub.set_topic_validator(TOPIC, broken, is_async_validator=False)
        with pytest.raises(ValueError, match="a validator with a bug"):
            await victim.pubsub.push_msg(origin.peer, origin.message(b"1"))

        async def slow(forwarder: ID, message: rpc_pb2.Message) -> bool:
            await trio.sleep(0.05)
            return True

        victim.pubsub.set_topic_validator(TOPIC, slow, is_async_validator=True)
        message = origin.message(b"2")
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(victim.pubsub.push_msg, origin.peer, message)
        copies = 0
        with trio.move_on_after(0.2):
            async for _copy in cast(Any, subscription):
                copies += 1
        assert copies == 5
        async with star(1) as (hub, _):
            async with trio.open_nursery() as nursery:
                for _copy in range(20):
                    nursery.start_soon(pubsub_of(hub).push_msg, origin.peer, message)
            assert await take(hub, 2, timeout_s=0.2) == [b"2"]


async def test_04_lazy_gossip_reaches_a_peer_in_back_off() -> None:
    def announced_to(router: GossipSub, made: Gossiping) -> bool:
        pruned = ID(b"pruned")
        made.pubsub.peer_topics[TOPIC] = {pruned}
        router.mesh[TOPIC] = set()
        router.peer_protocol[pruned] = cast(Any, MESHSUB)
        router.mcache.put(made.message(b"x"))
        router._add_back_off(pruned, TOPIC, False)
        return pruned in router.gossip_heartbeat()

    upstream = gossiping(secret_of(901))
    assert not announced_to(upstream.router, upstream)
    ours = RepairingGossipSub(degree_high=64, heartbeat_s=1)
    made = gossiping(secret_of(902))
    ours.attach(made.pubsub)
    assert announced_to(ours, made)


async def test_05_sequence_numbers_do_not_start_again_in_a_restart() -> None:
    first, again = gossiping(secret_of(901)), gossiping(secret_of(901))
    for _ in range(5_000):
        first.pubsub._next_seqno()
    assert again.pubsub._next_seqno() <= first.pubsub._next_seqno()
    async with open_overlay(QUICK, secret_of(1)) as before:
        numbers = [pubsub_of(before)._next_seqno() for _ in range(5_000)]
    async with open_overlay(QUICK, secret_of(1)) as after:
        assert pubsub_of(after)._next_seqno() > max(numbers)
    assert len(set(numbers)) == len(numbers)


async def test_06_a_burst_of_200_is_delivered_whole() -> None:
    queue = RpcQueue()
    assert sum(queue.push(rpc_pb2.RPC()) for _ in range(200)) == 32
    queues = RoomyQueues()
    queues[ID(b"peer")] = RpcQueue()
    assert all(queues[ID(b"peer")].push(rpc_pb2.RPC()) for _ in range(200))
    async with star(2) as (hub, left, right):
        for number in range(200):
            await left.publish(TOPIC, str(number).encode())
        wanted = {str(number).encode() for number in range(200)}
        assert set(await take(hub, 200)) == wanted
        assert set(await take(right, 200)) == wanted


async def test_07_more_than_ten_messages_a_second_pass_a_forwarder() -> None:
    upstream = gossiping(secret_of(901))
    passed = [
        upstream.router._check_spam_protection(upstream.peer, upstream.message(b"x"))
        for _ in range(30)
    ]
    assert passed.count(True) == 10
    ours = RepairingGossipSub(degree_high=64, heartbeat_s=1)
    assert all(
        ours._check_spam_protection(upstream.peer, upstream.message(b"x")) for _ in range(30)
    )


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


def swarm_of(made: Stock) -> Swarm:
    return cast(Swarm, made.host.get_network())


async def test_10_a_dial_does_not_wait_a_quarter_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        open_overlay(QUICK, secret_of(1)) as there,
        open_overlay(QUICK, secret_of(2)) as here,
    ):
        started = trio.current_time()
        await here._links.reach(there.addresses)
        assert trio.current_time() - started < 0.25
        await here.disconnect(there.peer_id)
        monkeypatch.setattr(swarm_module, "_HAPPY_EYEBALLS_DELAY", 0.25)  # upstream's
        started = trio.current_time()
        await here._links.reach(there.addresses)
        assert trio.current_time() - started >= 0.25
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


def test_12_upstream_rewards_spam_so_that_it_is_not_asked() -> None:
    spammer = ID(b"spammer")
    scorer = PeerScorer(ScoreParams(p4_invalid_messages=TopicScoreParams(-10, 100, 1)))
    scorer.on_invalid_message(spammer, TOPIC)
    assert scorer.score(spammer, [TOPIC]) > 0
    assert RepairingGossipSub(degree_high=64, heartbeat_s=1).scorer is None


def test_13_the_gossip_heartbeat_is_set_by_us_and_stays() -> None:
    upstream = GossipSub([], 6, 4, 8)
    assert upstream.heartbeat_interval == 120
    upstream.heartbeat_interval = upstream.heartbeat_interval_base = 1
    upstream.network_health_score = 0.1
    upstream._adapt_gossip_parameters()
    assert upstream.heartbeat_interval >= 30
    ours = RepairingGossipSub(degree_high=64, heartbeat_s=1)
    ours.network_health_score = 0.1
    ours._adapt_gossip_parameters()
    assert ours.heartbeat_interval == 1
    assert importlib.util.find_spec("libp2p.tools.async_service") is None


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


async def test_15_a_peer_cannot_make_us_keep_topics_of_its_own() -> None:
    def subscriptions(count: int) -> bytes:
        entries = [rpc_pb2.RPC.SubOpts(subscribe=True, topicid=str(n)) for n in range(count)]
        return encode_varint_prefixed(rpc_pb2.RPC(subscriptions=entries).SerializeToString())

    async with running_plain(secret_of(901)) as attacker:
        async with running_gossiping(secret_of(902)) as victim:
            await attacker.throw(victim.address, MESHSUB, subscriptions(4_000))
            assert await until(lambda: len(victim.pubsub.peer_topics) == 100)
        async with star(1) as (hub, leaf):
            await attacker.throw(hub.addresses[0], MESHSUB, subscriptions(200))
            await attacker.throw(hub.addresses[0], MESHSUB, subscriptions(4_000))
            assert await until(lambda: hub.counters.misbehaviour == 1)
            assert set(pubsub_of(hub).peer_topics) == {TOPIC}
            assert await answers(hub, leaf)


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
    monkeypatch.setattr(libp2p_patches, "BUFFERED_BYTES_MAX", 4 * 2**20)

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


async def test_19_two_writers_on_one_gossip_stream_do_not_mix() -> None:
    class Torn:
        """A stream that writes in pieces, as yamux does above 64 KiB."""

        def __init__(self) -> None:
            self.written = b""

        async def write(self, body: bytes) -> None:
            for start in range(0, len(body), 4):
                self.written += body[start : start + 4]
                await trio.lowlevel.checkpoint()

    async def written_by_two(pubsub: Pubsub) -> bytes:
        stream = Torn()
        async with trio.open_nursery() as nursery:
            for letter in b"ab":
                message = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=bytes([letter]) * 40)])
                nursery.start_soon(pubsub.write_msg, cast(INetStream, stream), message)
        return stream.written

    upstream = await written_by_two(gossiping(secret_of(901)).pubsub)
    assert b"a" * 40 not in upstream
    async with open_overlay(QUICK, secret_of(1)) as overlay:
        ours = await written_by_two(pubsub_of(overlay))
    assert b"a" * 40 in ours
    assert b"b" * 40 in ours


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
