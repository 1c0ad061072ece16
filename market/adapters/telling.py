"""The matchmaker's word of itself into the database, where API workers read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from market.ports import BookWriter
from market.standing import Standing

if TYPE_CHECKING:
    from trio_typing import TaskStatus  # its stubs, which libp2p brings, shadow trio's own types

_EVERY_S = 1.0


async def tell(
    writer: BookWriter,
    standing: Callable[[], Standing],
    *,
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Write it every second, for ever; started when it was written once. Raises StorageFailed."""
    while True:
        await trio.to_thread.run_sync(writer.stand, standing())
        task_status.started()
        task_status = trio.TASK_STATUS_IGNORED
        await trio.sleep(_EVERY_S)
