"""Carries out what the coordinator decides, each effect by the adapter that it concerns."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, assert_never

import structlog

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import (
    Connect,
    PublishRecord,
    PublishVerifier,
    Replay,
    SendAudit,
    Transact,
    VerifierEffect,
)
from cloud_gpu.protocol.errors import PeerUnreachable, RequestRefused, RequestTimedOut
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.ports import Chain
from cloud_gpu.protocol.topics import AUDIT_PROTOCOL, VERIFIERS_TOPIC
from verifier.adapters.records import Records
from verifier.adapters.replay import Replays

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.gossip import Overlay

_SEND_S: Final = 10.0


class Performer:
    """What the runner calls. `replays` is set before it runs: they post to it."""

    replays: Replays

    def __init__(self, chain: Chain, overlay: Overlay, records: Records) -> None:
        self._chain, self._overlay, self._records = chain, overlay, records
        self._addresses: dict[PeerId, tuple[str, ...]] = {}
        self._log = structlog.get_logger(adapter="performer")

    async def __call__(self, effect: VerifierEffect) -> None:
        """Carry out one effect; what fails is given again by the coordinator."""
        match effect:
            case Transact(call=call):
                await self._chain.submit(call)
            case Connect(peer=peer, addresses=addresses):
                self._addresses[peer] = addresses
            case SendAudit():
                await self._send(effect)
            case PublishVerifier(notice=notice):
                await self._overlay.publish(VERIFIERS_TOPIC, to_json(notice))
            case PublishRecord(record=record):
                await self._records.publish(record)
            case Replay():
                await self.replays.perform(effect)
            case _:
                assert_never(effect)

    async def _send(self, effect: SendAudit) -> None:
        target = self._addresses.get(effect.peer) or effect.peer
        try:
            await self._overlay.request(target, AUDIT_PROTOCOL, to_json(effect.message), _SEND_S)
        except (PeerUnreachable, RequestRefused, RequestTimedOut) as error:
            self._log.info(
                "not_sent",
                peer=effect.peer,
                message=type(effect.message).__name__,
                error=str(error)[:200],
            )


def lane_of(effect: VerifierEffect) -> Hashable:
    """Calls in order, a peer's messages in order, each segment's re-executions in order."""
    match effect:
        case Connect(peer=peer) | SendAudit(peer=peer):
            return "peer", peer
        case Replay(evidence=evidence):
            leaf = evidence.leaf
            return "replay", leaf.lease, leaf.batch_no, leaf.i
        case _:
            return type(effect).__name__
