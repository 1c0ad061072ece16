"""API workers beside the matchmaker: whatever is killed, nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
import trio

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.values import Digest
from market.store.database import Database
from market.store.views import SqlBook
from tests.support.anvil import deployed_on, running_anvil
from tests.support.databases import KINDS, empty_database_of
from tests.support.market_daemon import (
    MarketDaemon,
    market_command,
    market_config,
    order_of,
    start_market,
)
from tests.support.market_workers import Workers, start_workers
from tests.support.trading import Trading, trading_on


@pytest.fixture(scope="module")
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        found = trading_on(deployed_on(anvil))
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


@dataclass
class Side:
    """A market with workers on one database."""

    config: Path
    database: str
    daemon: MarketDaemon
    workers: Workers
    receipts: dict[Digest, int] = field(default_factory=dict)
    """Position of each acknowledged bid."""

    def client(self) -> httpx.Client:
        """Of the workers."""
        return httpx.Client(base_url=self.workers.url, timeout=20, trust_env=False, verify=False)

    def place(self, order: SignedBid) -> None:
        """Through a worker; a connection that a kill cuts acknowledges nothing."""
        with suppress(httpx.TransportError), self.client() as client:
            answer = client.post("/v1/bids", content=to_json(order))
            assert answer.status_code in (200, 201), answer.text
            receipt = from_json(answer.content, SignedReceipt)
            self.receipts[receipt.body.order] = receipt.body.inbox

    async def all_handled(self) -> None:
        """Until the matchmaker has reported on every acknowledged bid."""
        with closing(Database.existing(self.database)) as database, trio.fail_after(60):
            view = SqlBook(database)
            while any(view.report(bid) is None for bid in self.receipts):  # noqa: ASYNC110
                await trio.sleep(0.1)


@pytest.fixture(scope="module", params=KINDS)
def side(
    request: pytest.FixtureRequest,
    trading: Trading,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Side]:
    with empty_database_of(request, tmp_path_factory) as url:
        config = market_config(
            trading,
            tmp_path_factory.mktemp("workers") / "market",
            database=url,
            listen_http="",
            listen_api="127.0.0.1:0",
        )
        daemon = start_market(config)
        assert daemon.url == ""
        found = Side(config, url, daemon, start_workers(config, 2))
        yield found
        found.workers.end()
        found.daemon.kill()


def serving(port: int) -> set[int | None]:
    """The processes that hold a connection to a port of this machine."""
    return {
        each.pid
        for each in psutil.net_connections("tcp4")
        if each.status == psutil.CONN_ESTABLISHED and each.laddr[1:] == (port,)
    }


def test_connections_that_come_together_are_spread_over_the_workers(side: Side) -> None:
    host, _, port = side.workers.url.removeprefix("http://").partition(":")
    with ExitStack() as stack:  # all with one worker: once in 2^31
        for _ in range(32):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
        deadline = time.monotonic() + 20
        while not set(side.workers.pids()) <= serving(int(port)):
            assert time.monotonic() < deadline, "a worker has no connection"


def test_workers_answer_what_the_matchmaker_knows(side: Side, trading: Trading) -> None:
    with side.client() as client:
        facts = client.get("/v1/market").json()
        assert facts["market_id"] == trading.market_id
        assert facts["fee_bps"] == 250
        assert facts["addresses"] == list(side.daemon.addresses)
        assert [each["id"] for each in client.get("/v1/products").json()] == [trading.product]
        assert client.get("/healthz").json()["ok"] is True
        assert "cloud_gpu_market_asks 0.0" in client.get("/metrics").text


def test_a_second_matchmaker_on_the_database_is_refused(side: Side) -> None:
    refused = market_command("run", "--config", str(side.config))
    assert refused.returncode != 0
    assert b"another matchmaker runs on" in refused.stderr
    assert b"Traceback" not in refused.stderr


def test_workers_without_a_market_say_what_to_do(trading: Trading, tmp_path: Path) -> None:
    config = market_config(trading, tmp_path / "market")
    refused = market_command("api", "--config", str(config))
    assert refused.returncode != 0
    assert b"there is no file" in refused.stderr
    assert b"Traceback" not in refused.stderr


@pytest.mark.timeout(300)  # five starts of a process that imports much
async def test_nothing_acknowledged_is_lost_when_workers_and_the_matchmaker_are_killed(
    side: Side, trading: Trading
) -> None:
    """The last one here: it counts from the first order, and leaves nobody as it was."""
    orders = [order_of(trading, nonce) for nonce in range(90)]
    first = side.workers.pids()
    assert len(first) == 2
    with ThreadPoolExecutor(6) as pool:
        placing = [pool.submit(side.place, order) for order in orders[:30]]
        os.kill(first[0], signal.SIGKILL)
        placing += [pool.submit(side.place, order) for order in orders[30:60]]
        side.daemon.kill()
        placing += [pool.submit(side.place, order) for order in orders[60:]]
        for each in placing:
            each.result()
    assert len(side.receipts) > 60
    side.daemon = start_market(side.config)
    for order in orders:  # the same again: the same receipt
        before = side.receipts.get(order.bid.payload.id)
        side.place(order)
        assert before in (None, side.receipts[order.bid.payload.id])
    assert sorted(side.receipts.values()) == list(range(1, 91))
    await side.all_handled()
    with trio.fail_after(60):  # another worker came in the place of the first
        while len(side.workers.pids()) < 2:  # noqa: ASYNC110  another program's doing
            await trio.sleep(0.1)
    assert first[0] not in side.workers.pids()
