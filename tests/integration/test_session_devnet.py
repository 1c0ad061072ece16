"""Sessions on a real devnet: Anvil, libp2p, a market and nodes as processes of their own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu import (
    AsyncSession,
    FundsTooSmall,
    Gang,
    MarketUnavailable,
    NoMatch,
    Rejected,
    RunError,
    Session,
    SettingsInvalid,
)
from cloud_gpu.adapters.devnet_profile import SHARED_CLASS
from cloud_gpu.adapters.portal import PORTAL
from cloud_gpu.bidding import wish
from cloud_gpu.client import Client
from cloud_gpu.main import open_client
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseEndReason, MachineStatus
from cloud_gpu.spending import Purse
from tests.support.renting import Renting, renting

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renting]:
    with renting(tmp_path_factory.mktemp("devnet") / "devnet") as found:
        yield found


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def session(world: Renting, count: int = 2, **words: Any) -> Session:
    world.said.clear()
    return Session("A100", count, settings=world.settings, say=world.said.append, **words)


def test_a_gang_opens_on_several_machines_and_runs_on_all_of_them(
    world: Renting, tmp_path: Path
) -> None:
    before = world.cash()
    script = tmp_path / "rank.py"
    script.write_text("import os; print(os.environ['NODE_RANK'], os.environ['NNODES'])\n")
    world.said.clear()
    wanted = Gang(
        SHARED_CLASS, 5, min_count=2, scope="any", settings=world.settings, say=world.said.append
    )
    with wanted as gang:
        assert len(gang) == 4, "two nodes have two machines each of this class"
        assert len({lease.funded.lease.provider for lease in gang.machines}) == 2
        gang.put(script)
        results = gang.run("python3 rank.py | tee rank.txt", stream=False)
        assert [result.stdout for result in results] == [f"{rank} 4\n" for rank in range(4)]
    assert [bill.settled for bill in gang.bills] == [True] * 4
    assert world.cash() == before - sum(bill.paid.value for bill in gang.bills)
    assert {world.status(bill.lease) for bill in gang.bills} == {MachineStatus.FREE}


def test_a_session_rents_runs_fetches_and_settles(world: Renting, tmp_path: Path) -> None:
    before = world.cash()
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib\n"
        "pathlib.Path('out').mkdir()\n"
        "pathlib.Path('out/model.txt').write_text(os.environ['WORD'] * 3)\n"
        "print('loss 0.1')\n"
    )
    with session(world, env={"WORD": "ab"}) as s:
        assert s.report.profile.simulated
        assert len(s.report.profile.gpus) == 2
        assert s.put(script) == ("train.py",)
        result = s.run("python3 train.py", stream=False)
        assert (result.code, result.stdout) == (0, "loss 0.1\n")
        assert s.get("out/", tmp_path / "fetched") == (tmp_path / "fetched" / "model.txt",)
        again = s.run(["cat", "out/model.txt"], env={"WORD": "no"}, stream=False)
        assert again.stdout == (tmp_path / "fetched" / "model.txt").read_text() == "ababab"
        assert s.cost().accrued <= s.cost().promised <= s.cost().cap
    bill = s.bill
    assert bill is not None
    assert bill.settled
    assert bill.reason is LeaseEndReason.STOPPED
    assert world.cash() == before - bill.paid.value
    assert world.status(bill.lease) is MachineStatus.FREE


def test_what_fails_in_the_block_closes_the_lease_all_the_same(world: Renting) -> None:
    with pytest.raises(RunError, match="broken") as caught, session(world) as s:
        s.run("echo broken >&2; exit 3", stream=False)
    assert caught.value.code == 3
    assert s.bill is not None
    assert s.bill.settled


def test_output_is_shown_as_it_comes(world: Renting, capsys: pytest.CaptureFixture[str]) -> None:
    with session(world) as s:
        s.run("echo out; echo err >&2")
    shown = capsys.readouterr()
    assert shown.out == "out\n"
    assert "err\n" in shown.err


def test_a_job_in_the_background_is_followed_and_killed(world: Renting) -> None:
    with session(world) as s:
        job = s.popen("echo begun; sleep 60")
        assert next(iter(job.logs())) == "begun\n"
        assert job.running
        began = time.monotonic()
        job.kill()
        result = job.wait()
        assert result.outcome.value == "killed"
        assert time.monotonic() - began < 30


def test_two_sessions_side_by_side_share_the_wallet(world: Renting) -> None:
    with session(world, 1) as one, session(world, 1) as other:
        assert one.lease.funded.lease != other.lease.funded.lease
        assert one.run("echo 1", stream=False).stdout == "1\n"
        assert other.run("echo 2", stream=False).stdout == "2\n"
    assert one.bill is not None
    assert other.bill is not None
    assert one.bill.settled
    assert other.bill.settled


# Asyncio.


async def _async_rented(world: Renting) -> tuple[str, AsyncSession]:
    async with AsyncSession("A100", 2, settings=world.settings, say=world.said.append) as s:
        quick, slow = await asyncio.gather(
            s.run("echo quick", stream=False), s.run("sleep 1; echo slow", stream=False)
        )
        job = await s.popen("echo a; echo b")
        text = "".join([piece async for piece in job.logs()])
        return quick.stdout + slow.stdout + text, s


def test_asyncio_has_the_same_session(world: Renting) -> None:
    text, s = asyncio.run(_async_rented(world))
    assert text == "quick\nslow\na\nb\n"
    assert s.bill is not None
    assert s.bill.settled


def test_a_cancelled_task_closes_its_lease(world: Renting) -> None:
    kept: list[AsyncSession] = []

    async def work() -> None:
        async with AsyncSession("A100", 2, settings=world.settings, say=lambda _: None) as s:
            kept.append(s)
            await s.run("sleep 60", stream=False)

    async def main() -> None:
        task = asyncio.create_task(work())
        while not kept:  # noqa: ASYNC110  # the task tells nobody
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert kept[0].bill is not None
    assert kept[0].bill.settled


# What is refused.


def test_no_such_class_names_what_there_is(world: Renting) -> None:
    with pytest.raises(NoMatch, match="A100"), Session("B200", 2, settings=world.settings):
        pass


def test_a_price_below_every_ask_is_no_match_and_names_the_price(world: Renting) -> None:
    with pytest.raises(NoMatch, match=r"0\.10"), session(world, max_price="0.10", start_timeout=4):
        pass


def test_a_vault_that_is_too_small_says_how_to_fill_it(world: Renting) -> None:
    with pytest.raises(FundsTooSmall, match="wallet fund"), session(world, timeout="30d"):
        pass


def test_a_market_that_is_down_is_named(world: Renting) -> None:
    with (
        pytest.raises(MarketUnavailable, match=r"http://127\.0\.0\.1:9 "),
        Session("A100", 2, settings=replace(world.settings, market="http://127.0.0.1:9")),
    ):
        pass


def test_a_setting_that_is_missing_is_named(world: Renting) -> None:
    with (
        pytest.raises(SettingsInvalid, match="keystore"),
        Session("A100", 2, settings=replace(world.settings, keystore="")),
    ):
        pass


def test_a_wrong_signature_is_refused_by_the_market(world: Renting) -> None:
    async def forge() -> None:
        async with open_client(world.settings) as client:
            owner = client._purse.account
            domain = world.devnet.prepared.deployment.domain
            client._purse = Purse(account=owner, signer=LocalKey(b"\x77" * 32), domain=domain)
            words: dict[str, Any] = {"max_price": "5.00", "duration": 60}
            await client.place(wish(gpu_type="A100", count=2, **words), lambda _: None)

    with pytest.raises(Rejected) as caught:
        PORTAL.call(forge)
    assert caught.value.rejection.reason in (
        RejectReason.KEY_NOT_AUTHORISED,
        RejectReason.BAD_SIGNATURE,
    )


def test_a_lease_whose_process_is_gone_can_be_ended(world: Renting) -> None:
    program = (
        "import os\nfrom cloud_gpu import Session\n"
        "with Session('A100', 2) as s:\n"
        "    print(s.lease.funded.lease, flush=True)\n    os._exit(9)\n"
    )
    done = _python(world, program)
    assert done.returncode == 9, done.stderr

    async def end(client: Client) -> MachineStatus:
        (left,) = [each for each in await client.leases() if each.state.value == "active"]
        return await client.end(left.terms.key)

    async def work() -> MachineStatus:
        async with open_client(world.settings) as client:
            return await end(client)

    assert PORTAL.call(work) in (MachineStatus.STOPPED, MachineStatus.FREE)


# Other processes.


def _python(
    world: Renting, program: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, **world.environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_folder_with_files_named_like_our_packages_changes_nothing(
    world: Renting, tmp_path: Path
) -> None:
    for name in ("protocol", "node", "market", "verifier", "settings", "jobs"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong file')\n")
    program = (
        "from cloud_gpu import Session\n"
        "with Session(gpu_type='A100', count=2) as s:\n"
        "    s.put('node.py')\n"
        "    print(s.run('wc -l < node.py', stream=False).stdout.strip())\n"
    )
    done = _python(world, program, tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.parametrize("after_s", [3.0, 4.5, 7.0])
def test_ctrl_c_ends_it_within_seconds_and_leaves_no_lease(world: Renting, after_s: float) -> None:
    program = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from cloud_gpu import Session\n"
        "with Session('A100', 1) as s:\n    s.run('sleep 60')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **world.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    time.sleep(after_s)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert child.returncode != 0
    assert time.monotonic() - began < 25, out

    async def open_leases() -> list[object]:
        async with open_client(world.settings) as client:
            states = [each.state.value for each in await client.leases()]
            return [state for state in states if state in ("funded", "active")]

    deadline = time.monotonic() + 30  # the market hears of it a block later
    while (left := PORTAL.call(open_leases)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == [], out
