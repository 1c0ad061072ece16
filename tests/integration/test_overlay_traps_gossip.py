"""One test per trap in py-libp2p 0.8.1's gossip that the overlay works around.

Each shows upstream's behaviour first, then ours: it fails when upstream repairs the trap (drop the
patch then) and when the patch is lost. The numbers go on in `test_overlay_traps_host.py`.
"""

import importlib.util
import threading
from typing import Any, cast

import pytest
import trio
from libp2p.abc import INetStream
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.pubsub.score import PeerScorer, ScoreParams, TopicScoreParams
from libp2p.utils.varint import encode_varint_prefixed

from cloud_gpu.protocol.adapters.gossip import Overlay, open_overlay
from cloud_gpu.protocol.adapters.libp2p_gossip import RepairingGossipSub, RoomyQueues
from tests.support.overlay import (
    MESHSUB,
    QUICK,
    TOPIC,
    Gossiping,
    Stock,
    answers,
    dies,
    gossiping,
    packed,
    running_gossiping,
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


async def test_21_a_message_published_between_subscribing_and_grafting_is_not_lost() -> None:
    def told_of_it(router: GossipSub, made: Gossiping) -> tuple[bool, bool]:
        early = ID(b"early")
        made.pubsub.peer_topics[TOPIC] = {early}
        router.mesh[TOPIC] = set()
        router.peer_protocol[early] = cast(Any, MESHSUB)
        sent_to = set(router._get_peers_to_send([TOPIC], made.peer, made.peer))
        router.mcache.put(made.message(b"x"))
        router.mesh_heartbeat()
        assert router.mesh[TOPIC] == {early}
        return early in sent_to, early in router.gossip_heartbeat()

    upstream = gossiping(secret_of(901))
    assert told_of_it(upstream.router, upstream) == (False, False)
    ours, made = RepairingGossipSub(degree_high=64, heartbeat_s=1), gossiping(secret_of(902))
    ours.attach(made.pubsub)
    assert told_of_it(ours, made) == (True, True)
    for _ in range(3):
        announced = ours.gossip_heartbeat()
    assert not announced  # by now it is a member like any other


async def test_22_no_thread_is_left_behind() -> None:
    def sweepers() -> int:
        return sum("_background_cleanup" in thread.name for thread in threading.enumerate())

    before = sweepers()
    async with running_gossiping(secret_of(901)) as upstream:
        pass
    assert sweepers() == before + 1
    upstream.pubsub.seen_messages.stop()
    async with open_overlay(QUICK, secret_of(1)):
        assert sweepers() == before + 1
    assert sweepers() == before
