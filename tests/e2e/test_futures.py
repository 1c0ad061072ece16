"""A day is bought ahead from the command line: ordered, handed on, funded, nominated for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.protocol.utc import format_utc, parse_utc
from tests.support.anvil import deployed_on, running_anvil
from tests.support.market_daemon import market_config, start_market
from tests.support.person import Answer, Person
from tests.support.terminal import person_with
from tests.support.trading import Trading, trading_on

DAY_S = 24 * 3600
pytestmark = pytest.mark.timeout(300)


@dataclass
class Scene:
    trading: Trading
    long: Person
    short: Person
    other: Person
    """Takes the long's side over."""
    start: str
    """Of the day that is traded."""

    def window(self) -> tuple[str, ...]:
        return "--gpu", "A100", "--start", self.start, "--length", "1d"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("futures")
    with running_anvil() as anvil:
        trading = trading_on(deployed_on(anvil), machines=2)
        other = trading.deployed.member("other")
        anvil.rpc.call("evm_setIntervalMining", 1)
        config = market_config(
            trading, folder / "market", futures_batch_ms=500, position_limit_bps=10_000
        )
        market = start_market(config)
        try:
            long, short, third = (
                person_with(key, trading.deployed, market.url, folder / key.address.raw.hex())
                for key in (trading.buyer, trading.provider, other)
            )
            start = format_utc((anvil.time() // DAY_S + 8) * DAY_S)
            yield Scene(trading, long, short, third, start)
        finally:
            assert market.end() == 0


def done(answer: Answer) -> Any:
    assert answer.code == 0, answer.out + answer.err
    return answer.json


def refused(answer: Answer, code: int, *words: str) -> None:
    assert answer.code == code, answer.out + answer.err
    for word in words:
        assert word in answer.out, answer.out


def until_opened(person: Person, order: str) -> Any:
    give_up_at = time.monotonic() + 40
    while (found := done(person.runs("future", "show", order)))["state"] != "opened":
        assert time.monotonic() < give_up_at, found
    return found


def test_a_day_is_ordered_and_becomes_a_contract(scene: Scene) -> None:
    none = scene.long.runs("future", "series")
    assert done(none)["items"] == []
    assert "1x A100-SXM4-80GB" in none.err
    limits = ("--units", "1", "--max-price", "1.20")
    asked = done(scene.long.runs("future", "buy", *scene.window(), *limits, "--dry-run"))
    assert asked["margin"] == {"amount": "4.32", "unit": "token"}  # 15 % of 1.20 for 24 h
    unasked = scene.long.runs("future", "buy", *scene.window(), *limits)
    refused(unasked, ExitCode.USAGE, "4.32", "--yes")
    buy = done(scene.long.runs("future", "buy", *scene.window(), *limits, "--yes"))
    sell = done(scene.short.runs("future", "sell", *scene.window(), "--min-price", "0.80", "--yes"))
    opened = until_opened(scene.short, sell["order"])
    (contract,) = opened["contracts"]
    assert (contract["contract"], contract["units"], opened["filled"]) == (1, 1, 1)
    (mine,) = done(scene.long.runs("future", "ls"))["items"]
    assert (mine["order"], mine["contracts"]) == (buy["order"], opened["contracts"])
    (listed,) = done(scene.other.runs("future", "series", "--gpu", "1"))["items"]
    assert listed["last"]["amount"] == contract["per_hour"]["amount"]
    assert done(scene.other.runs("future", "curve", "--gpu", "A100"))["days"]
    book = done(scene.other.runs("future", "book", *scene.window()))
    assert (book["buys"], book["sells"]) == ([], [])


def test_an_order_is_cancelled_on_chain_too(scene: Scene) -> None:
    placed = done(scene.long.runs("future", "buy", *scene.window(), "--max-price", "0.10", "--yes"))
    gone = done(scene.long.runs("future", "cancel", placed["order"], "--yes"))
    assert gone["filled"] == 0
    again = scene.long.runs("future", "cancel", placed["order"], "--yes")
    refused(again, ExitCode.NO_SUCH_THING, "cancelled")


def test_a_side_is_handed_on_then_funded_and_nominated(scene: Scene, tmp_path: Path) -> None:
    signed = scene.other.runs(
        *("future", "join", "1", "--side", "long", "--receives", "1", "--yes", "--json")
    )
    assert done(signed)["leaver"] == str(scene.trading.buyer.address)
    (tmp_path / "signed.json").write_text(signed.out)
    done(scene.long.runs("future", "assign", str(tmp_path / "signed.json"), "--yes"))
    contract = done(scene.long.runs("future", "show", "1"))
    assert contract["long"] == str(scene.trading.deployed.key("other").address)

    (position,) = done(scene.other.runs("future", "positions"))["items"]
    assert [step["step"] for step in position["steps"] if step["yours"]] == ["fund"]
    funded = done(scene.other.runs("future", "fund", "1", "--yes"))
    assert funded["locked"] == contract["price"]
    named = done(scene.short.runs("future", "nominate", "1", "--yes"))
    assert named["machines"] == [0]
    contract = done(scene.short.runs("future", "show", "1"))
    assert (contract["funded"], contract["nominated"]) == (True, True)


def test_what_cannot_be_is_refused_with_its_flag_and_the_fix(scene: Scene) -> None:
    buy = ("future", "buy", "--yes", "--max-price")
    between = ("--gpu", "A100", "--start", "2099-12-08T13:30", "--length", "4h")
    found = scene.long.runs(*buy, "1.20", *between)
    near = "2099-12-08T12:00Z or 2099-12-08T16:00Z"
    refused(found, ExitCode.USAGE, "--start: found 2099-12-08T13:30Z", near)
    many = scene.long.runs(*buy, "1.20", *scene.window(), "--units", "3")
    refused(many, ExitCode.REJECTED, "at most 2 in all", "Order fewer machines")
    dear = scene.long.runs(*buy, "5000.00", *scene.window())
    refused(dear, ExitCode.FUNDS, "the margin of this order", "18000.00")
    not_mine = scene.long.runs("future", "fund", "1", "--yes")
    refused(not_mine, ExitCode.REJECTED, "contract: long 0x", "CLOUD_GPU_KEYSTORE")


def test_past_the_deadline_nothing_changes(scene: Scene) -> None:
    """The last one here: it sets the chain's clock a week ahead, and the market delivers."""
    anvil, start = scene.trading.deployed.anvil, parse_utc(scene.start)
    contract = done(scene.short.runs("future", "show", "1"))
    anvil.pass_time(parse_utc(contract["deadline"]) + 1 - anvil.time())
    late = scene.short.runs("future", "nominate", "1", "--yes")
    refused(late, ExitCode.REJECTED, contract["deadline"])
    anvil.pass_time(start - anvil.time())
    give_up_at = time.monotonic() + 40
    while not (mine := done(scene.other.runs("future", "positions"))["items"][0])["leases"]:
        assert time.monotonic() < give_up_at, f"the market does not deliver: {mine}"
    assert mine["state"] == "delivered"
    refused(
        scene.short.runs("future", "show", "1"), ExitCode.REJECTED, "which was delivered or ended"
    )
