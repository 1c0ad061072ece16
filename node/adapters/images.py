"""The image that jobs run in: built once from the host's Python, then found by its content's name.

Nothing is pulled. Several nodes may share an engine: the second finds what the first made.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker
import docker.errors
import platformdirs
import requests
import structlog

from cloud_gpu.protocol.errors import ContainerFailed
from node.adapters.rootfs import RootFilesystem

_REPOSITORY: Final = "cloud-gpu/job"
_log = structlog.get_logger(adapter="images")


@dataclass(frozen=True, slots=True)
class JobImage:
    """An image on this engine."""

    reference: str
    """What the engine calls it."""
    digest: str
    """"sha256:…" of its files: equal wherever the same files were taken."""


def ensure_image(client: docker.DockerClient, packages: Sequence[str]) -> JobImage:
    """Find the default image or build it, in seconds; raises `ContainerFailed`."""
    try:
        root = RootFilesystem(packages)
        digest = root.digest()
        tag = digest[:24]
        image = JobImage(reference=f"{_REPOSITORY}:{tag}", digest=f"sha256:{digest}")
        with _alone():
            with contextlib.suppress(docker.errors.ImageNotFound):
                client.images.get(image.reference)
                return image
            _log.info("image_is_built", image=image.reference, packages=list(packages))
            with tempfile.TemporaryDirectory(prefix="cloud-gpu-image-") as folder:
                archive = Path(folder) / "root.tar"
                root.write(archive)
                with archive.open("rb") as content:
                    client.api.import_image_from_data(content, repository=_REPOSITORY, tag=tag)
            return image
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise ContainerFailed(f"the job image cannot be built: {error}") from error


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One builder at a time on this machine; without a cache folder, several do the same work."""
    folder = Path(platformdirs.user_cache_dir("cloud-gpu"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "image.lock").open("w")
    except OSError as error:
        _log.warning("image_lock_unavailable", error=str(error))
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
