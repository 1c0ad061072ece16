"""Two buyers take two machines together from the command line; and get their money back if not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from cloud_gpu.cli.exits import ExitCode
from tests.support.anvil import deployed_on, running_anvil
from tests.support.market_daemon import (
    MarketDaemon,
    market_config,
    provider_peer,
    start_market,
)
from tests.support.person import Answer, Person
from tests.support.terminal import person_with
from tests.support.trading import Trading, trading_on

pytestmark = pytest.mark.timeout(300)
OPEN = ("group", "open", "--gpu", "A100", "--price", "3.60", "--duration", "10m", "--goal", "2")


@dataclass
class Scene:
    trading: Trading
    market: MarketDaemon
    ann: Person
    bob: Person

    def cash(self, person: str) -> int:
        key = self.trading.deployed.key(person)
        with self.trading.deployed.wallet(key) as wallet:
            return wallet.account().cash.value


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("group")
    with running_anvil() as anvil:
        trading = trading_on(deployed_on(anvil), machines=2)
        members = [trading.deployed.member(name) for name in ("ann", "bob")]
        anvil.rpc.call("evm_setIntervalMining", 1)
        market = start_market(market_config(trading, folder / "market"))
        ann, bob = (
            person_with(key, trading.deployed, market.url, folder / key.address.raw.hex())
            for key in members
        )
        yield Scene(trading, market, ann, bob)
        if market.process.poll() is None:
            assert market.end() == 0


def done(answer: Answer) -> Any:
    assert answer.code == 0, answer.out + answer.err
    return answer.json


def refused(answer: Answer, code: int, *words: str) -> None:
    assert answer.code == code, answer.out + answer.err
    for word in words:
        assert word in answer.out, answer.out


def until(look: Callable[[], Any], holds: Callable[[Any], bool], within_s: float = 60) -> Any:
    give_up_at = time.monotonic() + within_s
    while not holds(found := look()):
        assert time.monotonic() < give_up_at, found
    return found


def test_two_buyers_get_two_machines_together(scene: Scene) -> None:
    opened = done(scene.ann.runs(*OPEN, "--deadline", "1h"))
    assert opened["each"] == {"amount": "0.60", "unit": "token"}
    campaign = opened["campaign"]
    unasked = scene.ann.runs("group", "pledge", campaign)
    refused(unasked, ExitCode.USAGE, "Lock 0.60 tokens", "--yes")
    done(scene.ann.runs("group", "pledge", campaign, "--yes"))
    done(scene.bob.runs("group", "pledge", campaign, "--direct", "--yes"))
    shown = until(
        lambda: done(scene.bob.runs("group", "show", campaign)), lambda row: row["slices"] == 2
    )
    assert (shown["state"], shown["missing_machines"]) == ("reached", 2)
    assert [each["yours"] for each in shown["pledges"]].count(True) == 1
    early = scene.ann.runs("group", "refund", campaign)
    refused(early, ExitCode.REJECTED, "while it may still close", "cannot be withdrawn")

    trio.run(served, scene)
    row = until(
        lambda: done(scene.ann.runs("group", "show", campaign)), lambda row: row["leases"] != []
    )
    assert row["state"] == "opened"
    assert row["leases"][0].startswith(str(scene.trading.provider.address))
    assert [each["state"] for each in row["pledges"]] == ["served", "served"]
    told = [each["kind"] for each in done(scene.ann.runs("group", "notices"))["items"]]
    assert told[0] == "listed"
    assert {"pledged", "reached", "leases-opened"} <= set(told)
    (listed,) = done(scene.bob.runs("group", "ls", "--state", "opened"))["items"]
    assert listed["campaign"] == campaign
    late = scene.bob.runs("group", "pledge", campaign, "--yes")
    refused(late, ExitCode.REJECTED, "whose leases are open")


async def served(scene: Scene) -> None:
    """The provider offers both machines for group buys."""
    module = scene.trading.deployed.deployment.group_buy
    async with provider_peer(scene.trading, scene.market) as provider:
        for index in (0, 1):
            await provider.announce(provider.advert(index, matcher=module))
        await trio.sleep(3)  # gossip has no receipt


def test_what_cannot_be_is_refused_with_its_flag_and_the_fix(scene: Scene) -> None:
    late = scene.ann.runs(*OPEN, "--deadline", "20d")
    refused(late, ExitCode.USAGE, "--deadline: found 20", "locked for longer than 14d")
    nothing = scene.ann.runs("group", "show", "0x" + "00" * 32)
    refused(nothing, ExitCode.NO_SUCH_THING, "unknown-order")


def test_a_failed_campaign_gives_back_though_its_market_is_gone(scene: Scene) -> None:
    """The last one here: it ends the market and sets the chain's clock ahead."""
    before = scene.cash("bob")
    campaign = done(scene.bob.runs(*OPEN, "--deadline", "2h"))["campaign"]
    done(scene.bob.runs("group", "pledge", campaign, "--direct", "--yes"))
    assert scene.cash("bob") == before - 600_000
    assert scene.market.end() == 0
    scene.trading.deployed.anvil.pass_time(2 * 3600)
    back = done(scene.bob.runs("group", "refund", campaign))
    assert back["refunded"] == {"amount": "0.60", "unit": "token"}
    assert scene.cash("bob") == before
    again = scene.bob.runs("group", "refund", campaign)
    refused(again, ExitCode.REJECTED, "has nothing locked")
