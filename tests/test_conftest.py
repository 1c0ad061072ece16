"""The guard that keeps tests off the network is itself tested: a broken one would be silent."""

import socket

import httpx
import pytest
import trio

from tests.conftest import NetworkBlocked

ELSEWHERE = "192.0.2.1"  # TEST-NET-1, routed nowhere


def test_connect_to_another_machine_is_blocked() -> None:
    with socket.socket() as sock, pytest.raises(NetworkBlocked, match=ELSEWHERE):
        sock.connect((ELSEWHERE, 80))


def test_datagram_to_another_machine_is_blocked() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(NetworkBlocked):
        sock.sendto(b"x", (ELSEWHERE, 80))


async def test_async_client_is_blocked_on_trio() -> None:
    assert trio.lowlevel.current_task() is not None
    async with httpx.AsyncClient() as client:
        with pytest.raises(NetworkBlocked):
            await client.get(f"http://{ELSEWHERE}/")


def test_name_lookup_is_blocked() -> None:
    with pytest.raises(NetworkBlocked, match=r"example\.invalid"):
        socket.getaddrinfo("example.invalid", 80)


def test_loopback_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
