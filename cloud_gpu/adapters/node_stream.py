"""A buyer's own peer on the overlay: messages to nodes and back, files by digest over streams."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import trio

from cloud_gpu.protocol.adapters.artifact_exchange import ArtifactExchange
from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.adapters.gossip import Overlay, OverlaySettings, open_overlay
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import RequestRefused
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import FileRef
from cloud_gpu.protocol.messages import Message
from cloud_gpu.protocol.topics import MESSAGE_PROTOCOL

if TYPE_CHECKING:
    from trio_typing import TaskStatus  # what libp2p brings types trio for mypy

_SEND_S: Final = 5.0
_LISTEN: Final = "/ip4/127.0.0.1/tcp/0"
"""Nodes answer over the connection that we open; nobody dials a buyer."""


class NodeStream:
    """The `Wire` of libp2p."""

    def __init__(self, overlay: Overlay, store: ArtifactStore) -> None:
        self._overlay = overlay
        self._exchange = ArtifactExchange(overlay, store, _nobody)
        self._heard: Callable[[PeerId, Message], None] | None = None
        self._log = structlog.get_logger(part="node-stream")
        overlay.serve(MESSAGE_PROTOCOL, self._answer)

    @property
    def peer(self) -> PeerId:
        """Our own peer: a new one for each process, bound to a lease by a signed `Access`."""
        return PeerId(self._overlay.peer_id)

    def listen(self, heard: Callable[[PeerId, Message], None]) -> None:
        """Who is told what peers send."""
        self._heard = heard

    async def send(self, peer: PeerId, addresses: Sequence[str], message: Message) -> None:
        """See `Wire`."""
        await self._overlay.request(
            _target(peer, addresses), MESSAGE_PROTOCOL, to_json(message), timeout_s=_SEND_S
        )

    async def push(self, peer: PeerId, addresses: Sequence[str], sha256: str) -> None:
        """See `Wire`."""
        await self._exchange.push(_target(peer, addresses), sha256)

    async def fetch(self, peer: PeerId, addresses: Sequence[str], file: FileRef) -> Path:
        """See `Wire`."""
        target = _target(peer, addresses)
        return await self._exchange.fetch(target, file.sha256, size_max=file.size)

    async def _answer(self, peer: str, payload: bytes) -> bytes:
        try:
            message = from_json(payload, Message)
        except ValueError as error:
            raise RequestRefused(f"not a message: {error}") from error
        if self._heard is not None:
            self._heard(PeerId(peer), message)
        return b""


def _target(peer: PeerId, addresses: Sequence[str]) -> str | tuple[str, ...]:
    """Multiaddrs that name this peer; what an advert lists of others is not dialled."""
    named = tuple(address for address in addresses if address.endswith(f"/p2p/{peer}"))
    return named or peer


def _nobody(peer: str, digest: str, direction: str, size: int) -> bool:  # noqa: ARG001
    """Strangers neither get files of a buyer nor leave any."""
    return False


async def started_node_stream(
    store: ArtifactStore, *, task_status: TaskStatus[NodeStream] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a peer of our own until cancelled; `nursery.start` gives it. Raises `OSError`."""
    settings = OverlaySettings(topics=(), listen=_LISTEN)
    async with open_overlay(settings, secrets.token_bytes(32)) as overlay:
        task_status.started(NodeStream(overlay, store))
        await trio.sleep_forever()
