"""Audit records on disk, and for whoever asks on the overlay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import trio

from cloud_gpu.protocol.audit_messages import AuditRecord
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import RequestRefused
from cloud_gpu.protocol.topics import RECORD_PROTOCOL

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.gossip import Overlay

_NAME: Final = re.compile(rb"0x[0-9a-fA-F]{40}/\d{1,10}/\d{1,8}#\d{1,5}")


class Records:
    """One file a batch: `provider-index-seq-batch.json`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._log = structlog.get_logger(adapter="records")

    def all(self) -> Iterator[AuditRecord]:
        """Those that can be read; others are logged."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                yield from_json(path.read_bytes(), AuditRecord)
            except (OSError, ValueError) as error:
                self._log.warning("record_not_read", path=str(path), error=str(error)[:200])

    async def publish(self, record: AuditRecord) -> None:
        """Keep it, whole or not at all; a newer one of the same batch replaces it."""
        path = self._path(f"{record.lease}#{record.batch_no}")
        await trio.to_thread.run_sync(_write, path, to_json(record))

    def serve(self, overlay: Overlay) -> None:
        """Answer whoever asks for a batch by its name, "provider/index/seq#batch"."""
        overlay.serve(RECORD_PROTOCOL, self._answer)

    async def _answer(self, peer: str, payload: bytes) -> bytes:  # noqa: ARG002  # public
        if not _NAME.fullmatch(payload):
            raise RequestRefused('needed the name of a batch, "provider/index/seq#batch"')
        try:
            path = self._path(payload.decode())
            return await trio.to_thread.run_sync(path.read_bytes)
        except FileNotFoundError as error:
            raise RequestRefused("no record of this batch here") from error

    def _path(self, name: str) -> Path:
        return self._folder / (re.sub(r"[/#]", "-", name.lower()) + ".json")


def _write(path: Path, content: bytes) -> None:
    aside = path.with_suffix(".new")
    aside.write_bytes(content)
    aside.replace(path)
