"""A market that is killed at work and started again on the same folder and settings.

What it acknowledged, matched and sent is still there, and its nodes find it without a restart.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from cloud_gpu.protocol.adapters.evm_rpc import whole
from cloud_gpu.protocol.lease import LeaseState
from cloud_gpu.protocol.match import BidState
from tests.support.anvil import deployed_on, running_anvil
from tests.support.market_daemon import (
    MarketDaemon,
    market_command,
    market_config,
    order_of,
    provider_peer,
    start_market,
)
from tests.support.node_daemon import node_config, start_node
from tests.support.trading import Trading, trading_on

ROUND_MS = 6_000
HEARD_AGAIN_S = 40.0
"""A lost bootstrap peer is dialled every 5 s, give or take a fifth; asks come every second here."""


@pytest.fixture
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        found = trading_on(deployed_on(anvil))
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


class Market:
    """One market over all its lives."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.daemon = start_market(config)

    def kill(self) -> None:
        self.daemon.kill()

    def start(self) -> MarketDaemon:
        self.daemon = start_market(self.config)
        return self.daemon

    def end(self) -> None:
        if self.daemon.process.poll() is None:
            self.daemon.kill()


@pytest.fixture
def slow_market(trading: Trading, tmp_path: Path) -> Iterator[Market]:
    """Its rounds are long enough to be killed within one."""
    found = Market(market_config(trading, tmp_path / "market", round_ms=ROUND_MS))
    yield found
    found.end()


@pytest.fixture
def market(trading: Trading, tmp_path: Path) -> Iterator[Market]:
    """Its peers find it where it was."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"/ip4/127.0.0.1/tcp/{free.getsockname()[1]}"
    found = Market(market_config(trading, tmp_path / "market", listen_overlay=listen))
    yield found
    found.end()


async def test_a_bid_acknowledged_before_a_kill_is_matched_after_it(
    trading: Trading, slow_market: Market
) -> None:
    order, before = order_of(trading, 0), slow_market.daemon
    bid = order.bid.payload.id
    async with provider_peer(trading, before) as peer:
        await peer.announce(peer.advert())
        await before.asks(1)
        # Not so late in a round that it would end before the kill.
        with trio.fail_after(ROUND_MS / 1000):
            while time.time() * 1000 % ROUND_MS > ROUND_MS / 4:  # noqa: ASYNC110  the clock's
                await trio.sleep(0.05)
        receipt = before.place(order)
        assert receipt.status_code == 201
        slow_market.kill()
    replayed = market_command("replay", "--json", "--config", str(slow_market.config))
    assert [json.loads(line)["matches"] for line in replayed.stdout.splitlines()] == [0]
    again = slow_market.start()
    answer = again.place(order)
    assert (answer.status_code, answer.content) == (200, receipt.content)
    report = await again.report_in(bid, BidState.OPENED)
    assert report.leases == (trading.lease(),), "the ask is the journal's, though its peer is gone"


async def test_an_opening_sent_before_a_kill_and_mined_meanwhile_is_not_sent_again(
    trading: Trading, market: Market
) -> None:
    anvil, order = trading.deployed.anvil, order_of(trading, 0)
    matcher = str(trading.matcher.address)

    def sent(block: str) -> int:
        return whole(anvil.rpc.call("eth_getTransactionCount", matcher, block))

    before = market.daemon
    async with provider_peer(trading, before) as peer:
        await peer.announce(peer.advert())
        await before.asks(1)
        anvil.rpc.call("evm_setIntervalMining", 0)
        anvil.automine(False)
        first = sent("latest")
        before.place(order)
        with trio.fail_after(60):
            while sent("pending") == first:  # noqa: ASYNC110  another process's doing
                await trio.sleep(0.05)
    market.kill()
    anvil.mine()
    assert sent("latest") == first + 1
    anvil.rpc.call("evm_setIntervalMining", 1)
    again = market.start()
    report = await again.report_in(order.bid.payload.id, BidState.OPENED)
    assert report.leases == (trading.lease(),)
    leases = again.get("/v1/leases").json()
    assert [lease["state"] for lease in leases] == [LeaseState.FUNDED.value]
    block = anvil.block()
    with trio.fail_after(60):
        while anvil.block() < block + 3:  # noqa: ASYNC110  another process's doing
            await trio.sleep(0.1)
    assert sent("pending") == first + 1
    assert again.get("/healthz").json()["openings"] == 0


async def test_a_node_that_was_not_restarted_is_heard_again(
    trading: Trading, market: Market, tmp_path: Path
) -> None:
    (tmp_path / "node").mkdir()
    bootstrap = list(market.daemon.addresses)
    node = start_node(node_config(trading, tmp_path / "node", bootstrap=bootstrap, ask_life_s=20))
    try:
        (known,) = await market.daemon.asks(1)
        market.kill()
        again = market.start()
        assert list(again.addresses) == bootstrap
        newest = known
        with trio.fail_after(HEARD_AGAIN_S):
            while newest.body.ask.payload.start_by <= known.body.ask.payload.start_by:
                await trio.sleep(0.1)
                newest = next(iter(await again.asks(1)), known)
        order = order_of(trading, 0)
        again.place(order)
        await again.report_in(order.bid.payload.id, BidState.OPENED)
    finally:
        node.kill()
