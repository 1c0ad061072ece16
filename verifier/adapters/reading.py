"""Files, a chain and a record read once: at a start, and for whoever checks an audit again."""

from __future__ import annotations

import tempfile
from contextlib import aclosing
from pathlib import Path

from cloud_gpu.protocol.adapters.keystore import new_secret
from cloud_gpu.protocol.audit_messages import AuditRecord
from cloud_gpu.protocol.chain_events import ChainAdvanced
from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import RequestRefused, SettingsInvalid
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.topics import RECORD_PROTOCOL
from verifier.ledger import Ledger


def read_text(path: Path) -> str:
    """A settings file's text. Raises SettingsInvalid."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"the settings file cannot be read: {error}") from error


async def read_chain(rpc: str, deployment: Deployment) -> Ledger:
    """The chain from the deployment's first block to its newest. Raises ChainUnavailable."""
    from cloud_gpu.protocol.adapters.evm import EvmChain

    ledger, reader = Ledger(), LocalKey(new_secret())
    with tempfile.TemporaryDirectory(prefix="cloud-gpu-verifier-") as folder:
        async with EvmChain(rpc, deployment, reader, Path(folder, "outbox.sqlite3")) as chain:
            newest = await chain.chain_time()
            async with aclosing(chain.events()) as events:
                async for event in events:
                    ledger.apply(event)
                    if isinstance(event, ChainAdvanced) and event.at >= newest:
                        break
    return ledger


def read_record(path: Path) -> AuditRecord:
    """A record in a file. Raises SettingsInvalid."""
    try:
        return from_json(path.read_bytes(), AuditRecord)
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"{path}: found no audit record: {error}") from error


async def ask_record(verifier: str, batch: str) -> AuditRecord:
    """A record from a verifier's peer. Raises PeerUnreachable, RequestRefused, RequestTimedOut."""
    from cloud_gpu.protocol.adapters.gossip import OverlaySettings, open_overlay

    async with open_overlay(OverlaySettings(topics=()), new_secret()) as overlay:
        answer = await overlay.request((verifier,), RECORD_PROTOCOL, batch.encode())
    try:
        return from_json(answer, AuditRecord)
    except ValueError as error:
        raise RequestRefused(f"{verifier} answered no audit record: {error}") from error


async def read_audit(
    record: Path | None, verifier: str, batch: str, rpc: str, deployment: Deployment
) -> tuple[AuditRecord, Ledger]:
    """A record, from a file or a verifier, and the chain to hold it against. Raises as above."""
    found = read_record(record) if record else await ask_record(verifier, batch)
    return found, await read_chain(rpc, deployment)
