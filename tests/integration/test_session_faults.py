"""Sessions while a devnet falls apart: nodes and markets that die, and come back."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu import LeaseInterrupted, MarketUnavailable, Session
from cloud_gpu.protocol.lease import MachineStatus
from cloud_gpu.protocol.settlement import accrued
from tests.support.renting import Renting, renting

pytestmark = [pytest.mark.timeout(240), pytest.mark.alone]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Renting]:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    with renting(tmp_path / "devnet") as found:
        yield found


@pytest.fixture
def later() -> Iterator[Callable[[float, Callable[[], object]], None]]:
    """Do something while the test waits for a session."""
    threads: list[threading.Timer] = []

    def start(delay_s: float, work: Callable[[], object]) -> None:
        threads.append(threading.Timer(delay_s, work))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


Later = Callable[[float, Callable[[], object]], None]


def session(world: Renting, **words: Any) -> Session:
    return Session("A100", 2, settings=world.settings, say=world.said.append, **words)


def node_of(world: Renting, s: Session) -> str:
    provider = s.lease.funded.lease.provider
    nodes = world.devnet.prepared.nodes
    return next(node.name for node in nodes if node.wallet.key.address == provider)


def restart(world: Renting, name: str) -> None:
    world.devnet.children[name].kill()
    world.devnet.start(name)
    world.devnet.started(name)


def test_a_node_that_dies_interrupts_the_run_and_costs_what_was_promised(
    world: Renting, later: Later
) -> None:
    before = world.cash()
    with session(world) as s:
        later(3.0, world.devnet.children[node_of(world, s)].kill)
        began = time.monotonic()
        with pytest.raises(LeaseInterrupted, match="silent"):
            s.run("sleep 120", stream=False)
        assert time.monotonic() - began < 30
    bill = s.bill
    assert bill is not None
    assert bill.settled, str(bill)
    assert world.cash() == before - bill.paid.value
    assert bill.paid <= accrued(s.lease.funded.cap, 3 + 2 * 2 + 2, 3600)
    assert world.status(bill.lease) is MachineStatus.FREE


def test_a_node_that_is_killed_and_started_again_loses_nothing(world: Renting) -> None:
    with session(world) as s:
        job = s.popen("echo one; sleep 12; echo two")
        time.sleep(2)
        restart(world, node_of(world, s))
        assert job.wait(check=True).stdout == "one\ntwo\n"
        assert s.run("echo three", stream=False).stdout == "three\n"
    assert s.bill is not None
    assert s.bill.settled


def test_a_market_that_dies_does_not_disturb_a_lease(world: Renting) -> None:
    with session(world) as s:
        world.devnet.children["market"].kill()
        assert s.run("sleep 3; echo done", stream=False).stdout == "done\n"
    assert s.bill is not None
    assert s.bill.settled
    with pytest.raises(MarketUnavailable), session(world):
        pass


def test_a_market_that_is_killed_with_the_bid_in_its_book_still_opens_it(world: Renting) -> None:
    opened: list[str] = []

    def rent() -> None:
        with session(world, start_timeout="60s") as second:
            opened.append(second.run("echo here", stream=False).stdout)

    waiting = threading.Thread(target=rent)
    with session(world):  # the one machine of two GPUs that is cheap enough
        waiting.start()
        time.sleep(3)
        restart(world, "market")
    waiting.join(90)
    assert opened == ["here\n"]


def test_a_chain_that_stands_still_for_a_while_is_waited_for(world: Renting, later: Later) -> None:
    chain = world.devnet.children["chain"]
    with session(world) as s:
        chain.signal(signal.SIGSTOP)
        later(4.0, lambda: chain.signal(signal.SIGCONT))
        assert s.run("echo on", stream=False).stdout == "on\n"
    assert s.bill is not None
    assert s.bill.settled
