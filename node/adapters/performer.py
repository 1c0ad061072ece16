"""Carries out what the provider decides, each effect by the adapter that it concerns."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import aclosing
from typing import TYPE_CHECKING

from cloud_gpu.protocol.effects import (
    KillJob,
    PauseContainer,
    PrepareContainer,
    ProviderEffect,
    Publish,
    ReadOutput,
    RemoveContainer,
    ResumeContainer,
    Send,
    SendAudit,
    StartJob,
    Transact,
)
from cloud_gpu.protocol.events import ProviderEvent
from node.adapters.peers import Peers
from node.adapters.room import MachineRoom

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.evm import EvmChain


class Performer:
    """What the runner calls. `peers` and `room` are set before it runs: they post to it."""

    peers: Peers
    room: MachineRoom

    def __init__(self, chain: EvmChain) -> None:
        self._chain = chain

    async def follow_chain(self, post: Callable[[ProviderEvent], None]) -> None:
        """Hand on what happens on chain; never returns."""
        async with aclosing(self._chain.events()) as events:
            async for event in events:
                post(event)

    async def __call__(self, effect: ProviderEffect) -> None:
        """Carry out one effect; failures come back as events."""
        match effect:
            case Transact(call=call):
                await self._chain.submit(call)
            case Publish(advert=advert):
                await self.peers.publish(advert)
            case Send(peer=peer, message=message):
                await self.peers.send(peer, message)
            case SendAudit(peer=peer, message=notice):
                await self.peers.send_audit(peer, notice)
            case _:
                await self.room.perform(effect)


def lane_of(effect: ProviderEffect) -> Hashable:
    """What must happen in order happens in one lane: a peer's messages, a lease's container."""
    match effect:
        case Send(peer=peer) | SendAudit(peer=peer):
            return "peer", peer
        case StartJob(spec=spec):
            return "room", spec.lease
        case (
            PrepareContainer(lease=lease)
            | KillJob(lease=lease)
            | PauseContainer(lease=lease)
            | ResumeContainer(lease=lease)
            | RemoveContainer(lease=lease)
        ):
            return "room", lease
        case ReadOutput(lease=lease):
            return "read", lease
        case _:
            return type(effect).__name__
