"""The files of a session, and the programs that install packages inside a lease."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cloud_gpu.packages import (
    InstalledPackage,
    archive_path,
    check_requirements,
    enter_command,
    install_command,
    lock_path,
    parse_lock,
)
from cloud_gpu.protocol.job import FileRef
from cloud_gpu.workspace import Workspace, remote_path


def file(path: str, content: str = "0") -> FileRef:
    return FileRef(path=path, sha256=content * 64, size=1)


def held(*paths: str) -> Workspace:
    workspace = Workspace()
    workspace.put(file(path) for path in paths)
    return workspace


def test_a_path_that_is_taken_gets_the_new_content() -> None:
    workspace = held("a", "b")
    workspace.put([file("a", "1")])
    assert [(f.path, f.sha256[0]) for f in workspace.inputs] == [("a", "1"), ("b", "0")]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("out/a.txt", ["out/a.txt"]),
        ("out", ["out/a.txt", "out/b/c.bin"]),
        ("out/", ["out/a.txt", "out/b/c.bin"]),
        ("./out/a.txt", ["out/a.txt"]),
        ("out/*.txt", ["out/a.txt"]),
        (".", ["out/a.txt", "out/b/c.bin", "x"]),
        ("ou", []),
    ],
)
def test_files_are_found_by_name_folder_and_pattern(wanted: str, found: list[str]) -> None:
    workspace = held("out/a.txt", "out/b/c.bin", "x", ".cloud-gpu/packages-1.tar")
    assert [f.path for f in workspace.find(wanted)] == found


def test_more_files_than_a_job_may_have_are_refused_and_nothing_changes() -> None:
    workspace = held("a")
    with pytest.raises(ValueError, match="1024"):
        workspace.put(file(f"many/{n}") for n in range(1_024))
    assert [f.path for f in workspace.inputs] == ["a"]


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b/c", "a/b")])
def test_a_file_cannot_lie_below_a_file(first: str, second: str) -> None:
    with pytest.raises(ValueError, match="which is a file"):
        held(first).put([file(second)])


@pytest.mark.parametrize(
    ("name", "remote", "path"),
    [
        ("train.py", None, "train.py"),
        ("train.py", "main.py", "main.py"),
        ("train.py", "src/", "src/train.py"),
        ("folder", None, "folder"),
        (".", None, "."),
        ("x", "./a/b", "a/b"),
    ],
)
def test_where_a_local_file_goes(name: str, remote: str | None, path: str) -> None:
    assert remote_path(name, remote) == path


@pytest.mark.parametrize("remote", ["/etc/passwd", "../x", "a/../../x", ".cloud-gpu/x", "a\\b"])
def test_a_path_outside_the_jobs_folder_is_refused(remote: str) -> None:
    with pytest.raises(ValueError, match=r"remote"):
        remote_path("x", remote)


@pytest.mark.parametrize(
    "bad",
    [
        (),
        ("--index-url=http://x",),
        ("-r",),
        ("x @ http://evil",),
        ("./local",),
        ("git+https://x/y",),
        ("a\nb",),
        ("",),
    ],
)
def test_only_names_with_versions_are_installed(bad: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="requirements"):
        check_requirements(bad)


def test_requirements_are_words_of_a_program_never_a_shell_line() -> None:
    asked = check_requirements(("torch==2.0.1", "numpy>=1,<2", "x; python_version<'4'"))
    command = install_command(2, asked)
    assert command[:2] == ("python3", "-c")
    assert command[-3:] == asked
    assert archive_path(2) in command


def test_without_installations_a_command_is_left_as_it_is() -> None:
    assert enter_command(0, ["a", "b"]) == ("a", "b")


def wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"version = '{version}'\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def ran(
    command: tuple[str, ...], folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command[1:]],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_installed_can_be_imported_by_later_commands(tmp_path: Path) -> None:
    wheels, job = tmp_path / "wheels", tmp_path / "job"
    wheels.mkdir()
    job.mkdir()
    wheel(wheels, "pretty", "1.5")
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    done = ran(install_command(1, ("pretty==1.5",)), job, **offline)
    assert done.returncode == 0, done.stderr
    (lock,) = parse_lock((job / lock_path(1)).read_bytes())
    assert (lock.name, lock.version) == ("pretty", "1.5")
    assert len(lock.sha256) == 64
    program = ("python3", "-c", "import pretty, sys; print(pretty.version); sys.exit(7)")
    used = ran(enter_command(1, (sys.executable, *program[1:])), job)
    assert (used.stdout, used.returncode) == ("1.5\n", 7)


def test_what_pip_refuses_fails_with_pips_words(tmp_path: Path) -> None:
    done = ran(install_command(1, ("no-such-thing",)), tmp_path, PIP_NO_INDEX="1")
    assert done.returncode != 0
    assert "no-such-thing" in done.stderr
    assert not (tmp_path / archive_path(1)).exists()


def test_a_command_that_is_not_there_exits_as_in_a_shell(tmp_path: Path) -> None:
    (tmp_path / ".cloud-gpu").mkdir()
    with tarfile.open(tmp_path / archive_path(1), "w"):
        pass
    done = ran(enter_command(1, ("no-such-program",)), tmp_path)
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_a_lock_is_parsed_strictly() -> None:
    good = json.dumps([{"name": "a", "version": "1", "sha256": ""}]).encode()
    assert parse_lock(good) == (InstalledPackage(name="a", version="1"),)
    with pytest.raises(ValueError, match="array"):
        parse_lock(b'{"name": "a"}')
