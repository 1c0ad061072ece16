"""Real peers in real processes: killed, started again, stopped and let go on."""

import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from cloud_gpu.protocol.adapters.gossip import Overlay, open_overlay
from cloud_gpu.protocol.errors import PeerUnreachable, RequestTimedOut
from tests.support.overlay import QUICK, TOPIC, secret_of, take, until

SETTINGS = replace(QUICK, silence_s=2.0)


def free_listen() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"/ip4/127.0.0.1/tcp/{probe.getsockname()[1]}"


@asynccontextmanager
async def peer(key: int, listen: str, *bootstrap: str) -> AsyncIterator[tuple[trio.Process, str]]:
    """A running peer process and its address; killed at the end if it still runs."""
    command = [sys.executable, "-m", "tests.support.overlay_peer", str(key), listen, *bootstrap]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = b""
        with trio.fail_after(30):
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some(1)
        yield process, line.decode().strip()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


async def publish_at(overlay: Overlay, address: str, payload: bytes) -> None:
    await overlay.request(address, "/test/publish/1", payload, 10)


async def test_a_killed_hub_that_starts_again_has_its_leaves_back() -> None:
    listen = free_listen()
    async with peer(1, listen) as (hub, address):
        joining = replace(SETTINGS, bootstrap=(address,))
        async with (
            open_overlay(joining, secret_of(2)) as left,
            open_overlay(joining, secret_of(3)) as right,
        ):
            for leaf in (left, right):
                await leaf.wait_for_peers(TOPIC, 1)
            await left.publish(TOPIC, b"before")
            assert await take(right, 1) == [b"before"]
            hub.kill()
            await hub.wait()
            assert await until(lambda: left.peers() == right.peers() == ())
            with trio.fail_after(10), pytest.raises(PeerUnreachable):
                await left.request(address, "/test/echo/1", b"x")
            async with peer(1, listen) as (_, again):
                assert again == address
                for leaf in (left, right):
                    await leaf.wait_for_peers(TOPIC, 1, timeout_s=30)
                await left.publish(TOPIC, b"after")
                assert await take(right, 1) == [b"after"]
                await publish_at(left, address, b"from the hub, same key")
                assert await take(right, 1) == [b"from the hub, same key"]


async def echoed(asker: Overlay, address: str, payload: bytes) -> bytes | None:
    """What the peer answers, or None when it does not."""
    try:
        return await asker.request(address, "/test/echo/1", payload, 5)
    except (RequestTimedOut, PeerUnreachable):
        return None


async def test_a_stopped_peer_is_noticed_cut_and_taken_back() -> None:
    async with open_overlay(SETTINGS, secret_of(1)) as hub:
        joining = replace(SETTINGS, bootstrap=hub.addresses)
        async with (
            open_overlay(joining, secret_of(2)) as leaf,
            peer(3, SETTINGS.listen, *hub.addresses) as (process, address),
        ):
            await hub.wait_for_peers(TOPIC, 2)
            process.send_signal(signal.SIGSTOP)
            with trio.fail_after(10), pytest.raises((RequestTimedOut, PeerUnreachable)):
                await hub.request(address, "/test/echo/1", b"x", 0.5)
            for number in range(200):  # more than its socket takes: others must not wait for it
                await leaf.publish(TOPIC, b"%d" % number + b"x" * 8_000)
            assert len(await take(hub, 200)) == 200
            assert await until(lambda: [view.peer_id for view in hub.peers()] == [leaf.peer_id], 20)
            process.send_signal(signal.SIGCONT)
            await hub.wait_for_peers(TOPIC, 2, timeout_s=40)
            with trio.fail_after(40):  # it wakes with old connections that are closed one by one
                while await echoed(hub, address, b"back") != b"back":  # noqa: ASYNC110  # the peer tells nobody
                    await trio.sleep(0.2)
