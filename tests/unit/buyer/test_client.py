"""A client in a pretend marketplace, in virtual time: whole leases, and every way they go wrong."""

import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cloud_gpu.client import Client
from cloud_gpu.leased import Lease
from cloud_gpu.protocol.errors import (
    FundsTooSmall,
    LeaseInterrupted,
    MarketUnavailable,
    NoMatch,
    Rejected,
    RejectReason,
    RunError,
    StartTimeout,
)
from cloud_gpu.protocol.job import JobOutcome
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.testing import Said, World, pretend_world
from cloud_gpu.testing.world import BUYER, TOKEN, profile_of
from tests.unit.buyer.builders import refusal, request

COMMANDS = {
    "echo hi": Said(stdout="hi\n"),
    "make": Said(stdout="made\n", files={"out/a.txt": b"A", "out/b/c.bin": b"\x00\x01"}),
    "false": Said(stderr="no\n", code=1),
    "sleep 100": Said(takes_s=100),
    "sleep 5": Said(takes_s=5),
}


def in_world(**words: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Run a test in a pretend world whose time is virtual.

    `threads_s` is what worker threads are waited for before time jumps, where files are read.
    """

    patience = words.pop("threads_s", 0.0)
    commands = words.pop("commands", COMMANDS)

    def wrapped(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        async def main(fixtures: dict[str, Any]) -> None:
            async with pretend_world(commands, **words) as world:
                await test(world, **fixtures)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            trio.run(main, fixtures, clock=MockClock(autojump_threshold=patience))

        del run.__wrapped__  # pytest looks for fixtures there
        fixtures = test.__annotations__.keys() - {"return", "world"}
        run.__signature__ = _signature(fixtures)  # type: ignore[attr-defined]
        return run

    return wrapped


def _signature(names: set[str]) -> Any:
    from inspect import Parameter, Signature

    return Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in sorted(names)])


shown: list[tuple[str, bytes]] = []
said: list[str] = []


async def opened(world: World, client: Client | None = None, **words: Any) -> Lease:
    shown.clear()
    said.clear()
    return await (client or world.client()).open(
        request(**words), echo=lambda *what: shown.append(what), progress=said.append
    )


def cash(world: World) -> int:
    return world.chain.chain.book.accounts[BUYER.address].cash


def conserved(world: World) -> bool:
    book = world.chain.chain.book
    return book.owed == book.deposited


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
    assert [piece async for piece in quick.logs()] == ["made\n"]
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


# What does not come about.


@in_world()
async def test_no_such_class_is_said_before_anything_is_signed(world: World) -> None:
    with pytest.raises(NoMatch, match="A100-SXM4-80GB"):
        await opened(world, gpu_type="B200")
    assert said == []


@in_world()
async def test_a_limit_below_every_ask_is_a_no_match_when_the_bid_expires(world: World) -> None:
    with pytest.raises(NoMatch):
        await opened(world, max_price="0.50", start_timeout=20)
    assert any("asks from 1.20" in line for line in said)
    assert cash(world) == 100 * TOKEN


@in_world(cash=100_000)
async def test_an_empty_vault_says_what_is_missing_and_how_to_mend_it(world: World) -> None:
    with pytest.raises(FundsTooSmall, match=r"wallet fund 0.566667") as caught:
        await opened(world)
    assert (caught.value.needed, caught.value.have) == (666_667, 100_000)


@in_world()
async def test_a_market_that_is_down_is_said_at_once(world: World) -> None:
    world.market.is_down = True
    with pytest.raises(MarketUnavailable):
        await opened(world)


@in_world()
async def test_a_market_that_dies_after_the_bid_is_said_when_it_has_expired(world: World) -> None:
    world.market.is_idle = True

    async def die() -> None:
        await trio.sleep(3)
        world.market.is_down = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(die)
        with pytest.raises(MarketUnavailable):
            await opened(world, start_timeout=20)


@in_world()
async def test_a_market_that_loses_its_memory_is_given_the_bid_again(world: World) -> None:
    world.market.is_idle = True

    async def forget() -> None:
        await trio.sleep(3)
        world.market.forget()
        world.market.is_idle = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(forget)
        lease = await opened(world)
    await lease.close()


@in_world()
async def test_a_refused_bid_raises_the_markets_reason(world: World) -> None:
    world.market.refuses = refusal(RejectReason.KEY_NOT_AUTHORISED)
    with pytest.raises(Rejected) as caught:
        await opened(world)
    assert caught.value.rejection.reason is RejectReason.KEY_NOT_AUTHORISED


@in_world()
async def test_a_node_that_is_never_ready_costs_nothing(world: World) -> None:
    world.nodes[0].faults.never_ready = True
    before = cash(world)
    with pytest.raises(StartTimeout, match="refunded"):
        await opened(world)
    assert cash(world) > before, "the provider pays for not showing up"
    assert conserved(world)


@in_world()
async def test_a_machine_that_is_not_as_advertised_is_refused_and_refunded(world: World) -> None:
    world.nodes[0].faults.shows = profile_of("T4", 2)
    with pytest.raises(StartTimeout, match="GPU class"):
        await opened(world)
    assert conserved(world)


@in_world()
async def test_a_node_that_never_begins_is_begun_by_the_buyer(world: World) -> None:
    world.nodes[0].faults.never_begins = True
    lease = await opened(world)
    assert (await lease.run("echo hi")).code == 0
    await lease.close()


@in_world()
async def test_a_market_that_hides_where_the_node_is_gets_nobody_paid(world: World) -> None:
    world.market.tells_adverts = False
    world.market._adverts = lambda: [world.nodes[0].advert(world.clock.now() // 1000)]  # type: ignore[method-assign, list-item]
    with pytest.raises(StartTimeout):
        await opened(world)
    assert conserved(world)


# What goes wrong in the middle.


@in_world()
async def test_a_node_that_dies_interrupts_and_is_owed_no_more_than_was_promised(
    world: World,
) -> None:
    lease = await opened(world)
    job = await lease.popen("sleep 100")
    await trio.sleep(4)
    world.nodes[0].faults.silent = True
    with pytest.raises(LeaseInterrupted, match="silent"):
        await job.wait()
    bill = await lease.close()
    assert bill.settled
    assert bill.reason is LeaseEndReason.EXPIRED
    assert bill.paid == TokenAmount(0), "nobody claimed"
    assert conserved(world)


@in_world()
async def test_a_node_that_quits_interrupts_with_its_reason(world: World) -> None:
    lease = await opened(world)
    job = await lease.popen("sleep 100")
    await trio.sleep(1)
    world.nodes[0].quit(lease.funded.lease, LeaseEndReason.HEALTH, "GPU fell off the bus")
    with pytest.raises(LeaseInterrupted, match="GPU fell off") as caught:
        await job.wait()
    assert caught.value.reason == "health"
    assert (await lease.close()).settled


@pytest.mark.parametrize("fault", ["no_final", "greedy"])
def test_a_node_that_will_not_close_is_stopped(fault: str) -> None:
    @in_world()
    async def scenario(world: World) -> None:
        setattr(world.nodes[0].faults, fault, True)
        lease = await opened(world)
        await trio.sleep(5)
        bill = await lease.close()
        assert bill.settled
        assert bill.paid <= accrued(lease.funded.cap, 5 + 20, lease.funded.duration)
        assert conserved(world)

    scenario()


@in_world()
async def test_a_chain_that_stands_still_is_waited_for(world: World) -> None:
    lease = await opened(world)
    world.chain.is_down = True

    async def go_on() -> None:
        await trio.sleep(12)
        world.chain.is_down = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on)
        bill = await lease.close()
    assert bill.settled
    assert conserved(world)


@in_world()
async def test_a_chain_that_stays_away_leaves_a_bill_that_says_so(world: World) -> None:
    lease = await opened(world)
    world.chain.is_down = True
    bill = await lease.close(within_s=5)
    assert not bill.settled
    assert "not settled yet" in str(bill)


@in_world()
async def test_the_leases_time_ends_it_and_its_jobs(world: World) -> None:
    lease = await opened(world, duration="20s")
    with pytest.raises(LeaseInterrupted, match="time is over"):
        await lease.run("sleep 100")
    bill = await lease.close()
    assert bill.paid == lease.funded.cap
    with pytest.raises(LeaseInterrupted):
        await lease.run("echo hi")


@in_world()
async def test_giving_up_while_it_opens_takes_the_bid_back(world: World) -> None:
    world.market.is_idle = True
    with trio.move_on_after(5):
        await opened(world)
    view = world.chain.chain.book.account_view(BUYER.address)
    assert view.nonce_bits == 1, "the nonce is void"
    assert cash(world) == 100 * TOKEN


@in_world()
async def test_giving_up_while_the_node_prepares_costs_seconds_not_minutes(world: World) -> None:
    with trio.move_on_after(1.5):
        await opened(world)
    await trio.sleep(10)
    assert conserved(world)
    assert all(machine.lease is None for machine in world.chain.chain.book.machines.values())
    assert 100 * TOKEN - cash(world) < 10_000


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
