"""A client's temporary folder goes with it; a killed one's goes with the next client."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloud_gpu.adapters.client_folder import client_folder, remove_left_folders

HOLD = """
from cloud_gpu.adapters.client_folder import client_folder
with client_folder() as folder:
    (folder / "files").mkdir()
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's clients put what should not last."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it remembers where
    return tmp_path


@contextmanager
def other_client() -> "Iterator[tuple[subprocess.Popen[str], Path]]":
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_folder_lasts_as_long_as_its_client(temporary: Path) -> None:
    with client_folder() as folder:
        assert folder.parent == temporary
        (folder / "x").write_text("x")
    assert list(temporary.iterdir()) == []


def test_a_folder_goes_also_when_its_client_fails(temporary: Path) -> None:
    with pytest.raises(ZeroDivisionError), client_folder():
        raise ZeroDivisionError
    assert list(temporary.iterdir()) == []


def test_what_a_killed_client_left_is_removed_and_a_live_ones_is_kept() -> None:
    with other_client() as (_, kept), other_client() as (killed, left):
        assert remove_left_folders(os.getuid()) == []
        killed.kill()
        killed.wait()
        assert left.is_dir()
        assert remove_left_folders(os.getuid()) == [left]
        assert not left.exists()
        assert kept.is_dir()


def test_another_users_folder_is_left_alone() -> None:
    with other_client() as (killed, left):
        killed.kill()
        killed.wait()
        assert remove_left_folders(os.getuid() + 1) == []
        assert left.is_dir()


def test_what_only_looks_like_a_folder_of_a_dead_client_is_left_alone(temporary: Path) -> None:
    elsewhere = temporary / "precious"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (temporary / "cloud-gpu-client-link").symlink_to(elsewhere)
    (temporary / "cloud-gpu-client-file").touch()
    (temporary / "cloud-gpu-client-starts").mkdir()
    before = sorted(temporary.rglob("*"))
    assert remove_left_folders(os.getuid()) == []
    assert sorted(temporary.rglob("*")) == before
