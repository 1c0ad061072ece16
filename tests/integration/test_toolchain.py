"""The real thing: npm, its registry (or npm's own cache) and the binary of the committed lock."""

import json
import os
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from cloud_gpu.adapters.toolchain import find_anvil

LOCK = json.loads((resources.files("cloud_gpu.adapters") / "anvil/package-lock.json").read_bytes())


@pytest.mark.timeout(400)
def test_anvil_of_the_lock_is_fetched_into_an_empty_cache_and_runs(tmp_path: Path) -> None:
    folders = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if not Path(folder, "anvil").exists())
    environ = {**os.environ, "PATH": path}
    environ.pop("ANVIL", None)
    anvil = find_anvil(environ=environ, cache=tmp_path / "cache")
    said = subprocess.run([anvil, "--version"], capture_output=True, text=True, check=True)
    version = LOCK["packages"]["node_modules/@foundry-rs/anvil"]["version"]
    assert f"anvil Version: {version}" in said.stdout
    assert anvil.is_relative_to(tmp_path)


def test_the_lock_pins_every_platform_by_digest_and_names_no_host() -> None:
    packages = {name: entry for name, entry in LOCK["packages"].items() if name}
    assert {name.rpartition("/")[2] for name in packages} == {
        "anvil",
        *(f"anvil-{it}" for it in ("linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64")),
        "anvil-win32-amd64",
    }
    for entry in packages.values():
        assert entry["integrity"].startswith("sha512-")
        assert "resolved" not in entry
