"""Futures through the market's daemon: posted over HTTP, opened on a real chain, replayed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.future_reports import FutureReport, Position
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import Price
from tests.support.anvil import deployed_on, running_anvil
from tests.support.market_daemon import MarketDaemon, market_command, market_config, start_market
from tests.support.trading import Trading, trading_on

DAY_S = 24 * 3600


@pytest.fixture
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        found = trading_on(deployed_on(anvil))
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


def order_of(trading: Trading, trader: LocalKey, *, buys: bool) -> Signed[FutureOrder]:
    at, deployment = trading.deployed.anvil.time(), trading.deployed.deployment
    order = FutureOrder(
        trader=trader.address,
        is_buy=buys,
        product=trading.product,
        window_start=(at // DAY_S + 8) * DAY_S,
        window_seconds=DAY_S,
        units=1,
        limit_price_per_hour=Price(1_000_000),
        start_by=at + 3_600,
        nonce=0,
        matcher=trading.matcher.address,
    )
    return sign(order, deployment.futures_domain, trader)


def report(market: MarketDaemon, order: Signed[FutureOrder]) -> FutureReport:
    answer = market.get(f"/v1/futures/orders/{order.payload.id}")
    assert answer.status_code == 200, answer.text
    return from_json(answer.content, FutureReport)


def opened(market: MarketDaemon, order: Signed[FutureOrder], within_s: float = 40) -> FutureReport:
    give_up_at = time.monotonic() + within_s
    while (found := report(market, order)).state is not BidState.OPENED:
        assert time.monotonic() < give_up_at, f"not opened within {within_s} s: {found}"
        time.sleep(0.1)
    return found


@pytest.fixture
def start() -> Iterator[Callable[[Path], MarketDaemon]]:
    """Starts a market that ends with the test, whatever it found."""
    with ExitStack() as ends:

        def started(config: Path) -> MarketDaemon:
            market = start_market(config)
            ends.callback(market.kill)
            return market

        yield started


def test_two_orders_become_a_contract_that_a_killed_market_still_tells_of(
    trading: Trading, tmp_path: Path, start: Callable[[Path], MarketDaemon]
) -> None:
    """They come in its first second: it does not answer before it knows the chain's products."""
    config = market_config(
        trading, tmp_path / "market", futures_batch_ms=500, position_limit_bps=10_000
    )
    market = start(config)
    buy = order_of(trading, trading.buyer, buys=True)
    sell = order_of(trading, trading.provider, buys=False)
    for order in (buy, sell):
        answer = market.post("/v1/futures/orders", to_json(order))
        assert answer.status_code == 201, answer.text
    assert [each.contract for each in opened(market, sell).contracts] == [1]
    market.kill()

    again = start(config)
    assert [each.contract for each in opened(again, buy).contracts] == [1]
    answer = again.get(f"/v1/futures/positions?account={trading.provider.address}")
    (position,) = from_json(answer.content, list[Position])
    assert position.report.suggested == (0,)
    assert again.end() == 0
    replayed = market_command("replay", "--json", "--config", str(config))
    assert replayed.returncode == 0, replayed.stderr
    end = json.loads(replayed.stdout.splitlines()[-1])
    assert (end["orders"], end["reports"]) == (2, 3)
