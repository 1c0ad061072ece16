"""The chain into the matchmaker."""

from __future__ import annotations

from collections.abc import Callable

from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.ports import Chain


async def follow(chain: Chain, post: Callable[[ChainEvent], None]) -> None:
    """Post what happens on the chain, for ever."""
    async for event in chain.events():
        post(event)
