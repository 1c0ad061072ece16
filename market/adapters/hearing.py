"""Asks from the overlay: gossip as it comes, and the lists of peers that were there before.

Only what would change the book becomes an event; junk, repeats and stale asks stop here, so that
neither the journal nor the matchmaker grows with what peers repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
import trio

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.audit_messages import SignedVerifierNotice
from cloud_gpu.protocol.codec import from_builtins, from_json, to_json
from cloud_gpu.protocol.errors import (
    PeerUnreachable,
    RequestRefused,
    RequestTimedOut,
)
from cloud_gpu.protocol.events import AskHeard, VerifierHeard
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.ports import Clock
from cloud_gpu.protocol.topics import ASKS_PROTOCOL, ASKS_TOPIC, VERIFIERS_TOPIC
from market.matchmaker import Matchmaker

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.gossip import Overlay

_LIST = b"list"
_LIST_TIMEOUT_S = 10.0
_LOOK_S = 1.0
_ANSWER_BYTES_MAX = limits.MESSAGE_BYTES_MAX - 1_024
_LISTED_MAX = 5_000


class Hearing:
    """What a market hears on the overlay, and what it tells peers that ask."""

    def __init__(
        self,
        overlay: Overlay,
        market: Matchmaker,
        post: Callable[[AskHeard | VerifierHeard], None],
        clock: Clock,
        heard: Callable[[str], None],
    ) -> None:
        """`heard` is told what became of each advert: "taken", "malformed", or a reason."""
        self._overlay, self._market, self._post = overlay, market, post
        self._clock, self._heard = clock, heard
        self._asked: set[str] = set()
        self._log = structlog.get_logger(adapter="hearing")
        overlay.serve(ASKS_PROTOCOL, self._answer)

    async def listen(self) -> None:
        """Gossip, for ever."""
        async for message in self._overlay.messages(ASKS_TOPIC):
            try:
                advert = from_json(message.payload, SignedAdvert)
            except ValueError as error:
                self._heard("malformed")
                self._log.info("advert.malformed", peer=message.originator, error=str(error)[:200])
                continue
            self._consider(advert, message.originator)

    async def listen_to_verifiers(self) -> None:
        """Heartbeats of those who audit verified leases, for ever."""
        async for message in self._overlay.messages(VERIFIERS_TOPIC):
            try:
                notice = from_json(message.payload, SignedVerifierNotice)
            except ValueError as error:
                self._log.info("notice.malformed", peer=message.originator, error=str(error)[:200])
                continue
            if self._market.examine_notice(notice, self._clock.now()):
                self._post(VerifierHeard(notice=notice))

    async def catch_up(self) -> None:
        """Ask every peer once per connection for what it holds, for ever."""
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
            answer = await self._overlay.request(peer, ASKS_PROTOCOL, _LIST, _LIST_TIMEOUT_S)
            adverts = from_json(answer, list[Any])
        except (PeerUnreachable, RequestRefused, RequestTimedOut, ValueError) as error:
            self._log.debug("asks.not_listed", peer=peer, error=str(error)[:200])
            return
        for found in adverts[:_LISTED_MAX]:
            try:
                advert = from_builtins(found, SignedAdvert)
            except ValueError:
                self._heard("malformed")
                continue
            self._consider(advert, peer)
            await trio.lowlevel.checkpoint()

    def _consider(self, advert: SignedAdvert, peer: str) -> None:
        refused = self._market.examine(advert, self._clock.now())
        if refused is None:
            self._heard("taken")
            self._post(AskHeard(advert=advert))
            return
        self._heard(refused.reason.value)
        self._log.debug("advert.refused", peer=peer, reason=str(refused))

    async def _answer(self, peer: str, payload: bytes) -> bytes:
        if payload != _LIST:
            raise RequestRefused(f'the only question here is "list", asked by {peer}')
        parts: list[bytes] = []
        size = 2
        for advert in self._market.adverts():
            part = to_json(advert)
            size += len(part) + 1
            if size > _ANSWER_BYTES_MAX:
                break
            parts.append(part)
        return b"[" + b",".join(parts) + b"]"
