"""API processes beside the matchmaker: each takes orders and answers from the database alone.

uvicorn starts them on one address, and another one where one ended. They share nothing but the
database, so any number may run, on several machines with PostgreSQL.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from fastapi import FastAPI
from uvicorn import Config
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from cloud_gpu.protocol.errors import SettingsInvalid, StorageFailed
from market.api.listening import require_free
from market.ports import BookView
from market.standing import Standing

_GRACE_S = 2
_START_S = 60.0
_LOOK_S = 0.5
_log = logging.getLogger("cloud_gpu.market.workers")


class Following:
    """The market's standing as the database has it, read again and again."""

    def __init__(self, view: BookView) -> None:
        """Raises SettingsInvalid when no market ran here yet."""
        self._view = view
        found = view.standing()
        if found is None:
            raise SettingsInvalid(
                "database: no market ever ran on it. Start `cloud-gpu-market run` first: workers"
                " read the fee and the products that it writes"
            )
        self._standing = found

    def standing(self) -> Standing:
        """The newest that was read."""
        return self._standing

    @asynccontextmanager
    async def running(self, _app: FastAPI) -> AsyncIterator[None]:
        """An app's lifespan, in which the standing is kept current."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            yield
            tasks.cancel_scope.cancel()

    async def _follow(self) -> None:
        while True:
            await anyio.sleep(_LOOK_S)
            try:
                found = await anyio.to_thread.run_sync(self._view.standing)
            except StorageFailed as error:  # its age tells whoever asks for our health
                _log.warning("standing.unread", extra={"error": str(error)})
            else:
                self._standing = found or self._standing


class _SharedAddress(socket.socket):
    """Sent to another process, it is bound there once more: the kernel spreads connections.

    Of one socket for all, the worker that wakes first takes every connection of a burst.
    """

    @classmethod
    def bound(cls, host: str, port: int) -> _SharedAddress:
        found = cls(socket.AF_INET6 if ":" in host else socket.AF_INET)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((host, port))
        return found

    def __reduce__(self) -> tuple[Callable[[str, int], _SharedAddress], tuple[str, int]]:
        return _SharedAddress.bound, self.getsockname()[:2]


class _Workers(Multiprocess):
    def __init__(self, config: Config, ready: Callable[[str], None]) -> None:
        self._listening = _SharedAddress.bound(config.host, config.port)
        super().__init__(config, sockets=[self._listening])
        self._ready = ready

    def init_processes(self) -> None:
        """Start them; tell the URL once all of them serve."""
        super().init_processes()
        if all(each.wait_until_ready(_START_S, self.should_exit) for each in self.processes):
            host, port = self._listening.getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


def run_workers(
    make_app: Callable[[], FastAPI], listen: str, count: int, ready: Callable[[str], None]
) -> int:
    """Serve until SIGTERM or Ctrl-C, with `count` processes that each call `make_app`.

    `make_app` is sent to them by pickle. Returns the exit code. Raises SettingsInvalid when the
    address is taken or not ours.
    """
    require_free("listen_api", listen)
    host, _, port = listen.rpartition(":")
    config = Config(
        make_app,
        factory=True,
        host=host.strip("[]"),
        port=int(port),
        workers=count,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # `Limiting` reads them, of proxies that the settings name
        lifespan="on",
        timeout_graceful_shutdown=_GRACE_S,
    )
    workers = _Workers(config, ready)
    workers.run()
    return int(any(each.exitcode == STARTUP_FAILURE for each in workers.processes))
