"""What a node keeps of the files that come and go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from node.adapters.keeping import UNCLAIMED_S, Keeping

NOW = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path, 10**6)


def keeping(store: ArtifactStore, *kept: str) -> Keeping:
    return Keeping(
        store,
        may_fetch=lambda peer, digest: (peer, digest) == ("buyer", "d"),
        may_push=lambda peer, size: peer == "buyer" and size < 1_000,
        is_kept=lambda digest: digest in kept,
        peer_bytes_max=1_500,
    )


def test_the_provider_decides_who_fetches_and_brings(store: ArtifactStore) -> None:
    made = keeping(store)
    assert made.authorise("buyer", "d", "fetch", 0)
    assert not made.authorise("stranger", "d", "fetch", 0)
    assert made.authorise("buyer", "a", "push", 900)
    assert not made.authorise("buyer", "a", "push", 2_000)
    assert not made.authorise("stranger", "a", "push", 1)


def test_one_peer_cannot_fill_the_store(store: ArtifactStore) -> None:
    made = keeping(store)
    first, second = "a" * 64, "b" * 64
    assert made.authorise("buyer", first, "push", 900)
    assert made.authorise("buyer", first, "push", 900), "a transfer that is resumed counts once"
    assert not made.authorise("buyer", second, "push", 900)
    made.sweep(NOW)
    assert made.authorise("buyer", second, "push", 900), "what is gone counts no more"


def test_unclaimed_files_go_after_an_hour_and_those_of_jobs_stay(store: ArtifactStore) -> None:
    old, kept, new = (store.put_bytes(word) for word in (b"old", b"kept", b"new"))
    for digest, age in ((old, UNCLAIMED_S + 1), (kept, UNCLAIMED_S + 1), (new, UNCLAIMED_S - 1)):
        os.utime(store.path_of(digest), (NOW - age, NOW - age))
    assert keeping(store, kept).sweep(NOW) == 1
    assert store.digests() == sorted([kept, new])
