"""Keeps one `cloud-gpu repeat` that runs jobs for the audit account, side by side.

A process of its own, since a verifier shares nothing with buyers but the protocol. It is started
when something is asked, and ends after a while without. When this process dies, so does it: its
input ends, and nobody reads its answers.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
import trio

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import OutsideWorldError, SettingsInvalid

_PREFIX: Final = "CLOUD_GPU_"
_IDLE_S: Final = 60
_END_S: Final = 15
"""How long the process may take to end a lease when it is told to."""
_GO_S: Final = 5
"""How long it may take to go when nothing is asked of it any more; libp2p takes two."""
_SAID_MAX: Final = 500
_UNAVAILABLE: Final = 8
"""Exit code: the chain or the market gave no answer."""


class ReplayFailed(OutsideWorldError):
    """Nobody ran it, or what ran it said nothing that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How `cloud-gpu` is started: words before the command, and an environment with the account."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def find_program(environment: Mapping[str, str], **settings: str | Path) -> Program:
    """`cloud-gpu`, with these settings of a buyer's and none that this process was given.

    Raises SettingsInvalid: it is neither beside this interpreter nor on the PATH.
    """
    beside = str(Path(sys.executable).parent)
    path = shutil.which("cloud-gpu", path=os.pathsep.join((beside, environment.get("PATH", ""))))
    if path is None:
        raise SettingsInvalid("the program `cloud-gpu` is not installed beside this one")
    kept = {k: v for k, v in environment.items() if not k.startswith(_PREFIX)}
    own = {_PREFIX + name.upper(): str(_whole(value)) for name, value in settings.items()}
    return Program(words=(path,), environment=kept | own)


def _whole(value: str | Path) -> str | Path:
    return value.absolute() if isinstance(value, Path) else value


class Repeater:
    """Asks the one process, and starts it where there is none."""

    def __init__(
        self, program: Program, folder: Path, nursery: trio.Nursery, idle_s: float
    ) -> None:
        self._program, self._folder = program, folder
        self._nursery, self._idle_s = nursery, idle_s
        self._starting = trio.Lock()
        self._running: _Running | None = None
        self._asked = 0

    async def ask(self, **request: Any) -> dict[str, Any]:
        """Have a job run; what the process answered. Raises ReplayFailed.

        A cancelled caller waits up to 15 s more, until the lease is ended.
        """
        running = await self._process()
        self._asked += 1
        number = self._asked
        answer = running.expect(number)
        try:
            running.say({"id": number, **request})
            await answer.came.wait()
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _END_S):
                running.say({"cancel": number})
                await answer.came.wait()
            raise
        finally:
            running.forget(number)
        return answer.read()

    async def close(self) -> None:
        """End the process, for a caller who was cancelled too."""
        if self._running is not None:
            with trio.CancelScope(shield=True):
                await self._running.end(_GO_S)

    async def _process(self) -> _Running:
        async with self._starting:
            if self._running is not None and self._running.is_ending:
                # Two processes must not share the account's sequence of transactions.
                await self._running.end(_END_S)
                self._running = None
            if self._running is None:
                with trio.CancelScope(shield=True):  # or nobody would own what was started
                    self._running = _Running(await self._started(), self._idle_s)
                self._nursery.start_soon(self._running.attend)
            return self._running

    async def _started(self) -> trio.Process:
        words = [*self._program.words, "repeat", "--quiet", "--yes"]
        try:
            return await trio.lowlevel.open_process(
                words,
                env=dict(self._program.environment),
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise ReplayFailed(f"{words[0]} cannot be started: {error}") from error


@asynccontextmanager
async def open_repeater(
    program: Program, folder: Path, *, idle_s: float = _IDLE_S
) -> AsyncIterator[Repeater]:
    """For as long as the block lasts; then the process, which runs in `folder`, is ended."""
    async with trio.open_nursery() as nursery:
        repeater = Repeater(program, folder, nursery, idle_s)
        try:
            yield repeater
        finally:
            await repeater.close()


class _Answer:
    """What will be known of one request."""

    def __init__(self) -> None:
        self.came = trio.Event()
        self.found: dict[str, Any] | str = ""

    def take(self, found: dict[str, Any] | str) -> None:
        """What was answered, or in words why nothing was."""
        self.found = found
        self.came.set()

    @property
    def is_unavailable(self) -> bool:
        return isinstance(self.found, dict) and self.found.get("code") == _UNAVAILABLE

    def read(self) -> dict[str, Any]:
        """Raises ReplayFailed."""
        if isinstance(self.found, str):
            raise ReplayFailed(self.found)
        if self.found.get("kind") != "error":
            return self.found
        reason, found, needed = (str(self.found.get(k)) for k in ("reason", "found", "needed"))
        text = f"exit code {self.found.get('code')}: {reason}: {found}"
        raise ReplayFailed(f"{text}; needed {needed}" if needed else text)


class _Running:
    """One process: its pipes, and who waits for its answers."""

    def __init__(self, process: trio.Process, idle_s: float) -> None:
        self._process, self._idle_s = process, idle_s
        self._asking, self._asked = trio.open_memory_channel[bytes](math.inf)
        self._waiting: dict[int, _Answer] = {}
        self._used = trio.Event()
        self._said = b""
        self._log = structlog.get_logger(adapter="repeater")
        self.is_ending = False
        """Nothing more may be asked of it."""
        self.gone = trio.Event()

    def expect(self, number: int) -> _Answer:
        answer = self._waiting[number] = _Answer()
        self._used.set()
        return answer

    def forget(self, number: int) -> None:
        answer = self._waiting.pop(number)
        self._used.set()
        if answer.is_unavailable and not self._waiting:
            self._end_input()  # a client that lost its chain does not find it again

    def say(self, line: Mapping[str, Any]) -> None:
        """Never waits: what the process does not read yet, is kept."""
        if not self.is_ending:
            self._asking.send_nowait(to_json(line) + b"\n")

    async def end(self, within_s: float) -> None:
        """Let it go by itself, then without asking."""
        self._end_input()
        with trio.move_on_after(within_s):
            await self.gone.wait()
        if not self.gone.is_set():
            self._process.kill()
            await self.gone.wait()

    def _end_input(self) -> None:
        self.is_ending = True
        self._asking.close()

    async def attend(self) -> None:
        """Until the process is gone, whoever is cancelled: `end` is what ends it."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                nursery.start_soon(self._end_when_idle)
                async with trio.open_nursery() as reading:
                    reading.start_soon(self._keep_tail)
                    why = await self._read()
                    self._end_input()
                    with trio.move_on_after(_GO_S):
                        await self._process.wait()
                    if self._process.returncode is None:
                        self._process.kill()
                    code = await self._process.wait()
                nursery.cancel_scope.cancel()
            self._tell_the_end(f"{why}, exit code {code}")
            self.gone.set()

    def _tell_the_end(self, why: str) -> None:
        tail = self._said.decode(errors="replace").strip()
        left = [each for each in self._waiting.values() if not each.came.is_set()]
        self._log.info("repeater_gone", why=why, unanswered=len(left), said=tail)
        for answer in left:
            answer.take(f"{why}: {tail}")

    async def _write(self) -> None:
        assert self._process.stdin is not None
        async with self._process.stdin as pipe:
            try:
                async for line in self._asked:
                    await pipe.send_all(line)
            except trio.BrokenResourceError:
                self._log.info("repeater_deaf")  # its end is told to those who wait

    async def _read(self) -> str:
        """Hand out its answers until there are no more; why there are none."""
        assert self._process.stdout is not None
        left = b""
        async with self._process.stdout as pipe:
            async for piece in pipe:
                *lines, left = (left + piece).split(b"\n")
                for line in lines:
                    try:
                        self._take(from_json(line, dict))
                    except ValueError as error:
                        self._process.kill()
                        return f"an answer cannot be read: {error}"
        return "it ended"

    def _take(self, found: dict[str, Any]) -> None:
        answer = self._waiting.get(found.get("id", 0))
        if answer is not None:
            answer.take(found)
        else:  # of nobody who still waits, or of a line that it could not read
            self._log.info("repeater_answers_nobody", found=str(found)[:_SAID_MAX])

    async def _keep_tail(self) -> None:
        assert self._process.stderr is not None
        async with self._process.stderr as pipe:
            async for piece in pipe:
                self._said = (self._said + piece)[-_SAID_MAX:]

    async def _end_when_idle(self) -> None:
        while not self.is_ending:
            used = self._used = trio.Event()
            with trio.move_on_after(math.inf if self._waiting else self._idle_s):
                await used.wait()
            if not used.is_set():
                self._end_input()
