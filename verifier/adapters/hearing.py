"""What a verifier hears: the chain, asks and notices by gossip, messages about batches.

It parses and passes on; who may say what is the coordinator's to decide. What cannot be parsed is
refused to its sender's face and goes no further.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from cloud_gpu.protocol.audit_messages import AuditMessage, SignedVerifierNotice
from cloud_gpu.protocol.codec import from_builtins, from_json
from cloud_gpu.protocol.errors import PeerUnreachable, RequestRefused, RequestTimedOut
from cloud_gpu.protocol.events import (
    AskHeard,
    AuditMessageReceived,
    VerifierEvent,
    VerifierHeard,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.ports import Chain
from cloud_gpu.protocol.topics import ASKS_PROTOCOL, ASKS_TOPIC, AUDIT_PROTOCOL, VERIFIERS_TOPIC

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.gossip import Overlay

_LIST_TIMEOUT_S: Final = 10.0
_LISTED_MAX: Final = 5_000
_LOOK_S: Final = 1.0
_AGAIN_S: Final = 30.0
"""An advert repeated word for word is passed on so often: its key may only now be known."""
_KNOWN_MAX: Final = 20_000


async def follow(chain: Chain, post: Callable[[VerifierEvent], None]) -> None:
    """The chain, for ever."""
    async for event in chain.events():
        post(event)


class Hearing:
    """Overlay to events."""

    def __init__(self, overlay: Overlay, post: Callable[[VerifierEvent], None]) -> None:
        self._overlay, self._post = overlay, post
        self._passed: OrderedDict[bytes, float] = OrderedDict()
        self._asked: set[str] = set()
        self._log = structlog.get_logger(adapter="hearing")
        overlay.serve(AUDIT_PROTOCOL, self._receive)

    async def asks(self) -> None:
        """Adverts by gossip, for ever."""
        async for message in self._overlay.messages(ASKS_TOPIC):
            if not self._is_new(message.payload):
                continue
            try:
                advert = from_json(message.payload, SignedAdvert)
            except ValueError as error:
                self._log.info("advert_malformed", peer=message.originator, error=str(error)[:200])
                continue
            self._post(AskHeard(advert=advert))

    async def notices(self) -> None:
        """Verifiers by gossip, for ever."""
        async for message in self._overlay.messages(VERIFIERS_TOPIC):
            try:
                notice = from_json(message.payload, SignedVerifierNotice)
            except ValueError as error:
                self._log.info("notice_malformed", peer=message.originator, error=str(error)[:200])
                continue
            self._post(VerifierHeard(notice=notice))

    async def catch_up(self) -> None:
        """Ask every peer once per connection for the adverts it holds, for ever."""
        while True:
            connected = {peer.peer_id for peer in self._overlay.peers()}
            self._asked &= connected
            async with trio.open_nursery() as nursery:
                for peer in sorted(connected - self._asked):
                    self._asked.add(peer)
                    nursery.start_soon(self._ask, peer)
            await trio.sleep(_LOOK_S)

    async def _ask(self, peer: str) -> None:
        try:
            answer = await self._overlay.request(peer, ASKS_PROTOCOL, b"list", _LIST_TIMEOUT_S)
            adverts = from_json(answer, list[Any])
        except (PeerUnreachable, RequestRefused, RequestTimedOut, ValueError) as error:
            self._log.debug("asks_not_listed", peer=peer, error=str(error)[:200])
            return
        for found in adverts[:_LISTED_MAX]:
            try:
                advert = from_builtins(found, SignedAdvert)
            except ValueError as error:
                self._log.info("advert_malformed", peer=peer, error=str(error)[:200])
                continue
            self._post(AskHeard(advert=advert))
            await trio.lowlevel.checkpoint()

    async def _receive(self, peer: str, payload: bytes) -> bytes:
        try:
            message = from_json(payload, AuditMessage)
        except ValueError as error:
            raise RequestRefused(f"no message about a batch: {error}") from error
        self._post(AuditMessageReceived(peer=PeerId(peer), message=message))
        return b""

    def _is_new(self, payload: bytes) -> bool:
        name, now = sha256(payload).digest(), trio.current_time()
        if now - self._passed.get(name, -_AGAIN_S) < _AGAIN_S:
            return False
        self._passed[name] = now
        self._passed.move_to_end(name)
        while len(self._passed) > _KNOWN_MAX:
            self._passed.popitem(last=False)
        return True
