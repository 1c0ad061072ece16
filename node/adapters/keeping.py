"""The artefact store of a node: who may bring and fetch files, and when they are thrown away.

What a job of a known lease took or returned is kept; the rest goes after an hour, in which its job
may still arrive. What one peer brings is bounded, so that no buyer fills the store for the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
import trio

from cloud_gpu.protocol.adapters.artifacts import ArtifactMissing, ArtifactStore
from cloud_gpu.protocol.errors import ArtifactRejected
from cloud_gpu.protocol.identity import PeerId

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.artifact_exchange import Direction

UNCLAIMED_S: Final = 3_600
_SWEEP_EVERY_S: Final = 600.0

_log = structlog.get_logger(adapter="keeping")


class Keeping:
    """Answers the artefact exchange, and sweeps."""

    def __init__(
        self,
        store: ArtifactStore,
        *,
        may_fetch: Callable[[PeerId, str], bool],
        may_push: Callable[[PeerId, int], bool],
        is_kept: Callable[[str], bool],
        peer_bytes_max: int,
    ) -> None:
        self._store, self._is_kept = store, is_kept
        self._may_fetch, self._may_push = may_fetch, may_push
        self._peer_bytes_max = peer_bytes_max
        self._brought: dict[PeerId, dict[str, int]] = {}
        """By peer, the sizes of files that it was allowed to bring and that are still here."""

    def authorise(self, peer: str, digest: str, direction: Direction, size: int) -> bool:
        """See `Authorise`."""
        who = PeerId(peer)
        if direction == "fetch":
            return self._may_fetch(who, digest)
        if not self._may_push(who, size):
            return False
        brought = self._brought.setdefault(who, {})
        others = sum(brought.values()) - brought.get(digest, 0)
        if others + size > self._peer_bytes_max:
            _log.warning("peer_brings_too_much", peer=peer, bytes=others + size)
            return False
        brought[digest] = size
        return True

    def sweep(self, now_s: float) -> int:
        """Throw away what nobody needs; how many files went. Blocking."""
        gone = 0
        for digest in self._store.digests():
            try:
                age_s = now_s - self._store.path_of(digest).stat().st_mtime
                if age_s > UNCLAIMED_S and not self._is_kept(digest):
                    self._store.remove(digest)
                    gone += 1
            except (ArtifactMissing, ArtifactRejected, FileNotFoundError):
                continue  # removed or replaced meanwhile
        self._forget_gone()
        return gone

    def _forget_gone(self) -> None:
        for peer, brought in list(self._brought.items()):
            left = {digest: size for digest, size in brought.items() if self._store.has(digest)}
            if left:
                self._brought[peer] = left
            else:
                del self._brought[peer]

    async def sweep_for_ever(self) -> None:
        """Now and every ten minutes. In the loop's own thread: the party is asked on the way."""
        while True:
            if gone := self.sweep(time.time()):
                _log.info("artifacts_swept", files=gone)
            await trio.sleep(_SWEEP_EVERY_S)
