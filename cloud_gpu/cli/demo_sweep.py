"""The demo's buyer: a sweep of trainings split over verified leases, until every result is good.

A trial that a lease did not finish goes to another one. A result counts once the audit of its
lease has ended well; what a convicted provider returned is computed again elsewhere.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cloud_gpu.accounting import LeaseLife
from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.errors import CloudGpuError
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address

if TYPE_CHECKING:
    from cloud_gpu.cli.invocation import Invocation
    from cloud_gpu.cli.outside import OpenSession
    from cloud_gpu.settings import Settings

_GPU: Final = ("RTX4090", 1)
_EPOCHS: Final = 100
_JOB_S: Final = 30
"""A trial's own limit: an audit of it may take three times as long."""
_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""One thread adds up in one order: the same bits on every machine of a class."""
_RESULT: Final = "out/result.json"
_HIDDEN: Final = (16, 32, 64, 128)
_STEPS: Final = (0.02, 0.05, 0.1)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training of the sweep."""

    number: int
    hidden: int
    step: float
    seed: int

    def command(self, data: str) -> list[str]:
        """Its words, after those that start Python."""
        words = [data, "--hidden", str(self.hidden), "--step", str(self.step)]
        return [*words, "--epochs", str(_EPOCHS), "--seed", str(self.seed)]

    def __str__(self) -> str:
        return f"hidden {self.hidden}, step {self.step}"


def trials(seed: int) -> tuple[Trial, ...]:
    """The whole grid."""
    return tuple(
        Trial(number=number, hidden=hidden, step=step, seed=seed)
        for number, (hidden, step) in enumerate(itertools.product(_HIDDEN, _STEPS))
    )


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One trial as one lease ran it; provisional until the lease's audit has ended."""

    trial: Trial
    lease: LeaseKey
    seconds: float
    cost: TokenAmount
    written: bytes
    """Its result file, as the provider returned it."""

    @property
    def result(self) -> Mapping[str, Any]:
        """What it reached: accuracy and so on."""
        found: dict[str, Any] = json.loads(self.written)
        return found


class Board:
    """The trials that are still to be run, handed out to whoever is free. Thread-safe."""

    def __init__(self, waiting: Sequence[Trial]) -> None:
        self._waiting = deque(waiting)
        self._running: dict[Trial, Address] = {}
        self._changed = threading.Condition()
        self.attempts: list[Attempt] = []

    def take(self, provider: Address) -> Trial | None:
        """The next trial, waited for while others might give one back; None: all are done."""
        with self._changed:
            while not self._waiting and self._running:
                self._changed.wait()
            if not self._waiting:
                return None
            trial = self._waiting.popleft()
            self._running[trial] = provider
            self._changed.notify_all()
            return trial

    def give_back(self, trial: Trial) -> None:
        """It was not finished."""
        with self._changed:
            del self._running[trial]
            self._waiting.appendleft(trial)
            self._changed.notify_all()

    def finish(self, attempt: Attempt) -> None:
        """It ran."""
        with self._changed:
            del self._running[attempt.trial]
            self.attempts.append(attempt)
            self._changed.notify_all()

    def wait_for_work_of(self, provider: Address, within_s: float) -> bool:
        """Until a provider has returned a result and works on the next one; False: it did not."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_at_work(provider), within_s)

    def wait_for_end_of(self, provider: Address, within_s: float) -> bool:
        """Until a provider works on nothing; False: it still does."""
        with self._changed:
            return self._changed.wait_for(lambda: provider not in self._running.values(), within_s)

    def wait_for_all(self, within_s: float) -> bool:
        """Until nothing waits or runs any more; False: something still does."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._running, within_s)

    def _is_at_work(self, provider: Address) -> bool:
        returned = {attempt.lease.provider for attempt in self.attempts}
        return provider in returned and provider in self._running.values()


class LeaseWorker(threading.Thread):
    """One verified lease that works on a board's trials until there are none, or it fails."""

    def __init__(
        self,
        run: Invocation,
        settings: Settings,
        board: Board,
        files: Sequence[Path],
        scratch: Path,
        name: str,
        **words: Any,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._run, self._settings, self._board = run, settings, board
        self._files, self._scratch, self._words = files, scratch, words
        self.lease: LeaseKey | None = None
        self.is_closing = False
        """It takes no more trials."""

    def run(self) -> None:
        """The thread."""
        gpu_type, count = _GPU
        words = {"gpu_type": gpu_type, "count": count, "timeout": "10m", "verified": True}
        try:
            with self._run.outside.session(
                self._settings, self._say, env=_ENVIRONMENT, **words, **self._words
            ) as session:
                self.lease = session.lease.funded.lease
                try:
                    self._work(session, Path(tempfile.mkdtemp(dir=self._scratch)))
                finally:
                    self.is_closing = True
        except CloudGpuError as error:
            self._say(str(error))

    def _work(self, session: OpenSession, folder: Path) -> None:
        assert self.lease is not None
        for path in self._files:
            session.put(path)
        while (trial := self._board.take(self.lease.provider)) is not None:
            with ExitStack() as unless_done:
                unless_done.callback(self._board.give_back, trial)
                attempt = self._attempt(session, trial, folder)
                unless_done.pop_all()
            self._board.finish(attempt)
            self._say(f"{trial}: accuracy {attempt.result['accuracy']}, not audited yet")

    def _attempt(self, session: OpenSession, trial: Trial, folder: Path) -> Attempt:
        assert self.lease is not None
        script, data = self._files
        words = ["python", script.name, *trial.command(data.name)]
        result = session.run(words, check=True, timeout=_JOB_S, stream=False)
        (path,) = session.get(_RESULT, folder / f"{trial.number}.json")
        return Attempt(
            trial=trial,
            lease=self.lease,
            seconds=result.duration_s,
            cost=result.cost,
            written=path.read_bytes(),
        )

    def _say(self, text: str) -> None:
        self._run.say.progress(f"{self.name}: {text}")


class Standing(StrEnum):
    """What a lease's audits say of its results."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    CONVICTED = "convicted"
    """Or accused by both verifiers: nobody waits for the challenge window to compute again."""
    UNVERIFIED = "unverified"
    """Not audited to a good end, without anybody's proven fault."""


def standing(life: LeaseLife, results: int) -> Standing:
    """Of a lease that returned so many results."""
    segments = [segment for batch in life.batches for segment in batch.accused]
    if any(segment.contested_at is None for segment in segments):
        return Standing.CONVICTED
    ended = [batch.ended_as for batch in life.batches]
    if life.returned or any(state not in (None, BatchState.FINAL) for state in ended):
        return Standing.UNVERIFIED
    if life.reason is None or life.held:
        return Standing.PENDING
    is_whole = sum(batch.n for batch in life.batches) >= results
    return Standing.ACCEPTED if is_whole else Standing.UNVERIFIED


class Sweep:
    """All leases of the sweep, and what became of each trial."""

    def __init__(
        self,
        run: Invocation,
        settings: Settings,
        grid: Sequence[Trial],
        files: Sequence[Path],
        scratch: Path,
    ) -> None:
        """`files`: the training script and its data; `scratch`: a folder that others remove."""
        self._run, self._settings, self.grid = run, settings, grid
        self._files, self._scratch = files, scratch
        self._boards: list[Board] = []
        self.workers: list[LeaseWorker] = []
        self.standings: dict[LeaseKey, Standing] = {}

    def rent(self, grid: Sequence[Trial], wishes: Mapping[str, Mapping[str, Any]]) -> Board:
        """Work on trials in as many leases as there are wishes, each by a name for progress."""
        board = Board(grid)
        self._boards.append(board)
        for name, words in wishes.items():
            worker = LeaseWorker(
                self._run, self._settings, board, self._files, self._scratch, name, **words
            )
            self.workers.append(worker)
            worker.start()
        return board

    @property
    def attempts(self) -> list[Attempt]:
        """In the order in which they were returned."""
        return [attempt for board in self._boards for attempt in board.attempts]

    @property
    def accepted(self) -> dict[Trial, Attempt]:
        """Results whose lease passed its audits, in the order of the grid."""
        good = {
            attempt.trial: attempt
            for attempt in self.attempts
            if self.standings.get(attempt.lease) is Standing.ACCEPTED
        }
        return {trial: good[trial] for trial in self.grid if trial in good}

    @property
    def unsound(self) -> set[LeaseKey]:
        """Leases whose results count no more."""
        bad = (Standing.CONVICTED, Standing.UNVERIFIED)
        return {lease for lease, found in self.standings.items() if found in bad}

    def judge(self, lives: Mapping[LeaseKey, LeaseLife]) -> list[Trial]:
        """Take in how the chain has the leases; the trials that must be computed again.

        A trial that is neither accepted nor on its way is on that list once.
        """
        attempts = self.attempts
        for lease in {attempt.lease for attempt in attempts} & set(lives):
            results = sum(attempt.lease == lease for attempt in attempts)
            self.standings[lease] = standing(lives[lease], results)
        if any(worker.is_alive() and not worker.is_closing for worker in self.workers):
            return []
        hopeful = {a.trial for a in attempts if a.lease not in self.unsound}
        return [trial for trial in self.grid if trial not in hopeful]


class Yardstick(threading.Thread):
    """Computes every trial here, too: what the accepted results are held against."""

    def __init__(self, grid: Sequence[Trial], files: Sequence[Path], scratch: Path) -> None:
        super().__init__(name="yardstick", daemon=True)
        self._grid, self._files, self._scratch = grid, files, scratch
        self.results: dict[Trial, bytes] = {}

    def run(self) -> None:
        """The thread."""
        import os
        import subprocess

        script, data = self._files
        for trial in self._grid:
            folder = tempfile.mkdtemp(dir=self._scratch)
            ended = subprocess.run(
                [sys.executable, str(script), *trial.command(str(data))],
                cwd=folder,
                env={**os.environ, **_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            if ended.returncode == 0:
                self.results[trial] = Path(folder, _RESULT).read_bytes()
