"""What a node does wrong when it is told to: how audits are shown and tested on real daemons.

Only on simulated machines, and every ready line says so. Nothing here runs otherwise.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.events import JobExited, ProviderEvent
from cloud_gpu.protocol.job import FileRef
from node.adapters.job_folders import Post
from node.settings import Fault

_FRACTION: Final = re.compile(rb"(?<=\.)\d+")


def with_fault(fault: Fault, post: Post, store: ArtifactStore) -> Post:
    """What the runtime posts to; with a fault, results are altered on their way."""
    if fault is Fault.NONE:
        return post

    def altered(event: ProviderEvent) -> None:
        if isinstance(event, JobExited):
            outputs = tuple(_embellished(file, store) for file in event.outputs)
            event = replace(event, outputs=outputs)
        post(event)

    return altered


def _embellished(file: FileRef, store: ArtifactStore) -> FileRef:
    """The file with better figures in it: .9712 becomes .9999, what has no fraction grows."""
    content = store.path_of(file.sha256).read_bytes()
    better = _FRACTION.sub(lambda found: b"9" * len(found[0]), content)
    if better == content:
        better += b"9"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "output")
        path.write_bytes(better)
        return replace(file, sha256=store.put_file(path), size=len(better))
