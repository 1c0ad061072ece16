"""A PostgreSQL of our own, where its programs are installed: a new cluster on a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DEBIAN = Path("/usr/lib/postgresql")
_DATABASE = "market"
_QUICK = ("fsync=off", "full_page_writes=off")
"""For tests, which never pull the plug."""


def missing_postgres() -> str | None:
    """Why none can be started here; None: one can."""
    if _programs() is None:
        return "no initdb on PATH, and none of Debian's under /usr/lib/postgresql"
    if os.getuid() == 0 and _account() is None:
        return "PostgreSQL does not run as root, and there is no account `postgres`"
    return None


@contextmanager
def running_postgres(*, durable: bool) -> Iterator[str]:
    """The URL of an empty database; server and files are gone afterwards.

    `durable`: as after an installation; else a power cut could lose what was committed.
    """
    programs, account = _programs(), _account()
    assert programs is not None, missing_postgres()
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)

        def run(program: str, *arguments: str) -> None:
            subprocess.run(
                [str(programs / program), *arguments],
                check=True,
                stdout=subprocess.DEVNULL,
                cwd=folder,
                timeout=120,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=None if account is None else (),
            )

        data, changes = str(folder / "data"), () if durable else _QUICK
        run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = "".join(f" -c {each}" for each in ("listen_addresses=", *changes))
        options = f"-k {folder}{settings}"
        run("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            run("createdb", "-h", name, "-U", "postgres", _DATABASE)
            yield f"postgresql+psycopg://postgres@/{_DATABASE}?host={name}"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    return versions[-1].parent if versions else None


def _account() -> pwd.struct_passwd | None:
    """Who runs it, if that is not ourselves."""
    if os.getuid():
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None
