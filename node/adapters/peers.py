"""The node's side of the overlay: messages of leases, adverts by gossip, files of jobs.

It parses and sends; who may say what is the provider's to decide. What cannot be parsed is refused
to its sender's face and goes no further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from cloud_gpu.protocol.audit_messages import AuditMessage
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import (
    PeerUnreachable,
    RequestRefused,
    RequestTimedOut,
)
from cloud_gpu.protocol.events import (
    AuditMessageReceived,
    MessageReceived,
    ProviderEvent,
    SendFailed,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.messages import Message
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.topics import (
    ASKS_PROTOCOL,
    ASKS_TOPIC,
    AUDIT_PROTOCOL,
    MESSAGE_PROTOCOL,
)

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.gossip import Overlay

_SEND_S: Final = 10.0

_log = structlog.get_logger(adapter="peers")


class Peers:
    """What a node says to and hears from others."""

    def __init__(
        self,
        overlay: Overlay,
        post: Callable[[ProviderEvent], None],
        adverts: Callable[[], Sequence[SignedAdvert]],
    ) -> None:
        self._overlay, self._post, self._adverts = overlay, post, adverts
        overlay.serve(MESSAGE_PROTOCOL, self._receive)
        overlay.serve(AUDIT_PROTOCOL, self._receive_audit)
        overlay.serve(ASKS_PROTOCOL, self._list)

    async def send(self, peer: PeerId, message: Message) -> None:
        """Hand a message to a peer; a failure comes back as `SendFailed`."""
        try:
            await self._overlay.request(peer, MESSAGE_PROTOCOL, to_json(message), _SEND_S)
        except (PeerUnreachable, RequestRefused, RequestTimedOut) as error:
            self._post(SendFailed(peer=peer, message=message, detail=str(error)))

    async def send_audit(self, peer: PeerId, message: AuditMessage) -> None:
        """Hand a message to a verifier's peer; a verifier that was not reached asks again."""
        try:
            await self._overlay.request(peer, AUDIT_PROTOCOL, to_json(message), _SEND_S)
        except (PeerUnreachable, RequestRefused, RequestTimedOut) as error:
            _log.info("audit_message_not_sent", peer=peer, error=str(error))

    async def publish(self, advert: SignedAdvert) -> None:
        """Gossip an advert; raises `ValueError` when it is too long."""
        await self._overlay.publish(ASKS_TOPIC, to_json(advert))

    async def _receive(self, peer: str, payload: bytes) -> bytes:
        try:
            message = from_json(payload, Message)
        except ValueError as error:
            raise RequestRefused(f"no message: {error}") from error
        self._post(MessageReceived(peer=PeerId(peer), message=message))
        return b""

    async def _receive_audit(self, peer: str, payload: bytes) -> bytes:
        try:
            message = from_json(payload, AuditMessage)
        except ValueError as error:
            raise RequestRefused(f"no message: {error}") from error
        self._post(AuditMessageReceived(peer=PeerId(peer), message=message))
        return b""

    async def _list(self, peer: str, payload: bytes) -> bytes:  # noqa: ARG002
        if payload != b"list":
            raise RequestRefused('the only question here is "list"')
        return b"[" + b",".join(map(to_json, self._adverts())) + b"]"
