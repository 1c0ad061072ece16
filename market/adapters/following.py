"""The chain into the matchmaker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from cloud_gpu.protocol.chain_events import ChainAdvanced, ChainEvent
from cloud_gpu.protocol.ports import Chain

if TYPE_CHECKING:
    from trio_typing import TaskStatus  # its stubs, which libp2p brings, shadow trio's own types


async def follow(
    chain: Chain,
    post: Callable[[ChainEvent], None],
    *,
    task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Post what happens on the chain, for ever; started when a first block was told of."""
    is_started = False
    async for event in chain.events():
        post(event)
        if isinstance(event, ChainAdvanced) and not is_started:
            is_started = True
            task_status.started()
