"""A group buy served by a real node: its own ask, gossiped to the market, to a member's job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.group_reports import CampaignPage, CampaignState, GroupLease
from cloud_gpu.protocol.job import JobOutcome, JobSpec
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.messages import JobFinished, ReadyOffered, VoucherAcknowledged
from tests.support.anvil import deployed_on, running_anvil
from tests.support.group_buying import GroupBuying, group_buying
from tests.support.market_daemon import MarketDaemon, market_config, start_market
from tests.support.node_daemon import NodeDaemon, buyer_side, node_config, start_node
from tests.support.trading import Trading, trading_on


@pytest.fixture
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        windows = Windows(start=40, claim=60, retire=120)
        found = trading_on(deployed_on(anvil, windows, voucher_interval_s=30))
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


@pytest.fixture
def market(trading: Trading, tmp_path: Path) -> Iterator[MarketDaemon]:
    found = start_market(market_config(trading, tmp_path / "market"))
    yield found
    if found.process.poll() is None:
        found.kill()


@pytest.fixture
def node(trading: Trading, market: MarketDaemon, tmp_path: Path) -> Iterator[NodeDaemon]:
    folder = tmp_path / "node"
    folder.mkdir()
    bootstrap = list(market.addresses)
    found = start_node(node_config(trading, folder, group_buys=True, bootstrap=bootstrap))
    yield found
    if found.process.poll() is None:
        found.kill()


def opened(market: MarketDaemon, buying: GroupBuying) -> GroupLease:
    """Open the campaign, pledge to it, and wait for the member's lease."""
    assert market.post("/v1/group-buys", to_json(buying.offer)).status_code == 201
    path = f"/v1/group-buys/{buying.id}"
    pledge = buying.pledge(buying.trading.buyer)
    assert market.post(f"{path}/pledges", to_json(pledge)).status_code == 201
    give_up_at = time.monotonic() + 60
    while True:
        report = from_json(market.get(path).content, CampaignPage).report
        if report.state is CampaignState.OPENED:
            break
        assert time.monotonic() < give_up_at, report
        time.sleep(0.1)
    (lease,) = from_json(market.get(f"{path}/leases").content, list[GroupLease])
    return lease


async def test_a_member_runs_a_job_on_a_node_that_serves_group_buys(
    trading: Trading, market: MarketDaemon, node: NodeDaemon, tmp_path: Path
) -> None:
    buying = group_buying(trading, goal=1, within_s=3_600)
    found = await trio.to_thread.run_sync(opened, market, buying)
    assert found.buyer == trading.buyer.address
    assert found.advert is not None
    assert found.advert.body.addresses == node.addresses
    lease = found.lease
    async with buyer_side(trading, tmp_path) as buyer:
        offered = await buyer.ask(node, buyer.session(lease, node), ReadyOffered)
        assert offered.report.digest == offered.ready.payload.runtime_hash
        await buyer.say(node, buyer.voucher(lease, buying.cost.value))
        await buyer.ask(node, buyer.accept(lease), VoucherAcknowledged)
        command = ("python", "-c", "print('together')")
        spec = JobSpec(lease=lease, number=1, command=command, inputs=(), runtime_s_max=30)
        finished = await buyer.ask(node, buyer.submit(spec), JobFinished)
        assert finished.result.body.outcome is JobOutcome.EXITED
        assert finished.result.body.exit_code == 0
    assert node.end() == 0
