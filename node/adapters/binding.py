"""The wallet's signed word that this node is its own, read from the file that the wallet wrote."""

from __future__ import annotations

from pathlib import Path

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.identity import NodeBinding, NoDelegates, PeerId
from cloud_gpu.protocol.signing import Domain, Statement, verify_statement
from cloud_gpu.protocol.values import Address


def read_binding(
    path: Path,
    domain: Domain,
    *,
    provider: Address,
    node_key: Address,
    at: int,
    peer: PeerId | None = None,
) -> Statement[NodeBinding]:
    """The statement, checked as every market will check it; raises `SettingsInvalid`.

    `at` in Unix seconds. Without `peer`, whichever peer it names is taken for this node's.
    """
    try:
        binding = from_json(path.read_bytes(), Statement[NodeBinding])
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"binding {path}: {error}; write it with the wallet key") from error
    found = binding.body
    wanted = NodeBinding(provider=provider, node_key=node_key, peer=peer or found.peer)
    if found != wanted:
        raise SettingsInvalid(
            f"binding {path}: it binds {found}, but this node is {wanted}; write it again with the"
            " wallet key"
        )
    refusal = verify_statement(
        binding, domain, account=provider, keys=NoDelegates(), role=None, at=at
    )
    if refusal is not None:
        raise SettingsInvalid(f"binding {path}: {refusal}")
    return binding
