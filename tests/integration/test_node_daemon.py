"""The node's daemon on a real chain and overlay: a lease from its ask to its settlement."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from cloud_gpu.protocol.adapters.evm import EvmChain
from cloud_gpu.protocol.calls import CloseBatch, Closing, StopLease
from cloud_gpu.protocol.chain_events import LeaseClosed, LeaseStarted
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, Windows
from cloud_gpu.protocol.messages import (
    CloseAsked,
    FinalOffered,
    JobFinished,
    JobPrinted,
    JobReported,
    ReadyOffered,
    VoucherAcknowledged,
)
from cloud_gpu.protocol.units import TokenAmount
from node.adapters.process_tree import is_alive
from tests.support.anvil import deployed_on, running_anvil
from tests.support.node_daemon import (
    BuyerSide,
    NodeDaemon,
    buyer_side,
    end_jobs_below,
    node_config,
    start_node,
)
from tests.support.trading import PRICE, Trading, trading_on

EventT = TypeVar("EventT")

SECOND = 1_000
"""Base units that one second of a lease costs."""


@pytest.fixture
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        deployed = deployed_on(anvil, Windows(start=20, claim=15, retire=60), voucher_interval_s=3)
        found = trading_on(deployed)
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


@asynccontextmanager
async def chain_of(trading: Trading, who: str, folder: Path) -> AsyncIterator[EvmChain]:
    key = getattr(trading, who)
    path = folder / f"{who}.sqlite"
    async with EvmChain(trading.deployed.rpc_url, trading.deployed.deployment, key, path) as chain:
        yield chain


async def opened(
    trading: Trading, node: NodeDaemon, buyer: BuyerSide, chain: EvmChain, duration: int = 60
) -> LeaseKey:
    """Match the node's own ask, as its market would."""
    with trio.fail_after(60):
        while not (adverts := await buyer.adverts(node)):  # noqa: ASYNC110 another process's
            await trio.sleep(0.2)
    ask = adverts[0].body.ask
    assert ask.payload.min_price_per_hour == PRICE
    bid = trading.bid(duration=duration)
    await chain.submit(trading.opening((ask, bid)))
    return trading.lease(seq=ask.payload.seq)


async def seen(chain: EvmChain, kind: type[EventT], within_s: float = 60) -> EventT:
    with trio.fail_after(within_s):
        async with aclosing(chain.events()) as events:
            async for event in events:
                if isinstance(event, kind):
                    return event
    raise AssertionError


async def begun(buyer: BuyerSide, node: NodeDaemon, lease: LeaseKey) -> None:
    offered = await buyer.ask(node, buyer.session(lease, node), ReadyOffered)
    assert offered.report.digest == offered.ready.payload.runtime_hash
    assert offered.report.profile.simulated
    await buyer.say(node, buyer.voucher(lease, 60 * SECOND))
    await buyer.ask(node, buyer.accept(lease), VoucherAcknowledged)


async def closed_early(
    buyer: BuyerSide, node: NodeDaemon, chain: EvmChain, lease: LeaseKey
) -> None:
    """Both sides agree on what was vouchered."""
    trading = buyer.trading
    offered = await buyer.ask(node, CloseAsked(lease=lease), FinalOffered)
    amount = offered.final.payload.amount
    closing = Closing(
        voucher=trading.voucher(lease, amount.value),
        final=offered.final,
        buyer_final=trading.final(lease, amount.value, trading.session),
    )
    await chain.submit(CloseBatch(closings=(closing,)))
    closed = await seen(chain, LeaseClosed)
    assert closed.reason is LeaseEndReason.STOPPED
    assert TokenAmount(0) < closed.paid <= amount


@pytest.mark.parametrize("runtime", ["process", pytest.param("docker", marks=pytest.mark.docker)])
async def test_a_job_runs_from_ask_to_settlement(
    trading: Trading, tmp_path: Path, runtime: str
) -> None:
    node = start_node(node_config(trading, tmp_path, runtime=runtime))
    assert node.ready["runtime"] in {"process": ("process",), "docker": ("runc", "runsc")}[runtime]
    stand_ins = node.ready["stand_ins"]
    assert isinstance(stand_ins, list)
    assert "simulated GPUs" in stand_ins
    assert ("process runtime (no isolation)" in stand_ins) == (runtime == "process")
    try:
        async with (
            chain_of(trading, "matcher", tmp_path) as chain,
            buyer_side(trading, tmp_path) as buyer,
        ):
            lease = await opened(trading, node, buyer, chain)
            await begun(buyer, node, lease)
            started = await seen(chain, LeaseStarted)
            assert started.lease == lease

            script = b"print('hello', open('in.txt').read())\nopen('out.txt', 'w').write('done')\n"
            files = []
            for path, content in (("train.py", script), ("in.txt", b"world")):
                sha256 = buyer.store.put_bytes(content)
                await buyer.artifacts.push(node.addresses, sha256)
                files.append(FileRef(path=path, sha256=sha256, size=len(content)))
            spec = JobSpec(
                lease=lease,
                number=1,
                command=("python", "train.py"),
                inputs=tuple(files),
                runtime_s_max=30,
            )
            finished = await buyer.ask(node, buyer.submit(spec), JobFinished)
            body = finished.result.body
            assert (body.outcome, body.exit_code) == (JobOutcome.EXITED, 0), body
            printed = [m for m in buyer.heard if isinstance(m, JobPrinted)]
            assert b"".join(p.chunk for p in printed) == b"hello world\n"
            (output,) = body.outputs
            assert output.path == "out.txt"
            fetched = await buyer.artifacts.fetch(node.addresses, output.sha256, size_max=100)
            assert fetched.read_bytes() == b"done"

            await closed_early(buyer, node, chain, lease)
            with trio.fail_after(60):
                while [  # noqa: ASYNC110
                    a.body.ask.payload.seq for a in await buyer.adverts(node)
                ] != [2]:
                    await trio.sleep(0.2)
            with trio.fail_after(60):
                while any((tmp_path / "data/leases").iterdir()):  # noqa: ASYNC110
                    await trio.sleep(0.1)
    finally:
        assert node.end() == 0


@pytest.mark.parametrize("runtime", ["process", pytest.param("docker", marks=pytest.mark.docker)])
async def test_kill_9_in_the_middle_loses_no_voucher_and_no_job(
    trading: Trading, tmp_path: Path, runtime: str
) -> None:
    config = node_config(trading, tmp_path, runtime=runtime)
    node = start_node(config)
    try:
        async with (
            chain_of(trading, "matcher", tmp_path) as chain,
            buyer_side(trading, tmp_path) as buyer,
        ):
            lease = await opened(trading, node, buyer, chain)
            await begun(buyer, node, lease)
            program = "import time\nfor i in range(8): print(i); time.sleep(0.5)\n"
            spec = JobSpec(
                lease=lease, number=1, command=("python", "-c", program), runtime_s_max=30
            )
            await buyer.ask(node, buyer.submit(spec), JobReported)
            await buyer.hear(JobPrinted)
            node.kill()
            await trio.sleep(1)
            node = start_node(config)
            acknowledged = await buyer.ask(node, buyer.voucher(lease, 1), VoucherAcknowledged)
            assert acknowledged.amount == TokenAmount(60 * SECOND)
            finished = await buyer.hear(JobFinished)
            body = finished.result.body
            assert (body.outcome, body.exit_code, body.detail) == (JobOutcome.EXITED, 0, "")
            stdout = await buyer.artifacts.fetch(node.addresses, body.stdout.sha256, size_max=10**6)
            assert stdout.read_text().split() == [str(i) for i in range(8)], "it never stopped"
            assert body.ended_at - body.started_at < 6_000
            async with chain_of(trading, "buyer", tmp_path) as buyers_chain:
                await buyers_chain.submit(StopLease(lease=lease))
                closed = await seen(chain, LeaseClosed)
            assert closed.reason is LeaseEndReason.STOPPED
            assert closed.paid > TokenAmount(0)
    finally:
        end_jobs_below(tmp_path)
        node.end()


async def test_jobs_end_with_the_daemon_where_the_settings_say_so(
    trading: Trading, tmp_path: Path
) -> None:
    node = start_node(node_config(trading, tmp_path, end_jobs_on_stop=True))
    try:
        async with (
            chain_of(trading, "matcher", tmp_path) as chain,
            buyer_side(trading, tmp_path) as buyer,
        ):
            lease = await opened(trading, node, buyer, chain)
            await begun(buyer, node, lease)
            program = "print(1, flush=True); import time; time.sleep(600)"
            spec = JobSpec(
                lease=lease, number=1, command=("python", "-c", program), runtime_s_max=900
            )
            await buyer.ask(node, buyer.submit(spec), JobReported)
            await buyer.hear(JobPrinted)
            assert node.end() == 0
            assert not supervisors_below(tmp_path)
    finally:
        end_jobs_below(tmp_path)
        node.process.kill()
        node.process.wait(timeout=60)


def supervisors_below(folder: Path) -> list[int]:
    """Supervisors of jobs that still run."""
    marks = [json.loads(path.read_text()) for path in folder.glob("data/leases/*/jobs/*/pid.json")]
    assert marks
    return [mark["pid"] for mark in marks if is_alive(mark["pid"], mark["ticks"])]


def command(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "node.main", *words, "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


async def test_an_operator_sees_probes_and_drains_the_node(
    trading: Trading, tmp_path: Path
) -> None:
    config = node_config(trading, tmp_path)
    nobody = command(config, "status")
    assert nobody.returncode == 8
    assert "no node answers" in nobody.stderr
    probed = command(config, "probe", "--json")
    assert probed.returncode == 0, probed.stderr
    (machine,) = json.loads(probed.stdout)["machines"]
    assert machine["profile"]["simulated"] is True
    assert machine["faults"] == []

    node = start_node(config)
    try:
        async with buyer_side(trading, tmp_path) as buyer:
            with trio.fail_after(60):
                while not await buyer.adverts(node):  # noqa: ASYNC110 another process's
                    await trio.sleep(0.2)
            status = json.loads(command(config, "status", "--json").stdout)
            assert status["machines"] == [
                {"index": 0, "is_healthy": True, "is_offered": True, "next_seq": 1}
            ]
            assert "on offer, for lease 1" in command(config, "status").stdout
            drained = command(config, "drain")
            assert (drained.returncode, drained.stdout) == (0, "draining; 0 leases still run\n")
            assert await buyer.adverts(node) == []
            assert "draining" in command(config, "status").stdout
    finally:
        assert node.end() == 0
    assert command(config, "status").returncode == 8, "the socket went with the daemon"


def test_doctor_finds_what_is_there_and_what_is_missing(trading: Trading, tmp_path: Path) -> None:
    config = node_config(trading, tmp_path)
    well = command(config, "doctor", "--json")
    found = json.loads(well.stdout)
    assert (well.returncode, found["ok"]) == (0, True), well.stdout
    names = [check["check"] for check in found["checks"]]
    assert names[:6] == ["node key", "deployment", "binding", "chain", "delegate", "gas"]

    with trading.deployed.wallet(trading.provider) as wallet:
        wallet.revoke_delegate(trading.node.address)
    ill = command(config, "doctor")
    assert ill.returncode == 8
    assert "NO  delegate" in ill.stdout
    assert "wallet key" in ill.stdout, "each finding has its fix"

    (tmp_path / "node.password").chmod(0o644)
    ill = command(config, "doctor")
    assert ill.returncode == 8
    assert "0644" in ill.stdout


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nonsense": 1}, "nonsense is no setting of a node"),
        ({"provider": "0x" + "22" * 20}, "it binds"),
        ({"runtime": "lxc"}, "runtime"),
        ({"rpc": "http://127.0.0.1:9"}, "EVM node"),
    ],
)
def test_a_wrong_setting_is_named_and_the_exit_code_is_not_0(
    trading: Trading, tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(AssertionError, match=r"ended with [38]:") as caught:
        start_node(node_config(trading, tmp_path, **changes))
    assert says in str(caught.value)
    assert "Traceback" not in str(caught.value)
