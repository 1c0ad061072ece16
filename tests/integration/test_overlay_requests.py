"""Direct requests: one answer, a refusal with a reason, or an error in bounded time."""

import socket

import pytest
import trio
from libp2p.abc import INetStream

from cloud_gpu.protocol.adapters.frames import framed
from cloud_gpu.protocol.adapters.gossip import Overlay, open_overlay
from cloud_gpu.protocol.adapters.requests import ANSWER_BYTES_MAX, PER_PEER_MAX
from cloud_gpu.protocol.errors import PeerUnreachable, RequestRefused, RequestTimedOut
from cloud_gpu.protocol.limits import MESSAGE_BYTES_MAX
from tests.support.overlay import QUICK, echo, running_plain, secret_of, star, until

ECHO = "/test/echo/1"


async def test_a_request_goes_by_address_by_id_and_towards_who_dialled_us() -> None:
    async with star(1) as (hub, leaf):
        asked_by: list[str] = []

        async def answer(peer: str, payload: bytes) -> bytes:
            asked_by.append(peer)
            return payload[::-1]

        for overlay in (hub, leaf):
            overlay.serve(ECHO, answer)
        assert await leaf.request(hub.addresses[0], ECHO, b"ab") == b"ba"
        assert await leaf.request(list(hub.addresses), ECHO, b"cd") == b"dc"
        assert await leaf.request(hub.peer_id, ECHO, b"ef") == b"fe"
        assert await hub.request(leaf.peer_id, ECHO, b"gh") == b"hg"
        assert asked_by == [leaf.peer_id] * 3 + [hub.peer_id]


async def test_the_largest_request_and_answer_pass() -> None:
    async with star(1) as (hub, leaf):

        async def answer(_: str, payload: bytes) -> bytes:
            return payload * (ANSWER_BYTES_MAX // len(payload))

        hub.serve("/test/large/1", answer)
        answered = await leaf.request(hub.peer_id, "/test/large/1", b"x" * MESSAGE_BYTES_MAX, 20)
        assert len(answered) == ANSWER_BYTES_MAX
        with pytest.raises(ValueError, match="send bulk as an artefact"):
            await leaf.request(hub.peer_id, "/test/large/1", b"x" * (MESSAGE_BYTES_MAX + 1))


async def test_refusals_carry_their_reason() -> None:
    async def no(_peer: str, _payload: bytes) -> bytes:
        raise RequestRefused("the lease is not yours")

    async def bug(_peer: str, _payload: bytes) -> bytes:
        raise ZeroDivisionError

    async def bloated(_peer: str, _payload: bytes) -> bytes:
        return b"x" * (ANSWER_BYTES_MAX + 1)

    async with star(1) as (hub, leaf):
        hub.serve("/test/no/1", no)
        hub.serve("/test/bug/1", bug)
        hub.serve("/test/bloated/1", bloated)
        for protocol, reason in (
            ("/test/no/1", "the lease is not yours"),
            ("/test/bug/1", "the handler failed"),
            ("/test/bloated/1", "more than 10485760 bytes"),
            ("/test/unknown/1", "does not serve /test/unknown/1"),
        ):
            with pytest.raises(RequestRefused, match=reason):
                await leaf.request(hub.peer_id, protocol, b"")


async def test_no_answer_in_time_is_told_from_no_connection() -> None:
    async def late(_peer: str, _payload: bytes) -> bytes:
        await trio.sleep_forever()

    async with star(1) as (hub, leaf):
        hub.serve("/test/late/1", late)
        started = trio.current_time()
        with pytest.raises(RequestTimedOut, match=r"within 0\.3 s"):
            await leaf.request(hub.peer_id, "/test/late/1", b"", 0.3)
        assert trio.current_time() - started < 10


async def test_a_dead_peer_is_unreachable_in_bounded_time() -> None:
    async with open_overlay(QUICK, secret_of(2)) as gone:
        dead = gone.addresses
    async with open_overlay(QUICK, secret_of(1)) as overlay:
        for target in (dead, gone.peer_id, "nonsense", "/ip4/1.2.3.4/tcp/1", overlay.peer_id):
            with trio.fail_after(10), pytest.raises(PeerUnreachable):
                await overlay.request(target, ECHO, b"")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            mute = f"/ip4/127.0.0.1/tcp/{silent.getsockname()[1]}/p2p/{gone.peer_id}"
            with trio.fail_after(10), pytest.raises(PeerUnreachable, match=r"within 0\.5 s"):
                await overlay.request(mute, ECHO, b"", 0.5)


async def test_another_peer_at_the_address_is_not_taken_for_the_one_meant() -> None:
    async with star(1) as (hub, leaf), open_overlay(QUICK, secret_of(9)) as asker:
        hub.serve(ECHO, echo)
        impostor = hub.addresses[0].replace(hub.peer_id, leaf.peer_id)
        with trio.fail_after(10), pytest.raises(PeerUnreachable):
            await asker.request(impostor, ECHO, b"secret")
        mixed = (hub.addresses[0], leaf.addresses[0])
        with pytest.raises(PeerUnreachable, match="does not name exactly one peer"):
            await asker.request(mixed, ECHO, b"secret")


async def test_many_at_once_are_queued_by_the_client_and_all_answered() -> None:
    open_now = most = 0

    async def slow(_: str, payload: bytes) -> bytes:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await trio.sleep(0.02)
        open_now -= 1
        return payload

    async with star(1) as (hub, leaf):
        hub.serve("/test/slow/1", slow)
        answered: list[bytes] = []

        async def ask(number: int) -> None:
            answered.append(await leaf.request(hub.peer_id, "/test/slow/1", b"%d" % number, 20))

        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(ask, number)
        assert sorted(answered) == sorted(b"%d" % number for number in range(60))
        assert most <= PER_PEER_MAX


async def test_a_peer_that_asks_too_much_at_once_is_told_that_we_are_busy() -> None:
    async def late(_peer: str, _payload: bytes) -> bytes:
        await trio.sleep(1)
        return b"done"

    async with star(1) as (hub, _), running_plain(secret_of(901)) as greedy:
        hub.serve("/test/late/1", late)
        replies: list[bytes] = []

        async def ask() -> None:
            stream = await greedy.stream(hub.addresses[0], "/test/late/1")
            await stream.write(framed(b""))
            replies.append(await stream.read(1_000))

        async with trio.open_nursery() as nursery:
            for _ in range(PER_PEER_MAX + 4):
                nursery.start_soon(ask)
        assert sum(b"busy" in reply for reply in replies) == 4


async def test_a_peer_lost_in_the_middle_is_unreachable() -> None:
    async with star(1) as (hub, leaf):

        async def hang_up(_: INetStream) -> None:
            await hub.disconnect(leaf.peer_id)

        hub.serve_stream("/test/hang-up/1", hang_up)
        with trio.fail_after(10), pytest.raises(PeerUnreachable):
            await leaf.request(hub.peer_id, "/test/hang-up/1", b"")
        hub.serve(ECHO, echo)
        assert await leaf.request(hub.peer_id, ECHO, b"back") == b"back"


async def test_a_cancelled_request_gives_its_place_back() -> None:
    async def late(_peer: str, _payload: bytes) -> bytes:
        await trio.sleep_forever()

    async with star(1) as (hub, leaf):
        hub.serve("/test/late/1", late)
        hub.serve(ECHO, echo)
        async with trio.open_nursery() as nursery:
            for _ in range(PER_PEER_MAX):
                nursery.start_soon(leaf.request, hub.peer_id, "/test/late/1", b"", 60)
            await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
        assert await leaf.request(hub.peer_id, ECHO, b"x", 20) == b"x"


async def test_an_answer_that_is_junk_harms_nobody() -> None:
    async with star(1) as (hub, leaf):
        for number, junk in enumerate((b"", b"\x00", b"\x07\x00\x00\x00\x01x", b"\xff" * 100)):

            async def answer(stream: INetStream, junk: bytes = junk) -> None:
                await stream.write(junk)
                await stream.close()

            hub.serve_stream(f"/test/junk/{number}", answer)
            with trio.fail_after(20), pytest.raises((PeerUnreachable, RequestRefused)):
                await leaf.request(hub.peer_id, f"/test/junk/{number}", b"", 10)
        hub.serve(ECHO, echo)
        assert await leaf.request(hub.peer_id, ECHO, b"x") == b"x"


async def test_an_announced_request_above_the_limit_is_refused_unread() -> None:
    async with star(1) as (hub, _), running_plain(secret_of(901)) as attacker:
        hub.serve(ECHO, echo)
        stream = await attacker.stream(hub.addresses[0], ECHO)
        await stream.write((2**31).to_bytes(4, "big"))
        reply = await stream.read(1_000)
        assert reply[0] == 1
        assert b"2147483648 bytes, at most 1048576" in reply
        assert await until(lambda: hub.counters.misbehaviour == 1)


async def test_it_answers_while_gossip_flows() -> None:
    async with star(2) as (hub, left, right):
        hub.serve(ECHO, echo)

        async def chatter(overlay: Overlay) -> None:
            for number in range(100):
                await overlay.publish("asks", b"%d" % number)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(chatter, left)
            for number in range(20):
                assert await right.request(hub.peer_id, ECHO, b"%d" % number) == b"%d" % number
