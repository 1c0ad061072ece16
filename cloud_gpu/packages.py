"""Python packages inside a lease: installed once by pip, packed, and laid out for each job.

Each job has an empty folder, so what pip put up is kept as one archive among the session's files.
Both steps are programs that the lease's Python runs; requirements are arguments, never a shell's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.values import Value
from cloud_gpu.workspace import OWN_FOLDER

EGRESS: Final = ("package-index",)
"""The job needs a package index: the one that the provider's pip is configured for."""

_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*[^\0\n\r]{0,200}")
_BAD: Final = re.compile(r"[@/\\]|://")


class InstalledPackage(Value, frozen=True, kw_only=True):
    """One line of the lock that an installation leaves."""

    name: str
    version: str
    sha256: str = ""


def check_requirements(requirements: Sequence[str]) -> tuple[str, ...]:
    """The requirements themselves. Raises ValueError for none, an option, a path or an address."""
    if not requirements:
        raise ValueError('requirements: found none, needed at least one, like "torch==2.0.1"')
    for each in requirements:
        if not _REQUIREMENT.fullmatch(each) or _BAD.search(each):
            raise ValueError(
                f"requirements: found {each!r}, needed a name with a version at most, like"
                ' "torch==2.0.1"; options, paths and addresses are not taken'
            )
    return tuple(requirements)


def archive_path(number: int) -> str:
    """The archive of one installation."""
    return f"{OWN_FOLDER}/packages-{number}.tar"


def lock_path(number: int) -> str:
    """The lock of one installation: JSON."""
    return f"{OWN_FOLDER}/packages-{number}.json"


def install_command(number: int, requirements: Sequence[str]) -> tuple[str, ...]:
    """What a job runs to install; its outputs are the archive and the lock."""
    return ("python3", "-c", _INSTALL, archive_path(number), lock_path(number), *requirements)


def enter_command(installed: int, command: Sequence[str]) -> tuple[str, ...]:
    """A job's command with everything installed so far importable."""
    if not installed:
        return tuple(command)
    archives = [archive_path(number) for number in range(1, installed + 1)]
    return ("python3", "-c", _ENTER, str(installed), *archives, *command)


def parse_lock(raw: bytes) -> tuple[InstalledPackage, ...]:
    """The lock file of an installation. Raises ValueError."""
    return from_json(raw, tuple[InstalledPackage, ...])


_INSTALL: Final = """
import glob, json, os, subprocess, sys, tarfile, tempfile
archive, lock, *requirements = sys.argv[1:]
try:
    import pip
    program = ["-m", "pip"]
except ImportError:  # an environment without pip: Python carries a wheel of it, which runs as it is
    import ensurepip
    wheels = glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled", "pip-*.whl"))
    if not wheels:
        sys.exit("this lease's Python has no pip")
    program = [os.path.join(wheels[0], "pip")]
os.makedirs(os.path.dirname(archive), exist_ok=True)
with tempfile.TemporaryDirectory() as folder:
    target, report = os.path.join(folder, "packages"), os.path.join(folder, "report.json")
    os.mkdir(target)
    pip = [sys.executable, *program, "install", "--target", target, "--report", report,
           "--no-input", "--disable-pip-version-check", "--no-warn-script-location"]
    code = subprocess.call([*pip, "--", *requirements])
    if code:
        sys.exit(code)
    with open(report) as file:
        found = json.load(file)["install"]
    packages = [{
        "name": each["metadata"]["name"],
        "version": each["metadata"]["version"],
        "sha256": each.get("download_info", {}).get("archive_info", {}).get("hashes", {})
            .get("sha256", ""),
    } for each in found]
    with tarfile.open(archive, "w") as tar:
        tar.add(target, ".")
    with open(lock, "w") as file:
        json.dump(packages, file)
"""

_ENTER: Final = """
import os, sys, tarfile, tempfile
count = int(sys.argv[1])
archives, command = sys.argv[2:2 + count], sys.argv[2 + count:]
paths = []
for archive in reversed(archives):
    folder = tempfile.mkdtemp(prefix="packages-")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="tar")
    paths.append(folder)
before = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = os.pathsep.join(paths + ([before] if before else []))
os.environ["PATH"] = os.pathsep.join(
    [os.path.join(path, "bin") for path in paths] + [os.environ.get("PATH", os.defpath)])
try:
    os.execvp(command[0], command)
except OSError as error:
    sys.stderr.write(f"{command[0]}: {error.strerror}\\n")
    sys.exit(127)
"""
