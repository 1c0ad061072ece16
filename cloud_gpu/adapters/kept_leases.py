"""Leases that stay open between commands: a folder for each, and a door to whoever keeps it.

The keeper holds the folder's lock while it lives. Requests and answers are JSON lines on a
loopback port; each request carries a token that only this user can read. (A Unix socket's path
has 107 bytes at most, and a data folder may be deep.) A closed connection ends an answer.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from cloud_gpu.adapters.processes import ended_by_signals
from cloud_gpu.protocol.errors import OutsideWorldError, SettingsInvalid

Answerer = Callable[[Mapping[str, Any]], Iterator[Mapping[str, Any]]]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_RECORD: Final = "lease.json"
_LOG: Final = "keeper.log"
_DOOR: Final = "door.json"
_REQUEST_BYTES_MAX: Final = 4 * 2**20
_PROGRAM: Final = "import sys; from cloud_gpu.main import main; sys.exit(main())"


class KeeperGone(OutsideWorldError):
    """Nobody keeps this lease any more, or it does not answer."""


class KeptLeases:
    """All kept leases of a person on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        """Of all that have a record, oldest first; ended ones included."""
        found = sorted(self._folder.glob(f"*/{_RECORD}"), key=lambda path: path.stat().st_ctime)
        return [path.parent.name for path in found]

    def free_name(self) -> str:
        """One that no record has."""
        taken, number = set(self.names()), 1
        while f"lease-{number}" in taken:
            number += 1
        return f"lease-{number}"

    def record(self, name: str) -> dict[str, Any] | None:
        """What the keeper noted last; None: there is no such lease."""
        try:
            found: dict[str, Any] = json.loads((self._of(name) / _RECORD).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return found

    def note(self, name: str, record: Mapping[str, Any]) -> None:
        """Replace the record as a whole."""
        path = self._of(name) / _RECORD
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(dict(record)))
        scratch.replace(path)

    def forget(self, name: str) -> None:
        """Remove all that is known of an ended lease."""
        shutil.rmtree(self._of(name), ignore_errors=True)

    def is_kept(self, name: str) -> bool:
        """Whether its keeper lives."""
        try:
            with (self._of(name) / "lock").open("r") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def keeping(self, name: str) -> Iterator[None]:
        """Keep it, alone; an ending signal raises KeyboardInterrupt inside.

        Raises SettingsInvalid: a bad name, or one in use.
        """
        folder = self._of(name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise SettingsInvalid(
                    f"name: a lease {name!r} is open; choose another, or `cloud-gpu down {name}`"
                ) from error
            with ended_by_signals():
                yield

    def start_keeper(self, name: str, arguments: Sequence[str]) -> KeeperProcess:
        """Run `cloud-gpu ARGUMENTS` in the background, its output in the lease's folder."""
        folder = self._of(name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = folder / _LOG
        with log.open("wb") as out, (folder / "keeper.out").open("wb") as result:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=result,
                stderr=out,
                start_new_session=True,
            )
        return KeeperProcess(process, log, folder / "keeper.out")

    @contextmanager
    def answering(self, name: str, answer: Answerer) -> Iterator[None]:
        """Serve requests about a lease from threads, while the block lasts."""
        token = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as server:
            door = self._of(name) / _DOOR
            door.touch(mode=0o600)
            door.write_text(json.dumps({"port": server.getsockname()[1], "token": token}))
            threading.Thread(target=_accept, args=(server, token, answer), daemon=True).start()
            try:
                yield
            finally:
                door.unlink(missing_ok=True)
                with suppress(OSError):
                    server.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread

    def ask(self, name: str, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The keeper's answers, as they come. Raises KeeperGone."""
        try:
            door = json.loads((self._of(name) / _DOOR).read_text())
            with socket.create_connection(("127.0.0.1", door["port"])) as connection:
                asked = json.dumps({**request, "token": door["token"]})
                connection.sendall(asked.encode() + b"\n")
                with connection.makefile("r", encoding="utf-8") as lines:
                    for line in lines:
                        yield json.loads(line)
        except (OSError, ValueError) as error:
            raise KeeperGone(
                f"the keeper of {name} does not answer ({error}); its provider is paid no more,"
                " and what was not used returns by itself"
            ) from error

    def _of(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise SettingsInvalid(
                f"name: found {name!r}, needed 1 to 40 lower-case letters, digits and hyphens"
            )
        return self._folder / name


class KeeperProcess:
    """A keeper that was started in the background."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, result: Path) -> None:
        self._process, self._log, self._result = process, log, result
        self._told = 0

    def exit_code(self) -> int | None:
        """None while it lives."""
        return self._process.poll()

    def news(self) -> list[str]:
        """Lines of its progress that were not told yet."""
        lines = self._log.read_text(errors="replace").splitlines()
        fresh, self._told = lines[self._told :], len(lines)
        return fresh

    def result(self) -> str:
        """Its standard output."""
        return self._result.read_text(errors="replace")

    def interrupt(self) -> None:
        """Ask it to end its lease and go."""
        self._process.terminate()


def _accept(server: socket.socket, token: str, answer: Answerer) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # closed: the lease is over
            return
        threading.Thread(target=_serve, args=(connection, token, answer), daemon=True).start()


def _serve(connection: socket.socket, token: str, answer: Answerer) -> None:
    # Whoever asked may be gone before the answer is; strangers and junk get none.
    with suppress(OSError, ValueError), connection:
        with connection.makefile("rb") as lines:
            request = json.loads(lines.readline(_REQUEST_BYTES_MAX))
        if not isinstance(request, dict) or not hmac.compare_digest(
            str(request.pop("token", "")).encode(), token.encode()
        ):
            return
        for part in answer(request):
            connection.sendall(json.dumps(dict(part)).encode() + b"\n")
