"""A verifier's files: re-executions side by side ask for the same one, and it comes once."""

from __future__ import annotations

from pathlib import Path

import trio

from cloud_gpu.protocol.adapters.artifact_exchange import ArtifactExchange
from cloud_gpu.protocol.adapters.artifacts import CHUNK_BYTES, ArtifactStore
from cloud_gpu.protocol.adapters.gossip import OverlaySettings, open_overlay
from cloud_gpu.protocol.adapters.keystore import new_secret
from cloud_gpu.protocol.job import FileRef
from verifier.adapters.files import Files

HERE = "/ip4/127.0.0.1/tcp/0"
CONTENT = b"an input" * CHUNK_BYTES


async def test_a_file_that_several_need_at_once_is_brought_once(tmp_path: Path) -> None:
    settings = OverlaySettings(topics=(), listen=HERE)
    theirs, ours = (ArtifactStore(tmp_path / name, 2**30) for name in ("theirs", "ours"))
    sha256 = theirs.put_bytes(CONTENT)
    file = FileRef(path="train.py", sha256=sha256, size=len(CONTENT))
    async with (
        open_overlay(settings, new_secret()) as node,
        open_overlay(settings, new_secret()) as verifier,
    ):
        ArtifactExchange(node, theirs, lambda *_: True)
        files = Files(ours, ArtifactExchange(verifier, ours, lambda *_: False))
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(files.bring, file, [node.addresses])
    assert ours.path_of(sha256).read_bytes() == CONTENT
