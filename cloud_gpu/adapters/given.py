"""`GivenSession` as users hold it: a session in a lease that opened without a bid."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cloud_gpu.adapters.console import Console, say_on_stderr
from cloud_gpu.adapters.sessions import BlockingSession
from cloud_gpu.client import Client
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import parse_duration
from cloud_gpu.settings import Settings
from cloud_gpu.taking import Given


class BlockingGiven(BlockingSession):
    """A given lease in a `with` block."""

    def __init__(
        self,
        lease: str | LeaseKey | Given,
        *,
        open_timeout: str | int | None = None,
        env: Mapping[str, str] | None = None,
        market: str | None = None,
        settings: Settings | None = None,
        say: Callable[[str], None] = say_on_stderr,
    ) -> None:
        """`open_timeout` is when to give it up. Raises ValueError for a name that is no lease's."""
        self._settings = settings or self.clients.load({"market": market})
        self._given = LeaseKey.parse(lease) if isinstance(lease, str) else lease
        self._open_within_s = None if open_timeout is None else parse_duration(open_timeout)
        self._env, self._console = dict(env or {}), Console(say)
        self._open = None

    async def _enter(self, client: Client) -> None:
        self._open = await client.take_up(
            self._given,
            echo=self._console.echo,
            progress=self._console.progress,
            within_s=self._open_within_s,
        )
