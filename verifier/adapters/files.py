"""Files of evidence and of re-executions: in the store by sha256, fetched from whoever has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import structlog
import trio

from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.errors import (
    ArtifactRejected,
    OutsideWorldError,
    PeerUnreachable,
    RequestRefused,
    RequestTimedOut,
)
from cloud_gpu.protocol.job import FileRef

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.artifact_exchange import ArtifactExchange

Source = str | Sequence[str]
"""A peer id, or multiaddrs of one peer."""

_log = structlog.get_logger(adapter="files")


class Files:
    """The verifier's artefacts."""

    def __init__(self, store: ArtifactStore, exchange: ArtifactExchange) -> None:
        self.store, self._exchange = store, exchange
        self._bringing: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        """By sha256: re-executions side by side often need the same file."""

    async def bring(self, file: FileRef, sources: Iterable[Source]) -> None:
        """Have a file here, from the first source that gives it.

        Raises the last source's `OutsideWorldError`, or `ArtifactRejected` when there is none.
        """
        turn = self._bringing[file.sha256]
        async with turn:
            if not self.store.has(file.sha256):
                await self._fetch(file, sources)
        if not turn.statistics().tasks_waiting:
            self._bringing.pop(file.sha256, None)

    async def _fetch(self, file: FileRef, sources: Iterable[Source]) -> None:
        failure: OutsideWorldError = ArtifactRejected(f"nobody has {file.path[:80]}")
        for source in sources:
            try:
                await self._exchange.fetch(source, file.sha256, size_max=file.size)
            except (
                ArtifactRejected,
                PeerUnreachable,
                RequestRefused,
                RequestTimedOut,
            ) as error:
                _log.info("file_not_fetched", sha256=file.sha256, error=str(error)[:200])
                failure = error
            else:
                return
        raise failure

    async def contents(
        self, wanted: Iterable[str], files: Iterable[FileRef], sources: Sequence[Source]
    ) -> dict[str, bytes]:
        """The bytes of what can be had of `wanted` (sha256); `files` say how large they are."""
        named = {file.sha256: file for file in files}
        found: dict[str, bytes] = {}
        for sha256 in wanted:
            try:
                await self.bring(named[sha256], sources)
            except OutsideWorldError:
                continue  # then it is incomparable
            path = self.store.path_of(sha256)
            found[sha256] = await trio.to_thread.run_sync(path.read_bytes)
        return found
