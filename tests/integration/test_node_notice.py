"""Notice on a real chain: the operator's command, the daemon's release, the buyer's money."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_gpu.protocol.chain_events import LeaseClosed, LeaseStarted, NoticeGiven, PenaltyPaid
from cloud_gpu.protocol.job import JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseFlags, Windows
from cloud_gpu.protocol.messages import JobFinished, JobReported, LeaseEndedHere
from tests.integration.test_node_daemon import begun, opened
from tests.support.anvil import deployed_on, running_anvil
from tests.support.node_daemon import (
    NodeDaemon,
    buyer_side,
    end_jobs_below,
    node_config,
    start_node,
)
from tests.support.trading import Trading, trading_on
from tests.support.watching import watched

NOTICE_S = 4


@pytest.fixture
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        windows = Windows(start=20, claim=15, retire=60)
        deployed = deployed_on(anvil, windows, voucher_interval_s=3)
        found = trading_on(deployed, flags=LeaseFlags.INTERRUPTIBLE, notice_s=NOTICE_S)
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


def said_to(node: NodeDaemon, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "node.main", *words, "--config", str(node.config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def test_a_lease_that_was_given_notice_is_released_for_nothing(
    trading: Trading, tmp_path: Path
) -> None:
    machine = {
        "index": 0,
        "gpu_class": "A100-SXM4-80GB",
        "price": "3.60",
        "simulated": True,
        "gpu_memory_mib": 81_920,
        "interruptible": True,
    }
    node = start_node(node_config(trading, tmp_path, machines=[machine]))
    try:
        async with (
            watched(trading.deployed, trading.matcher, tmp_path / "matcher") as market,
            buyer_side(trading, tmp_path) as buyer,
        ):
            nothing = said_to(node, "notice", "0")
            assert nothing.returncode == 7
            assert "lease: found '0'" in nothing.stderr
            lease = await opened(trading, node, buyer, market.chain)
            await begun(buyer, node, lease)
            await market.wait_for(LeaseStarted)
            words = ("sh", "-c", "echo half > out.txt; sleep 50")
            spec = JobSpec(lease=lease, number=1, command=words, runtime_s_max=60)
            await buyer.ask(node, buyer.submit(spec), JobReported)

            told = json.loads(said_to(node, "notice", "0/1", "--json").stdout)
            given = await market.wait_for(NoticeGiven)
            assert given.releasable_at == given.at + NOTICE_S
            assert abs(told["releasable_at"] - given.releasable_at) <= 5
            ended = await buyer.hear(LeaseEndedHere)
            assert ended.reason is LeaseEndReason.NOTICE
            result = (await buyer.hear(JobFinished)).result.body
            assert result.outcome is JobOutcome.KILLED
            assert [file.path for file in result.outputs] == ["out.txt"]

            closed = await market.wait_for(LeaseClosed)
            assert closed.reason is LeaseEndReason.NOTICE
            assert closed.at >= given.releasable_at
            assert not market.all(PenaltyPaid)
            account = await market.chain.account(trading.buyer.address)
            assert account.cash.value == 1_000_000_000 - closed.paid.value
            assert 0 < closed.paid.value < trading.cap(60).value
    finally:
        end_jobs_below(tmp_path)
        node.kill()
