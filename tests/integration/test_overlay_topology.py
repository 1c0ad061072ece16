"""Everybody hears everybody, once, in stars and chains, over restarts, at a bounded rate."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from cloud_gpu.protocol.adapters.gossip import GossipMessage, Overlay, OverlaySettings, open_overlay
from cloud_gpu.protocol.errors import PeerUnreachable, RequestRefused
from tests.support.overlay import QUICK, TOPIC, answers, secret_of, star, stay, take, until


@pytest.fixture
def fixed() -> OverlaySettings:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return replace(QUICK, listen=f"/ip4/127.0.0.1/tcp/{probe.getsockname()[1]}")


async def test_everyone_but_the_sender_hears_a_message_once_with_its_originator() -> None:
    async with star(3) as peers:
        left = peers[1]
        await left.publish(TOPIC, b"ask")
        for peer in peers:
            expected = [] if peer is left else [b"ask"]
            assert await take(peer, 2, timeout_s=0.4) == expected
        await left.publish(TOPIC, b"again")
        message = await peers[3].messages(TOPIC).receive()
        assert message == GossipMessage(topic=TOPIC, originator=left.peer_id, payload=b"again")
        assert peers[3].counters.delivered == 2


async def test_leaves_outside_the_mesh_of_a_small_hub_hear_within_seconds() -> None:
    # degree_high=1: the hub prunes all leaves but a few, who then are in back-off for 60 s.
    async with star(4, replace(QUICK, degree_high=1)) as peers:
        hub, speaker, *others = peers
        mesh = hub._pubsub.router.mesh[TOPIC]
        hub._pubsub.router.degree = 1
        assert await until(lambda: len(mesh) == 1)
        for number in range(3):
            await speaker.publish(TOPIC, str(number).encode())
        for peer in (hub, *others):
            assert sorted(await take(peer, 3)) == [b"0", b"1", b"2"]


async def test_a_chain_passes_messages_on() -> None:
    async with (
        open_overlay(QUICK, secret_of(1)) as first,
        open_overlay(replace(QUICK, bootstrap=first.addresses), secret_of(2)) as middle,
        open_overlay(replace(QUICK, bootstrap=middle.addresses), secret_of(3)) as last,
    ):
        await middle.wait_for_peers(TOPIC, 2)
        for number in range(90):
            await first.publish(TOPIC, str(number).encode())
        assert len(await take(last, 90)) == 90


async def test_a_peer_that_restarts_with_its_key_is_heard_at_once() -> None:
    async with open_overlay(QUICK, secret_of(1)) as hub:
        for _ in range(3):
            joining = replace(QUICK, bootstrap=hub.addresses)
            async with open_overlay(joining, secret_of(2)) as leaf:
                await leaf.wait_for_peers(TOPIC, 1)
                for number in range(40):
                    await leaf.publish(TOPIC, str(number).encode())
                assert len(await take(hub, 40)) == 40


async def test_what_was_published_before_leaving_still_arrives() -> None:
    async with open_overlay(QUICK, secret_of(1)) as hub:
        async with open_overlay(replace(QUICK, bootstrap=hub.addresses), secret_of(2)) as leaf:
            await leaf.wait_for_peers(TOPIC, 1)
            for number in range(20):
                await leaf.publish(TOPIC, str(number).encode())
        assert len(await take(hub, 20)) == 20


async def test_leaves_come_back_to_a_hub_that_restarts(fixed: OverlaySettings) -> None:

    @asynccontextmanager
    async def hub() -> AsyncIterator[Overlay]:
        async with open_overlay(fixed, secret_of(1)) as overlay:
            yield overlay

    async with trio.open_nursery() as nursery:
        async with hub() as before:
            joining = replace(QUICK, bootstrap=before.addresses)
            leaves = [
                await nursery.start(stay, joining, secret_of(2 + number)) for number in range(2)
            ]
            await before.wait_for_peers(TOPIC, 2)
        for leaf in leaves:
            assert await until(lambda leaf=leaf: leaf.peers() == ())  # type: ignore[misc]
        async with hub() as after:
            await after.wait_for_peers(TOPIC, 2)
            await leaves[0].publish(TOPIC, b"back")
            assert await take(leaves[1], 1) == [b"back"]
        nursery.cancel_scope.cancel()


async def test_a_chatterbox_is_limited_and_nobody_else_pays() -> None:
    limited = replace(QUICK, rate_per_originator=5, burst_per_originator=20, publish_rate=500)
    async with star(2, limited) as (hub, chatterbox, honest):
        for number in range(120):
            await chatterbox.publish(TOPIC, b"spam %d" % number)
        await honest.publish(TOPIC, b"ask")
        heard = await take(hub, 60, timeout_s=1.0)
        assert b"ask" in heard
        assert 20 <= len(heard) <= 32
        assert hub.counters.over_rate >= 85
        assert hub.counters.banned == 0


async def test_a_reader_that_is_behind_loses_the_oldest() -> None:
    async with star(1, replace(QUICK, held_messages_max=10)) as (hub, leaf):
        for number in range(30):
            await leaf.publish(TOPIC, str(number).encode())
        assert await until(lambda: hub.counters.delivered == 30)
        assert await take(hub, 10) == [str(number).encode() for number in range(20, 30)]
        assert hub.counters.dropped_reader_behind == 20


async def test_what_cannot_be_published_says_why() -> None:
    async with open_overlay(QUICK, secret_of(1)) as overlay:
        with pytest.raises(ValueError, match="'bids' is not one of this peer's topics"):
            await overlay.publish("bids", b"")
        with pytest.raises(ValueError, match="16385 bytes; at most 16384 are taken"):
            await overlay.publish(TOPIC, b"x" * 16_385)
        with pytest.raises(KeyError):
            overlay.messages("bids")


async def test_the_largest_message_arrives() -> None:
    async with star(1) as (hub, leaf):
        await leaf.publish(TOPIC, b"x" * 16_384)
        assert await take(hub, 1) == [b"x" * 16_384]


async def test_what_the_body_raises_leaves_bare() -> None:
    with pytest.raises(RequestRefused, match="as it is"):
        async with star(1):
            raise RequestRefused("as it is")
    with pytest.raises(trio.TooSlowError), trio.fail_after(0.2):
        async with open_overlay(QUICK, secret_of(1)):
            await trio.sleep_forever()


async def test_the_peer_id_follows_from_the_key() -> None:
    ids = []
    for number in (1, 1, 2):
        async with open_overlay(QUICK, secret_of(number)) as overlay:
            ids.append(overlay.peer_id)
            assert overlay.addresses[0].endswith(f"/p2p/{overlay.peer_id}")
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize("bootstrap", ["nonsense", "/ip4/127.0.0.1/tcp/1", "/ip4/x/tcp/1/p2p/y"])
def test_a_bootstrap_that_is_no_address_is_refused_at_once(bootstrap: str) -> None:
    with pytest.raises(PeerUnreachable, match="is not a peer's address"):
        replace(QUICK, bootstrap=(bootstrap,))


async def test_peers_are_named_with_their_round_trip() -> None:
    async with star(1) as (hub, leaf):
        assert await until(lambda: hub.peers()[0].round_trip_s is not None)
        (view,) = hub.peers()
        assert view.peer_id == leaf.peer_id
        assert 0 < (view.round_trip_s or 0) < 1
        assert view.silent_s < 2
        assert await answers(hub, leaf)
