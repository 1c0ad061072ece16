"""Whatever a peer sends, the host stays up, its memory bounded and its other peers served."""

import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest
import trio
from libp2p.abc import INetStream
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.host.exceptions import StreamFailure
from libp2p.network.exceptions import SwarmException
from libp2p.network.stream.exceptions import StreamError
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils.varint import encode_uvarint, encode_varint_prefixed
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from cloud_gpu.protocol.adapters.gossip import open_overlay
from cloud_gpu.protocol.adapters.libp2p_host import STREAMS_PER_PEER_MAX
from tests.support.overlay import (
    MESHSUB,
    QUICK,
    TOPIC,
    Stock,
    answers,
    packed,
    running_plain,
    secret_of,
    star,
    take,
    until,
)

GONE = (StreamError, StreamFailure, SwarmException)


def far_in_the_past() -> int:
    return time.time_ns() - 3_600 * 10**9


def control(generator: random.Random) -> rpc_pb2.ControlMessage:
    ids = [generator.randbytes(generator.randrange(40)) for _ in range(generator.randrange(4))]
    topics = [TOPIC, "", "unknown", "\u00e9" * 200]
    made = rpc_pb2.ControlMessage()
    made.ihave.add(topicID=generator.choice(topics), messageIDs=ids)
    made.iwant.add(messageIDs=ids)
    made.graft.add(topicID=generator.choice(topics))
    made.prune.add(topicID=generator.choice(topics), backoff=generator.randrange(2**40))
    made.idontwant.add(messageIDs=ids)
    return made


def any_frame(generator: random.Random) -> bytes:
    """A gossip frame: right, wrong, or right with a few bytes of it changed."""
    rpc = rpc_pb2.RPC(control=control(generator))
    rpc.subscriptions.add(
        subscribe=generator.random() < 0.5, topicid=generator.choice([TOPIC, "x"])
    )
    rpc.publish.add(
        data=generator.randbytes(20),
        topicIDs=[TOPIC] * generator.randrange(3),
        from_id=generator.randbytes(generator.randrange(45)),
        seqno=generator.randbytes(generator.choice([0, 7, 8, 9])),
        key=generator.randbytes(generator.randrange(40)),
        signature=generator.randbytes(generator.randrange(80)),
    )
    rpc.senderRecord = generator.randbytes(generator.randrange(60))
    body = bytearray(rpc.SerializeToString())
    for _ in range(generator.randrange(3)):
        body[generator.randrange(len(body))] = generator.randrange(256)
    return encode_varint_prefixed(bytes(body))


async def test_random_gossip_frames_take_nothing_down() -> None:
    generator = random.Random(7)
    async with star(1) as (hub, leaf):
        for attacker_number in range(4):
            async with running_plain(secret_of(910 + attacker_number)) as attacker:
                for _ in range(8):
                    try:
                        stream = await attacker.stream(hub.addresses[0], MESHSUB)
                        for _ in range(8):
                            await stream.write(any_frame(generator))
                    except GONE:
                        break  # banned by then
        assert hub.counters.banned >= 1
        assert await answers(hub, leaf)
        await leaf.publish(TOPIC, b"still here")
        assert await take(hub, 1) == [b"still here"]


@pytest.mark.parametrize(
    ("junk", "what"),
    [
        (encode_uvarint(2**40), "an enormous length"),
        (b"\x80" * 12, "a length that never ends"),
        (encode_varint_prefixed(b"\x08"), "a protobuf cut short"),
        (encode_varint_prefixed(rpc_pb2.RPC(publish=[rpc_pb2.Message()] * 5_000).SerializeToString()), "thousands of messages at once"),  # noqa: E501
    ],
)  # fmt: skip
async def test_a_frame_no_honest_peer_sends_ends_its_stream(junk: bytes, what: str) -> None:
    async with star(1) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        await attacker.throw(hub.addresses[0], MESHSUB, junk)
        assert await until(lambda: hub.counters.misbehaviour == 1), what
        assert await answers(hub, leaf)


async def test_a_frame_that_never_comes_holds_up_nobody() -> None:
    async with star(1) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        await attacker.throw(hub.addresses[0], MESHSUB, encode_uvarint(1_000) + b"half")
        await leaf.publish(TOPIC, b"ask")
        assert await take(hub, 1) == [b"ask"]
        assert hub.counters.misbehaviour == 0


async def test_forgeries_are_dropped_and_held_against_who_forwards_them() -> None:
    async with (
        star(1) as (hub, leaf),
        running_plain(secret_of(901)) as attacker,
        running_plain(secret_of(902)) as victim,
    ):
        changed = victim.message(b"pay the victim")
        changed.data = b"pay the attacker"
        stolen = attacker.message(b"signed by another key")
        stolen.from_id = victim.peer.to_bytes()
        unsigned = victim.message(b"x")
        unsigned.ClearField("signature")
        as_hub = attacker.message(b"as if from yourself")
        as_hub.from_id = hub._host.get_id().to_bytes()
        await attacker.throw(hub.addresses[0], MESHSUB, packed(changed, stolen, unsigned, as_hub))
        assert await until(lambda: hub.counters.misbehaviour == 3)
        assert hub.counters.delivered == 0
        assert await answers(hub, leaf)


async def test_messages_that_break_our_rules_are_not_passed_on() -> None:
    async with star(1) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        too_large = attacker.message(b"x" * 16_385)
        short_number = attacker.message(b"x")
        short_number.seqno = b"\x01"
        await attacker.throw(hub.addresses[0], MESHSUB, packed(too_large, short_number))
        assert await until(lambda: hub.counters.misbehaviour == 2)
        assert (hub.counters.delivered, leaf.counters.delivered) == (0, 0)


async def test_replays_are_delivered_once_and_old_ones_not_at_all() -> None:
    async with star(1) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        message = attacker.message(b"once")
        old = attacker.message(b"an hour old", far_in_the_past())
        stream = await attacker.stream(hub.addresses[0], MESHSUB)
        for _ in range(20):
            await stream.write(packed(message, message))
        await stream.write(packed(old))
        assert await until(lambda: hub.counters.stale == 1)
        assert await take(hub, 2, timeout_s=0.2) == [b"once"]
        assert await take(leaf, 2, timeout_s=0.2) == [b"once"]
        # The ids of seen messages are kept for two minutes; then the number alone tells.
        newer = attacker.message(b"newer", time.time_ns() + 200 * 10**9)
        await stream.write(packed(newer))
        assert await take(hub, 1) == [b"newer"]
        hub._pubsub.seen_messages.cache.clear()
        await stream.write(packed(message))
        assert await until(lambda: hub.counters.stale == 2)
        assert hub.counters.misbehaviour == 0


async def test_a_flood_is_held_up_at_its_source_and_others_are_heard() -> None:
    limited = replace(QUICK, rate_per_forwarder=50, rate_per_originator=5, burst_per_originator=10)
    async with star(1, limited) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        stream = await attacker.stream(hub.addresses[0], MESHSUB)
        flood = [attacker.message(b"flood %d" % number) for number in range(400)]
        await stream.write(packed(*flood))
        await leaf.publish(TOPIC, b"ask")
        heard = await take(hub, 40, timeout_s=1.5)
        assert b"ask" in heard
        assert len(heard) < 25
        # 50 at once, then 50 a second: the rest still waits on the flooder's own stream.
        assert hub.counters.over_rate < 200
        assert await answers(hub, leaf)


async def test_many_originators_behind_one_connection_are_held_up_too() -> None:
    limited = replace(QUICK, rate_per_forwarder=20)
    async with star(1, limited) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        strangers = [Stock(cast(Any, _key_only(number))) for number in range(100)]
        await attacker.throw(
            hub.addresses[0], MESHSUB, packed(*(stranger.message(b"x") for stranger in strangers))
        )
        await trio.sleep(1)
        assert 20 <= hub.counters.delivered <= 60
        assert await answers(hub, leaf)


def _key_only(number: int) -> Any:
    """Enough of a host to sign a message."""
    pair = create_new_key_pair(secret_of(2_000 + number))

    class KeyOnly:
        def get_id(self) -> ID:
            return ID.from_pubkey(pair.public_key)

        def get_private_key(self) -> Any:
            return pair.private_key

        def get_public_key(self) -> Any:
            return pair.public_key

    return KeyOnly()


async def test_a_peer_that_goes_on_is_banned_and_cut_while_others_stay() -> None:
    async with star(1) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        for _ in range(5):
            await attacker.throw(hub.addresses[0], MESHSUB, encode_uvarint(2**40))
        assert await until(lambda: hub.counters.banned == 1)
        assert await until(lambda: [view.peer_id for view in hub.peers()] == [leaf.peer_id])
        with suppress(*GONE):
            await attacker.throw(hub.addresses[0], MESHSUB, packed(attacker.message(b"me again")))
        await trio.sleep(0.5)
        assert hub.counters.delivered == 0
        assert [view.peer_id for view in hub.peers()] == [leaf.peer_id]
        assert await answers(hub, leaf)


async def test_bytes_that_are_no_handshake_and_silence_harm_nobody() -> None:
    async with star(1) as (hub, leaf):
        port = int(Multiaddr(hub.addresses[0]).value_for_protocol("tcp"))
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4_096, b"\xff" * 4_096):
            async with await trio.open_tcp_stream("127.0.0.1", port) as connection:
                await connection.send_all(greeting)
        async with await trio.open_tcp_stream("127.0.0.1", port):
            assert await answers(hub, leaf)  # while somebody says nothing at all


async def test_ciphertext_that_does_not_decrypt_ends_its_connection_only() -> None:
    async with star(1) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        stream = await attacker.stream(hub.addresses[0], MESHSUB)
        muxed: Any = stream.muxed_conn
        raw = muxed.secured_conn.conn.read_writer.read_write_closer
        for _ in range(3):
            await raw.write(b"\x00\x40" + b"\xaa" * 64)
        # A frame announced and never sent whole, too.
        await muxed.secured_conn.write(b"\x00\x00\x00\x01\x00\x00\x00\x63\x00\x00\x10\x00half")
        await trio.sleep(0.3)
        assert await answers(hub, leaf)


async def test_a_peer_that_opens_streams_without_end_takes_no_one_elses() -> None:
    served = 0

    async def idle(_: INetStream) -> None:
        nonlocal served
        served += 1
        await trio.sleep_forever()

    async with star(1) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        hub.serve_stream("/test/idle/1", idle)
        refused = 0
        for _ in range(STREAMS_PER_PEER_MAX + 20):
            try:
                await attacker.stream(hub.addresses[0], "/test/idle/1")
            except StreamFailure:
                refused += 1
        assert served <= STREAMS_PER_PEER_MAX
        assert refused >= 20
        assert await answers(hub, leaf)


async def test_a_negotiation_of_nonsense_harms_nobody() -> None:
    async with star(1) as (hub, leaf), running_plain(secret_of(901)) as attacker:
        peer = await attacker.connect(hub.addresses[0])
        for nonsense in (
            b"\xff" * 50,
            b"\x00",
            b"\x05\xff\xfe\xfd\xfc\n",
            b"\x13/multistream/9.9.9\n",
        ):
            stream = await attacker.host.get_network().new_stream(peer)
            await stream.write(nonsense)
        await trio.sleep(0.2)
        assert await answers(hub, leaf)


async def test_a_peer_that_reads_nothing_does_not_hold_up_the_others() -> None:
    async with (
        star(1, replace(QUICK, publish_rate=2_000)) as (hub, leaf),
        running_plain(secret_of(901)) as deaf,
    ):
        await deaf.connect(hub.addresses[0])
        deaf.host.set_stream_handler(cast(Any, MESHSUB), _never_reading)
        hello = rpc_pb2.RPC()
        hello.subscriptions.add(subscribe=True, topicid=TOPIC)
        framed_hello = encode_varint_prefixed(hello.SerializeToString())
        await deaf.throw(hub.addresses[0], MESHSUB, framed_hello)
        await hub.wait_for_peers(TOPIC, 2)
        with trio.fail_after(30):
            for number in range(300):
                await hub.publish(TOPIC, b"%d" % number + b"x" * 4_000)
        assert len(await take(leaf, 256)) >= 200
        assert await answers(hub, leaf)


async def _never_reading(_: INetStream) -> None:
    await trio.sleep_forever()


async def test_an_overlay_that_was_attacked_stops_in_time() -> None:
    async with running_plain(secret_of(901)) as attacker:
        async with open_overlay(QUICK, secret_of(1)) as hub:
            for _ in range(10):
                await attacker.throw(hub.addresses[0], MESHSUB, encode_uvarint(900_000))
            stopping = trio.current_time()
        assert trio.current_time() - stopping < 10
