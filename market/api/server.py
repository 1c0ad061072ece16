"""Serves the app on trio, in the nursery of the caller; port 0 is any free one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import hypercorn.trio
import trio
from fastapi import FastAPI
from hypercorn.config import Config

from market.api.listening import require_free

if TYPE_CHECKING:
    from trio_typing import TaskStatus  # its stubs, which libp2p brings, shadow trio's own types

_GRACE_S = 2


async def serve_http(
    app: FastAPI, listen: str, *, task_status: TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; reports the URL once it accepts connections.

    Raises SettingsInvalid when the address is taken or not ours.
    """
    require_free("listen_http", listen)
    config = Config()
    config.bind = [listen]
    config.graceful_timeout = _GRACE_S
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    stop = trio.Event()

    async def serving(*, task_status: TaskStatus[list[str]]) -> None:
        await hypercorn.trio.serve(
            cast(Any, app), config, shutdown_trigger=stop.wait, task_status=task_status
        )

    async with trio.open_nursery() as nursery:
        bound = await nursery.start(serving)
        task_status.started(bound[0])
