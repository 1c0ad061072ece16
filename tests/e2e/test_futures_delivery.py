"""A day of two machines, sold a week ahead, is delivered by daemons and used to its end.

Market, node, and both traders' command lines are programs of their own under a clock that the test
moves with the chain's. The node's GPUs are pretended, and its runtime isolates nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.utc import format_utc
from node.adapters.control import ask_daemon
from node.adapters.process_tree import kill_marked
from tests.support.anvil import deployed_on, running_anvil
from tests.support.clock import MovedClock
from tests.support.market_daemon import MarketDaemon, market_config, start_market
from tests.support.node_daemon import NodeDaemon, end_jobs_below, node_config, start_node
from tests.support.person import Answer, Person
from tests.support.terminal import person_with
from tests.support.trading import BOND_TOKENS, Trading, trading_on

HOUR_S = 3600
DAY_S = 24 * HOUR_S
INTERVAL_S = 4 * HOUR_S
"""Of vouchers: the day passes in steps that this node bears."""
NAMES = ("one", "two")
COST = 2 * 24_000_000
"""Of both machines for the day at 1.00 an hour, base units."""
pytestmark = pytest.mark.timeout(600)


@dataclass
class Scene:
    trading: Trading
    clock: MovedClock
    market: MarketDaemon
    node: NodeDaemon
    long: Person
    short: Person

    def cash(self) -> tuple[int, int]:
        """Of the long and of the short, base units."""
        trading = self.trading
        with trading.deployed.wallet(trading.buyer) as wallet:
            long, short = (wallet.account(k.address) for k in (trading.buyer, trading.provider))
        return long.cash.value, short.cash.value

    def in_contracts(self) -> int:
        """What LeaseBook holds beside its accounts' cash and the bonds, base units."""
        trading, deployment = self.trading, self.trading.deployed.deployment
        bonds = 2 * BOND_TOKENS * deployment.bond_unit.value
        with trading.deployed.wallet(trading.matcher) as wallet:
            held, fees = wallet.token_balance(deployment.lease_book), wallet.account().cash
        return held.value - sum(self.cash()) - fees.value - bonds

    def vouchers(self) -> list[int]:
        """The best that the node holds of each lease, base units."""
        leases = ask_daemon(self.node.config.parent / "data", "status")["leases"]
        return [int(each["voucher"]) for each in leases]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with running_anvil() as anvil, ExitStack() as ends:
        windows = Windows(start=900, claim=2 * HOUR_S, retire=3 * HOUR_S)
        deployed = deployed_on(anvil, windows, voucher_interval_s=INTERVAL_S)
        trading = trading_on(deployed, machines=2)
        anvil.rpc.call("evm_setIntervalMining", 1)
        clock = MovedClock(tmp_path / "clock", anvil)
        rules = {"futures_batch_ms": 500, "position_limit_bps": 10_000}
        market = start_market(
            market_config(trading, tmp_path / "market", **rules), clock.environment
        )
        ends.callback(market.end)
        node = start_node(two_machines(trading, market, tmp_path / "node"), clock.environment)
        ends.callback(node.end)
        ends.callback(end_jobs_below, tmp_path / "node")
        ends.callback(kill_marked, clock.mark)  # keepers of leases, where the test failed
        long, short = (
            person_with(key, deployed, market.url, tmp_path / name)
            for key, name in ((trading.buyer, "long"), (trading.provider, "short"))
        )
        for person in (long, short):
            person.environ |= clock.environment
        yield Scene(trading, clock, market, node, long, short)


def two_machines(trading: Trading, market: MarketDaemon, folder: Path) -> Path:
    folder.mkdir()
    machine = {"gpu_class": "A100-SXM4-80GB", "price": "3.60", "gpu_memory_mib": 81_920}
    return node_config(
        trading,
        folder,
        30 * DAY_S,
        bootstrap=list(market.addresses),
        machines=[{"index": index, "simulated": True, **machine} for index in (0, 1)],
    )


def done(answer: Answer) -> Any:
    assert answer.code == 0, answer.out + answer.err
    return answer.json


def until(is_so: Callable[[], Any], what: str, within_s: float = 60) -> None:
    give_up_at = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < give_up_at, f"not within {within_s} s: {what}"
        time.sleep(0.1)


def traded(scene: Scene, starts_at: int) -> None:
    """Ordered, opened, funded, nominated for."""
    window = ("--gpu", "A100", "--start", format_utc(starts_at), "--length", "1d", "--units", "2")
    done(scene.long.runs("future", "buy", *window, "--max-price", "1.00", "--yes"))
    sell = done(scene.short.runs("future", "sell", *window, "--min-price", "1.00", "--yes"))
    until(
        lambda: done(scene.short.runs("future", "show", sell["order"]))["state"] == "opened",
        "a contract",
    )
    done(scene.long.runs("future", "fund", "1", "--yes"))
    assert done(scene.short.runs("future", "nominate", "1", "--yes"))["machines"] == [0, 1]


def taken_up(scene: Scene, starts_at: int) -> None:
    """Both leases, by who waits for them when the window begins."""
    with ExitStack() as waits:
        takes = [
            waits.enter_context(
                scene.long.starts("take", "1", "--nth", nth, "--name", name, "--timeout", "1h")
            )
            for nth, name in (("1", NAMES[0]), ("2", NAMES[1]))
        ]
        for take in takes:
            assert take.stderr is not None
            assert any(line.startswith("waiting until the lease opens") for line in take.stderr)
        scene.clock.jump_to(starts_at)
        for take in takes:
            out, err = take.communicate(timeout=60)
            assert take.returncode == 0, out + err


def printed(person: Person, name: str, script: str) -> str:
    """What a command in a lease prints."""
    ran = done(person.runs("exec", name, "--", "sh", "-c", script))
    assert ran["exit_code"] == 0, ran
    return str(ran["stdout"])


def is_vouched(scene: Scene, amount: int) -> bool:
    return min(scene.vouchers()) > amount


def is_over(scene: Scene, name: str) -> bool:
    return bool(done(scene.long.runs("show", name))["state"] == "ended")


def test_a_day_sold_a_week_ahead_is_used_to_its_end_and_paid(scene: Scene) -> None:
    clock, starts_at = scene.clock, (int(scene.clock.now()) // DAY_S + 8) * DAY_S
    before = scene.cash()
    traded(scene, starts_at)
    clock.jump_to(starts_at - 600)
    until(lambda: not scene.market.get("/v1/asks").json(), "that promised machines are not on sale")
    taken_up(scene, starts_at)

    for name in NAMES:
        assert printed(scene.long, name, "echo begun > kept; echo $((6 * 7))") == "42\n"
    for step in range(1, DAY_S // INTERVAL_S):
        clock.jump(INTERVAL_S)
        paid = COST // 2 * step // (DAY_S // INTERVAL_S)
        until(partial(is_vouched, scene, paid), f"vouchers above {paid}")
    clock.jump(INTERVAL_S - 900)
    assert printed(scene.long, NAMES[1], "cat kept") == "begun\n"

    clock.jump(1_000)
    for name in NAMES:
        until(partial(is_over, scene, name), f"the end of {name}")
        bill = done(scene.long.runs("show", name))["bill"]
        assert bill["settled"]
        assert (bill["seconds"], bill["paid"]["amount"]) == (DAY_S, "24.00")
        assert bill["end"] == "end of time"
    until(lambda: not scene.in_contracts(), "margins back")
    after = scene.cash()
    assert [now - then for now, then in zip(after, before, strict=True)] == [-COST, COST]
    (position,) = done(scene.short.runs("future", "positions"))["items"]
    assert position["state"] == "settled"
