"""A node with a fault on purpose returns better figures than were computed, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.events import JobExited, ProviderEvent
from cloud_gpu.protocol.job import FileRef, JobOutcome
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.values import Address, Digest
from node.adapters.faults import with_fault
from node.settings import Fault


def exited(folder: Path, store: ArtifactStore, *contents: str) -> JobExited:
    files = []
    for number, content in enumerate(contents):
        path = folder / f"{number}.txt"
        path.write_text(content)
        digest = store.put_file(path)
        files.append(FileRef(path=f"out/{number}", sha256=digest, size=len(content)))
    return JobExited(
        lease=LeaseKey(provider=Address(b"\x01" * 20), index=0, seq=1),
        job=Digest(b"\x02" * 32),
        outcome=JobOutcome.EXITED,
        exit_code=0,
        detail="",
        outputs=tuple(files),
        stdout=files[0],
        stderr=files[0],
        log_cut=False,
        started_at=1,
        ended_at=2,
    )


def test_figures_are_embellished_and_what_has_none_is_changed(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store", 2**20)
    told: list[ProviderEvent] = []
    event = exited(tmp_path, store, '{"accuracy": 0.9712, "seed": 7}', "plain")
    with_fault(Fault.WRONG_RESULTS, told.append, store)(event)
    (altered,) = told
    assert isinstance(altered, JobExited)
    first, second = (store.path_of(file.sha256).read_text() for file in altered.outputs)
    assert json.loads(first) == {"accuracy": 0.9999, "seed": 7}
    assert second == "plain9"
    assert [file.size for file in altered.outputs] == [len(first), len(second)]
    assert replace(altered, outputs=event.outputs) == event


def test_without_a_fault_nothing_is_touched(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store", 2**20)
    told: list[ProviderEvent] = []
    assert with_fault(Fault.NONE, told.append, store) == told.append
