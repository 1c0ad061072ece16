"""Whole seasons of all parties under faults, by seed. More of them: pytest --seeds 20000."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_gpu.protocol.calls import ExpireLease, OpenGang, RefundUnstarted, pairs_of
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.values import Address
from cloud_gpu.testing import simulated_calls, simulated_openings
from cloud_gpu.testing.simulated_book import LeaseRow, SimulatedBook
from tests.simulation import faults as weather
from tests.simulation import scene
from tests.simulation.world import World

STORM_S, FAIR_S, CALM_S = 45, 20, 280
"""Calm is longer than start window, longest lease, claim window, commit window, hard cap and
challenge together, and a minute of waiting between repeats.
"""

BIDS_S, QUIET_S = 25, 10
"""No bid rests longer; nothing may follow when all has ended."""

HOSTILE_TO_GANGS = weather.Faults(
    loss=0.1,
    late=0.4,
    reorganise=0.05,
    crash_node=0.01,
    crash_market=0.02,
    vanish=0.1,
    node_vanishes=1.0,
    stubborn=0.5,
)
SHARDS = 10
REGRESSIONS = Path(__file__).parent / "regressions.txt"
PROGRAM = (
    "import hashlib, sys; from tests.simulation.test_seasons import season;"
    "print(hashlib.sha256(season(int(sys.argv[1])).encode()).hexdigest())"
)


def season(seed: int) -> str:
    """One seed from storm to calm; the log. Raises AssertionError when an invariant breaks."""
    world = World(seed)
    try:
        play(world)
    except Exception as error:
        told = [line for line in world.log if not line.endswith(" 0")]
        error.add_note(f"seed {seed}, {world.faults}, {world.cast}; the last steps:")
        error.add_note("\n".join(told[-40:]))
        raise
    return "\n".join(world.log)


def play(world: World) -> None:
    """From storm to calm, and on until everything has ended, which takes a bounded time."""
    world.run(STORM_S)
    world.clear_up()
    world.run(FAIR_S)
    world.calm()
    world.run(BIDS_S)
    while not world.is_settled and world.now < world.calm_at + CALM_S * 1000:
        world.run(QUIET_S)
    world.run(QUIET_S)
    world.checkers.at_the_end()


def breaks(seed: int) -> bool:
    """Whether an invariant breaks in this season."""
    try:
        season(seed)
    except AssertionError:
        return True
    return False


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_season_when_faults_strike_then_every_invariant_holds(
    shard: int, request: pytest.FixtureRequest
) -> None:
    count: int = request.config.getoption("--seeds")
    for seed in range(shard, count, SHARDS):
        season(seed)


def test_season_when_it_once_broke_then_it_holds_now() -> None:
    for line in REGRESSIONS.read_text().splitlines():
        if line and not line.startswith("#"):
            season(int(line.split()[0]))


def test_season_when_nothing_fails_then_leases_open_run_jobs_and_close() -> None:
    world = World(1, weather.NONE)
    play(world)
    assert sum(buyer.leases_closed for buyer in world.buyers) >= 3
    assert sum(buyer.jobs_done for buyer in world.buyers) >= 3


def test_season_when_buyers_want_gangs_then_whole_ones_open_and_end() -> None:
    cast = scene.cast_of([0.0] * 3, 2, machines=2, gang=3)
    fair = World(1, weather.NONE, cast)
    play(fair)
    assert fair.checkers.gangs >= 3
    assert sum(buyer.jobs_done for buyer in fair.buyers) >= 3
    hostile = [World(seed, HOSTILE_TO_GANGS, cast) for seed in (6, 7, 8)]
    for world in hostile:
        play(world)
        assert world.checkers.gangs >= 3
    told = [line.split(" ", 1)[1] for world in hostile for line in world.log if " " in line]
    assert {"crash market", "provider-0 vanishes"} <= {*told}
    assert any(line.startswith("market EntrySkipped") for line in told), "no opening failed"


@pytest.mark.parametrize("seed", [2, 4])
def test_season_when_run_again_in_another_process_then_the_log_is_the_same(seed: int) -> None:
    digests = {hashlib.sha256(season(seed).encode()).hexdigest()}
    for hash_seed in ("0", "12345"):
        environ = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PROGRAM, str(seed)]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        digests.add(ran.stdout.strip())
    assert len(digests) == 1


def test_checkers_when_nobody_ends_what_hangs_then_they_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    carry_out = simulated_calls.carry_out

    def without_exits(book: SimulatedBook, sender: object, call: object) -> None:
        if not isinstance(call, RefundUnstarted | ExpireLease):
            carry_out(book, sender, call)  # type: ignore[arg-type]

    monkeypatch.setattr("cloud_gpu.testing.simulated_chain.carry_out", without_exits)
    assert any(breaks(seed) for seed in range(20))


def test_checkers_when_a_gang_opens_in_part_then_they_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_part(book: SimulatedBook, sender: Address, call: OpenGang) -> None:
        for entry in pairs_of(call)[1:]:
            simulated_openings._open(book, sender, call, entry, machines=len(call.asks))

    monkeypatch.setattr(simulated_calls, "open_gang", in_part)
    world = World(1, weather.NONE, scene.cast_of([0.0] * 3, 2, machines=2, gang=3))
    with pytest.raises(AssertionError):
        play(world)


def test_checkers_when_money_appears_then_they_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    pay = SimulatedBook.pay

    def generous(book: SimulatedBook, key: LeaseKey, lease: LeaseRow, paid: int) -> None:
        pay(book, key, lease, paid)
        book.accounts[key.provider].cash += 1

    monkeypatch.setattr(SimulatedBook, "pay", generous)
    with pytest.raises(AssertionError, match=r"\d+"):
        season(1)
