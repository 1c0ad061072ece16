"""Every way a lease goes wrong, in a pretend marketplace and virtual time."""

import pytest
import trio

from cloud_gpu.leased import Lease
from cloud_gpu.opening import WaitedTooLong
from cloud_gpu.protocol.errors import (
    FundsTooSmall,
    LeaseInterrupted,
    MarketUnavailable,
    NoMatch,
    Rejected,
    RejectReason,
    StartTimeout,
)
from cloud_gpu.protocol.lease import LeaseEndReason, MachineStatus
from cloud_gpu.protocol.receipts import AHEAD_S_MAX
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.testing import World
from cloud_gpu.testing.world import BUYER, TOKEN, profile_of
from tests.unit.buyer.builders import refusal, request
from tests.unit.buyer.worlds import cash, conserved, in_world, opened, said

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


@in_world()
async def test_a_wait_that_is_over_takes_the_bid_back_though_it_stands_longer(
    world: World,
) -> None:
    world.market.is_idle = True
    began, before = trio.current_time(), cash(world)
    with pytest.raises(WaitedTooLong, match="8 s") as caught:
        await opened(world, start_timeout=60, within_s=8)
    assert caught.value.exit_code == 9
    assert 8 <= trio.current_time() - began < 8 + 5
    assert world.chain.chain.book.accounts[BUYER.address].nonce_bits, "its nonce is void"
    assert said[-1] == "the bid is taken back"
    assert cash(world) == before


@in_world()
async def test_a_lease_that_comes_in_time_is_kept_after_it(world: World) -> None:
    lease = await opened(world, within_s=30)
    await trio.sleep(60)
    assert (await lease.run("echo hi")).code == 0
    await lease.close()


@in_world()
async def test_a_wait_that_is_over_says_when_a_lease_is_left_to_its_refund(world: World) -> None:
    world.nodes[0].faults.never_ready = True
    with pytest.raises(WaitedTooLong):
        await opened(world, within_s=8)
    assert "returns" in said[-1]


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


# A lease whose session is gone.


async def orphaned(world: World) -> Lease:
    """A running lease that nobody looks after."""
    lease = await opened(world)
    await lease._line.close()
    return lease


@in_world()
async def test_a_running_lease_is_stopped_and_claimed(world: World) -> None:
    lease = await orphaned(world)
    client = world.client()
    assert await client.end(lease.funded.lease) is MachineStatus.STOPPED
    await trio.sleep(5)
    assert await client.end(lease.funded.lease) is MachineStatus.FREE
    assert conserved(world)
    assert 100 * TOKEN - cash(world) < lease.funded.cap.value // 10


@in_world()
async def test_a_stopped_lease_that_nobody_claims_is_expired_in_time(world: World) -> None:
    lease = await orphaned(world)
    client = world.client()
    world.nodes[0].faults.silent = True
    await client.end(lease.funded.lease)
    with pytest.raises(Rejected, match="s more"):
        await client.end(lease.funded.lease)
    await trio.sleep(17)
    assert await client.end(lease.funded.lease) is MachineStatus.FREE
    assert cash(world) == 100 * TOKEN


@in_world()
async def test_a_lease_that_never_began_is_refunded_in_time(world: World) -> None:
    world.nodes[0].faults.never_ready = True
    client = world.client()
    await client.place(request(), said.append)
    await trio.sleep(2)
    lease = world.nodes[0]._open
    assert lease is not None
    with pytest.raises(Rejected, match="s more"):
        await client.end(lease)
    await trio.sleep(21)
    assert await client.end(lease) is MachineStatus.FREE
    assert conserved(world)


@in_world()
async def test_a_bid_whose_receipt_is_dated_ahead_has_none(world: World) -> None:
    world.market.ahead_ms = 1000 * (AHEAD_S_MAX - 1)
    (bid,) = await world.client().place(request(), said.append)
    world.market.ahead_ms += 2000
    with pytest.raises(MarketUnavailable, match="ahead of this machine's clock"):
        await world.client().submit(bid)


@in_world()
async def test_a_machine_that_is_let_is_waited_for_and_said_to_be(world: World) -> None:
    client = world.client()
    first = await opened(world, client)

    async def free() -> None:
        await trio.sleep(10)
        await first.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(free)
        with pytest.raises(NoMatch):
            await opened(world, client, start_timeout=5)
    assert any("every 2x A100 is let" in line for line in said)


@in_world()
async def test_a_machine_with_less_memory_than_the_job_needs_fits_nothing(world: World) -> None:
    client = world.client()
    assert (await client.quote(request(gpu_type="A100 need=60GB"))).fitting
    quote = await client.quote(request(gpu_type="A100 need=500GB"))
    assert not quote.fitting
    assert quote.blocking is not None
    assert quote.blocking.field == "gpu_memory_need_mib"
