"""The wallet's signed word that this node is its own, read from the file that the wallet wrote."""

from __future__ import annotations

from pathlib import Path

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.identity import NodeBinding, NoDelegates
from cloud_gpu.protocol.signing import Domain, Statement, verify_statement


def read_binding(
    path: Path, domain: Domain, *, wanted: NodeBinding, at: int
) -> Statement[NodeBinding]:
    """The statement, checked as every market will check it; raises `SettingsInvalid`."""
    try:
        binding = from_json(path.read_bytes(), Statement[NodeBinding])
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"binding {path}: {error}; write it with the wallet key") from error
    if binding.body != wanted:
        raise SettingsInvalid(
            f"binding {path}: it binds {binding.body}, but this node is {wanted}; write it again"
            " with the wallet key"
        )
    refusal = verify_statement(
        binding, domain, account=wanted.provider, keys=NoDelegates(), role=None, at=at
    )
    if refusal is not None:
        raise SettingsInvalid(f"binding {path}: {refusal}")
    return binding
