"""`cloud-gpu demo`: the whole line on a fresh devnet, and a balance sheet that must come out even.

A buyer splits a sweep of trainings over the verified leases of four providers. One of them returns
wrong results, one dies while working and comes back. Two verifiers have work repeated, convict,
and the buyer has computed again what was not sound. Everything shown is read from the chain
afterwards, and every accepted result is held against one that was computed here.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cloud_gpu.accounting import Books, LeaseLife, explain, lease_lives, market_accounts
from cloud_gpu.cli.demo_story import Crash, Story
from cloud_gpu.cli.demo_sweep import Sweep, Yardstick, trials
from cloud_gpu.cli.demo_tables import tables_of
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.values import Address

if TYPE_CHECKING:
    from cloud_gpu.cli.outside import FreshDevnet
    from cloud_gpu.settings import Settings

_DATA: Final = ("scikit-learn", "sklearn/datasets/data/digits.csv.gz")
"""A distribution, and a file of it: read without importing the package, which takes seconds."""
_TRAINING: Final = "cloud_gpu.cli.demo_training"
_PROVIDERS: Final = 4
_LIAR: Final = 2
_DYING: Final = 3
_RENTED_AGAIN: Final = 2
"""Leases for what must be computed again."""
_SWEEP_S: Final = 120.0
_AUDITS_S: Final = 240.0
_SETTLED_S: Final = 210.0
"""Longer than the devnet's commit window, after which pay that nobody commits to goes back: a lease
in which no job ran has none to commit to."""
_LOOK_S: Final = 1.0


def demo(
    run: Invocation,
    seed: Annotated[int, typer.Option(min=0, help="Of the trainings.")] = 1,
    crashes: Annotated[
        bool,
        typer.Option("--crashes", help="Kill the market, a provider and a verifier on the way."),
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="FOLDER", help="Leave the devnet's data in an empty folder."
        ),
    ] = None,
) -> int:
    """Trades, jobs, audits, a conviction, refunds and the balance sheet on a fresh devnet."""
    began = time.monotonic()
    data = _data_file()
    faults = {_LIAR: "wrong-results"}
    with (
        # After Ctrl-C a worker may still write there; what it wrote goes with the folder.
        tempfile.TemporaryDirectory(
            prefix="cloud-gpu-demo-", ignore_cleanup_errors=True
        ) as scratch,
        run.outside.fresh_devnet(
            nodes=_PROVIDERS, faults=faults, keep=keep, say=run.say.progress
        ) as devnet,
    ):
        story = Demonstration(run, devnet, seed, data, Path(scratch), crashes=crashes).play(began)
    run.say.result("demo", story.payload(), lambda: tables_of(story))
    for problem in story.problems:
        run.say.progress(f"problem: {problem}")
    return ExitCode.OUR_BUG if story.problems else ExitCode.DONE


def _data_file() -> Path:
    """The digits as scikit-learn ships them. Raises SettingsInvalid where it is not installed."""
    distribution, name = _DATA
    try:
        path = Path(str(metadata.distribution(distribution).locate_file(name)))
    except metadata.PackageNotFoundError as error:
        raise SettingsInvalid(
            f"the demo's data set: found no {distribution}, needed the package that ships it;"
            " `pip install 'cloud-gpu[demo]'`"
        ) from error
    if not path.is_file():
        raise SettingsInvalid(f"the demo's data set: {distribution} is here without {name}")
    return path


def _training(target: Path) -> Path:
    """The script that every trial runs."""
    found = find_spec(_TRAINING)
    assert found is not None, _TRAINING
    assert found.origin is not None, found
    return Path(shutil.copyfile(found.origin, target))


def _settings_of(run: Invocation, devnet: FreshDevnet) -> Settings:
    """The devnet's, whatever the person's own settings say."""
    view = devnet.view
    return run.outside.settings(
        {
            "market": view.market,
            "rpc": view.rpc,
            "deployment": view.deployment,
            "keystore": view.keystore,
            "password_file": view.password_file,
            "max_price": view.max_price,
        }
    )


class Demonstration:
    """One demo on a running devnet, scene by scene."""

    def __init__(
        self,
        run: Invocation,
        devnet: FreshDevnet,
        seed: int,
        data: Path,
        scratch: Path,
        *,
        crashes: bool,
    ) -> None:
        self._say, self._devnet, self._with_crashes = run.say.progress, devnet, crashes
        files = [_training(scratch / "train.py"), data]
        self._sweep = Sweep(run, _settings_of(run, devnet), trials(seed), files, scratch)
        self._yardstick = Yardstick(self._sweep.grid, files, scratch)
        self._told: dict[LeaseKey, str] = {}
        self._crashes: list[Crash] = []

    def play(self, began: float) -> Story:
        """All of it; `began` on the monotonic clock."""
        first = self._devnet.newest_block()
        before = self._devnet.books(first)
        self._work()
        self._yardstick.start()
        if self._with_crashes:
            self._crash("verifier-1", "while it audits")
        self._audits()
        self._yardstick.join(_SETTLED_S)
        last = self._settled()
        return self._story(before, first, last, time.monotonic() - began)

    def _work(self) -> None:
        """The sweep, and the provider that dies in it."""
        providers = [self._devnet.provider(number) for number in range(_PROVIDERS)]
        names = self._devnet.names
        self._say(f"{len(self._sweep.grid)} trainings over {_PROVIDERS} verified leases")
        board = self._sweep.rent(
            self._sweep.grid, {names[each]: {"provider": str(each)} for each in providers}
        )
        dying = providers[_DYING]
        if board.wait_for_work_of(dying, _SWEEP_S):
            self._devnet.kill(f"node-{_DYING}")
            died_at = time.monotonic()
            self._say(f"{names[dying]} dies while working: its daemon is killed")
            if self._with_crashes:
                self._crash("market", "while jobs run")
                self._crash("node-0", "while jobs run", providers[0])
            board.wait_for_end_of(dying, _SWEEP_S)
            self._say(f"{names[dying]} is started again, too late for its lease")
            self._devnet.start_again(f"node-{_DYING}")
            self._note(f"node-{_DYING}", "while working", died_at, dying)
        if not board.wait_for_all(_SWEEP_S):
            self._say(f"the sweep did not end in {_SWEEP_S:g} s")

    def _crash(self, name: str, when: str, provider: Address | None = None) -> None:
        self._say(f"{name} is killed, and started again")
        died_at = time.monotonic()
        self._devnet.kill(name)
        self._devnet.start_again(name)
        self._note(name, when, died_at, provider)

    def _note(self, name: str, when: str, died_at: float, provider: Address | None) -> None:
        away_s = time.monotonic() - died_at
        self._crashes.append(Crash(name=name, when=when, away_s=away_s, provider=provider))

    def _audits(self) -> None:
        """Follow the audits; what is not sound is computed again, by others."""
        self._say("leases are closed, results committed, segments drawn and repeated")
        until = time.monotonic() + _AUDITS_S
        while time.monotonic() < until:
            again = self._sweep.judge(self._look())
            if again:
                self._say(f"{len(again)} trainings are computed again, by others")
                failed = sorted({str(lease.provider) for lease in self._sweep.unsound})
                words = {"exclude_providers": tuple(failed)}
                rented = {f"lease {number} again": words for number in range(_RENTED_AGAIN)}
                self._sweep.rent(again, rented)
            if len(self._sweep.accepted) == len(self._sweep.grid):
                return
            time.sleep(_LOOK_S)

    def _look(self) -> Mapping[LeaseKey, LeaseLife]:
        """The buyer's leases as the chain has them; news are told."""
        lives = {life.key: life for life in self._lives() if life.buyer == self._devnet.buyer}
        for key, life in lives.items():
            states = ", ".join(str(batch.state) for batch in life.batches)
            if states and self._told.get(key) != states:
                self._told[key] = states
                self._say(f"results of {self._devnet.names[key.provider]}: {states}")
        return lives

    def _lives(self) -> tuple[LeaseLife, ...]:
        return lease_lives(self._devnet.events(self._devnet.newest_block()))

    def _settled(self) -> int:
        """Wait until no lease is open and no pay held; the newest block then."""
        until = time.monotonic() + _SETTLED_S
        while time.monotonic() < until:
            if all(life.reason is not None and not life.held for life in self._lives()):
                break
            time.sleep(_LOOK_S)
        return self._devnet.newest_block()

    def _story(self, before: Books, first: int, last: int, seconds: float) -> Story:
        devnet, events = self._devnet, self._devnet.events(last)
        lives = lease_lives(events)
        after = devnet.books(last)
        return Story(
            sweep=self._sweep.grid,
            attempts=self._sweep.attempts,
            accepted=self._sweep.accepted,
            standings=self._sweep.standings,
            truth=self._yardstick.results,
            lives=lives,
            buyer=devnet.buyer,
            drawn=devnet.drawn(),
            crashes=self._crashes,
            changes=explain(
                before, after, lives, market_accounts(events), devnet.audit_payees(last)
            ),
            names=devnet.names,
            books=after,
            gas=devnet.gas(first + 1, last),
            stand_ins=devnet.view.stand_ins,
            seconds=seconds,
        )
