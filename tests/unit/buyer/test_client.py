"""A client in a pretend marketplace, in virtual time: whole leases, files and commands."""

from pathlib import Path
from typing import Any

import pytest
import trio

from cloud_gpu.protocol.errors import (
    Rejected,
    RejectReason,
    RunError,
)
from cloud_gpu.protocol.job import JobOutcome
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.testing import Said, World
from tests.unit.buyer.builders import refusal, request
from tests.unit.buyer.worlds import cash, conserved, in_world, opened, shown


@in_world()
async def test_a_lease_runs_a_command_and_is_settled(world: World) -> None:
    before = cash(world)
    lease = await opened(world)
    result = await lease.run("echo hi")
    assert (result.code, result.stdout, result.outcome) == (0, "hi\n", JobOutcome.EXITED)
    assert b"".join(chunk for _, chunk in shown) == b"hi\n"
    bill = await lease.close()
    assert bill.settled
    assert bill.reason is LeaseEndReason.STOPPED
    assert cash(world) == before - bill.paid.value
    assert bill.paid <= accrued(lease.funded.cap, bill.ran_s + 2, lease.funded.duration)
    assert conserved(world)
    assert await lease.close() == bill


@in_world()
async def test_every_voucher_is_monotone_and_one_interval_ahead_at_most(world: World) -> None:
    lease = await opened(world)
    await trio.sleep(30)
    await lease.close()
    (work,) = world.nodes[0].works.values()
    amounts = [amount for _, amount in work.vouchers]
    assert amounts == sorted(amounts, key=lambda amount: amount.value)
    for at, amount in work.vouchers:
        elapsed = at / 1000 - work.started_at
        assert amount <= accrued(lease.funded.cap, int(elapsed) + 3, lease.funded.duration)
    assert len(set(amounts)) >= 14, "one each interval of 2 s"


@in_world()
async def test_it_starts_though_half_of_all_messages_are_lost_or_come_twice(world: World) -> None:
    turns = iter(range(10**6))
    world.network.is_lost = lambda *_: next(turns) % 2 == 1
    world.network.is_twice = lambda *_: next(turns) % 3 == 1
    lease = await opened(world)
    assert (await lease.run("make")).stdout == "made\n"
    assert (await lease.close()).settled
    assert conserved(world)


# Files.


@in_world(threads_s=0.01)
async def test_files_stay_from_run_to_run_and_are_sent_once(world: World, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print()")
    (tmp_path / "code" / "lib").mkdir()
    (tmp_path / "code" / "lib" / "x.py").write_text("x = 1")
    seen: list[set[str]] = []

    def script(_: Any, inputs: Any) -> Said:
        seen.append(set(inputs))
        return Said(files={"out/model.pt": b"weights"})

    world.nodes[0]._script = script
    lease = await opened(world)
    assert await lease.put(tmp_path / "code") == ("code/lib/x.py", "code/train.py")
    await lease.run("train")
    await lease.run("train")
    assert seen == [
        {"code/lib/x.py", "code/train.py"},
        {"code/lib/x.py", "code/train.py", "out/model.pt"},
    ]
    assert len(world.wire.pushed) == len(set(world.wire.pushed)) == 2
    (tmp_path / "code" / "train.py").write_text("print(2)")
    await lease.put(tmp_path / "code")
    await lease.run("train")
    assert len(world.wire.pushed) == 3
    await lease.close()


@in_world(threads_s=0.01)
async def test_outputs_are_fetched_by_file_folder_and_pattern(world: World, tmp_path: Path) -> None:
    lease = await opened(world)
    await lease.run("make")
    assert await lease.get("out/a.txt", tmp_path / "one") == (tmp_path / "one",)
    assert (tmp_path / "one").read_bytes() == b"A"
    await lease.get("out/", tmp_path / "all")
    assert (tmp_path / "all" / "b" / "c.bin").read_bytes() == b"\x00\x01"
    (found,) = await lease.get("out/*.txt", tmp_path / "some")
    assert found.read_bytes() == b"A"
    with pytest.raises(FileNotFoundError, match=r"out/a.txt"):
        await lease.get("nothing")
    await lease.close()


@in_world(threads_s=0.01)
async def test_a_local_file_that_is_not_there_is_said(world: World, tmp_path: Path) -> None:
    lease = await opened(world)
    with pytest.raises(FileNotFoundError, match="missing"):
        await lease.put(tmp_path / "missing.py")
    await lease.close()


# Commands.


@in_world()
async def test_a_command_that_fails_raises_with_its_last_words(world: World) -> None:
    lease = await opened(world)
    with pytest.raises(RunError, match="no") as caught:
        await lease.run("false")
    assert caught.value.code == 1
    assert (await lease.run("false", check=False)).stderr == "no\n"
    await lease.close()


@in_world()
async def test_a_text_is_a_shell_line_and_a_list_is_a_program(world: World) -> None:
    commands: list[tuple[str, ...]] = []

    def script(spec: Any, _: Any) -> Said:
        commands.append((*spec.command, *(f"{k}={v}" for k, v in spec.environment.items())))
        return Said()

    world.nodes[0]._script = script
    lease = await opened(world)
    await lease.run("a $B | c", env={"X": "1"})
    await lease.run(["a", "$B"])
    assert commands == [("sh", "-c", "a $B | c", "X=1"), ("a", "$B")]
    await lease.close()


@in_world(threads_s=0.01)
async def test_jobs_run_side_by_side_and_can_be_killed(world: World) -> None:
    lease = await opened(world)
    slow, quick = await lease.popen("sleep 100"), await lease.popen("make")
    assert (await quick.wait()).code == 0
    assert slow.running
    await slow.kill()
    assert (await slow.wait()).outcome is JobOutcome.KILLED
    with pytest.raises(RunError):
        await slow.wait(check=True)
    assert await quick.piece("stdout", 0) == b"made\n"
    assert await quick.piece("stdout", 5) == b""
    await lease.close()


@in_world()
async def test_a_job_that_the_node_lost_in_a_restart_is_done_again(world: World) -> None:
    lease = await opened(world)
    job = await lease.popen("sleep 5")
    await trio.sleep(2)
    world.nodes[0].forget_jobs()
    assert (await job.wait()).code == 0
    await lease.close()


@in_world()
async def test_a_refused_job_raises_what_the_node_said(world: World) -> None:
    no = refusal(RejectReason.RUNTIME_UNAVAILABLE)
    world.nodes[0].faults.refuses_jobs = no
    lease = await opened(world)
    with pytest.raises(Rejected) as caught:
        await lease.install("torch==2.0.1")
    assert caught.value.rejection == no
    await lease.close()


@in_world()
async def test_a_result_that_nobody_signed_for_is_waited_out(world: World) -> None:
    world.nodes[0].faults.forged_results = True
    lease = await opened(world)
    with trio.move_on_after(30) as waited:
        await lease.run("echo hi")
    assert waited.cancelled_caught
    await lease.close()


# Several.


@in_world(machines=[("A100-SXM4-80GB", 2, "1.20")] * 3)
async def test_leases_side_by_side_share_a_client_and_no_nonce(world: World) -> None:
    client = world.client()
    leases = [await opened(world, client) for _ in range(3)]
    assert len({lease.funded.lease for lease in leases}) == 3
    for lease in leases:
        assert (await lease.run("echo hi")).code == 0
    for lease in leases:
        assert (await lease.close()).settled
    assert conserved(world)


@in_world(machines=[("A100-SXM4-80GB", 1, "2.00"), ("A100-PCIE-40GB", 1, "0.80")])
async def test_of_alternatives_one_opens(world: World) -> None:
    lease = await opened(world, count=1)
    await trio.sleep(10)
    let = [m for m in world.chain.chain.book.machines.values() if m.lease is not None]
    assert len(let) == 1
    await lease.close()


@in_world()
async def test_a_quote_places_nothing(world: World) -> None:
    found = await world.client().quote(request())
    assert [view.ask.min_price_per_hour.value for view in found.fitting] == [1_200_000]
    assert world.market._bids == {}


@in_world()
async def test_cost_grows_and_is_bounded_by_the_cap(world: World) -> None:
    lease = await opened(world)
    early = lease.cost()
    await trio.sleep(20)
    late = lease.cost()
    assert early.accrued < late.accrued <= late.promised <= late.cap
    assert late.promised <= accrued(late.cap, 20 + 2 + 3, 600)
    await lease.close()
