"""Any lease's money, decided by LeaseBook on Anvil and by `settlement.py`: the same to the unit.

Orders are packed, hashed and signed by our side with random fields, so what opens at all agrees
about digests and layout, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks._chain import Chain, running_chain
from benchmarks._parties import Machine, Market, Party
from cloud_gpu.protocol import limits, settlement
from cloud_gpu.protocol.adapters.bindings import lease_book
from cloud_gpu.protocol.calls import (
    CloseBatch,
    Closing,
    ExpireLease,
    MatchedOrders,
    OpenBatch,
    PostReady,
    RefundUnstarted,
    ReleaseLease,
    SettleBatch,
    StopLease,
)
from cloud_gpu.protocol.deployment import DeploymentTerms
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, Windows
from cloud_gpu.protocol.orders import Bid
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import Digest

FEES = (0, 1, 333, 1_000)
WINDOWS = Windows(start=900, claim=3_600, retire=864_000)
PENALTY = BasisPoints(1_000)
ENDS = ("close", "stop", "release", "expire", "refund", "refund-ready")


@dataclass(frozen=True)
class Life:
    """One lease, as somebody might live it; times in seconds."""

    price: int
    duration: int
    fee: int
    vouchers: tuple[tuple[int, int], ...]
    """(seconds after the last one, amount)."""
    end: str
    last: int
    """The amount that closes or releases it."""
    terms: bytes


@dataclass(frozen=True)
class World:
    chain: Chain
    market: Market
    machine: Machine
    buyer: Party
    markets: dict[int, int]

    def money(self) -> tuple[int, int, int, int]:
        """Cash of buyer, provider and market, and the bond in base units."""
        ask, provider = self.chain.ask, self.machine.provider.wallet.address
        owners = (self.buyer.wallet.address, provider, self.market.matcher.address)
        buyer, own, fees = (ask(lease_book.account_of(owner)).cash for owner in owners)
        unit = self.chain.deployment.bond_unit.value
        return buyer, own, fees, ask(lease_book.machine_of(provider, 0)).bond * unit

    def at(self, time: int) -> None:
        """When the next block is."""
        self.chain.rpc.call("evm_setNextBlockTimestamp", time)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running_chain(DeploymentTerms(windows=WINDOWS)) as chain:
        market = Market(chain)
        provider = market.party("provider", KeyRole.NODE, own_key=True)
        buyer = market.party("buyer", KeyRole.SESSION, own_key=True)
        markets = {}
        for fee in FEES:
            chain.send(market.matcher, lease_book.register_market(fee))
            markets[fee] = chain.ask(lease_book.counts()).markets
        yield World(chain, market, market.machine(provider, 0), buyer, markets)


lives = st.builds(
    Life,
    price=st.integers(1, 37_000).map(lambda ticks: ticks * limits.PRICE_TICK),
    duration=st.integers(1, 86_400),
    fee=st.sampled_from(FEES),
    vouchers=st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 2**40)), max_size=3).map(
        tuple
    ),
    end=st.sampled_from(ENDS),
    last=st.integers(0, 2**40),
    terms=st.binary(min_size=32, max_size=32),
)


@settings(
    max_examples=50,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking on a chain takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(life=lives)
@example(Life(36_000, 60, 333, (), "release", 0, bytes(32)))
@example(Life(36_999_000, 86_399, 1_000, ((1, 7), (40_000, 2**40)), "stop", 3, b"\xff" * 32))
def test_the_chain_and_our_arithmetic_pay_the_same(world: World, life: Life) -> None:
    cap = cost_down(Price(life.price), GpuSeconds(life.duration))
    assume(cap.value > 0)
    snapshot = world.chain.rpc.call("evm_snapshot")
    counts = dict(world.chain._counts)
    try:
        before = world.money()
        expected = lived(world, life, cap)
        changes = tuple(now - then for now, then in zip(world.money(), before, strict=True))
        assert changes == expected
    finally:
        world.chain.rpc.call("evm_revert", snapshot)
        world.chain._counts.update(counts)


def lived(world: World, life: Life, cap: TokenAmount) -> tuple[int, int, int, int]:
    """Live it on the chain; what our arithmetic says about it."""
    lease = opened(world, life)
    if life.end.startswith("refund"):
        return unstarted(world, life, cap, lease)
    send, daily = world.chain.send, world.machine.provider.daily
    began = world.chain.time()
    world.at(began + 1)
    call = world.market.beginning(world.machine, world.buyer, lease)
    send(daily, call)
    start, now, paid, fees = call.accept.payload.started_at, began + 1, TokenAmount(0), 0
    fee = BasisPoints(life.fee)
    for later, amount in life.vouchers:
        now += later
        world.at(now)
        send(daily, SettleBatch(vouchers=(world.market.voucher(world.buyer, lease, amount),)))
        ceiling = settlement.accrued(cap, now - start, life.duration)
        split = settlement.settle(cap, paid, TokenAmount(amount), ceiling, fee, close=False)
        paid, fees = paid + split.provider + split.market, fees + split.market.value
    now += 1
    final = max(life.last, paid.value)
    bond, penalty = 0, 0
    ceiling = settlement.accrued(cap, now - start, life.duration)
    world.at(now)
    if life.end == "stop":
        send(world.buyer.wallet, StopLease(lease=lease))
        cap_now = ceiling if now - start < life.duration else cap
        now += 1
        world.at(now)
        send(daily, closing(world, lease, final))
        paid, fees = _paid(cap_now, paid, final, cap_now, fee, fees)
    elif life.end == "close":
        send(daily, closing(world, lease, final))
        paid, fees = _paid(cap, paid, final, ceiling, fee, fees)
    elif life.end == "release":
        voucher = world.market.voucher(world.buyer, lease, final)
        reason = LeaseEndReason.RELEASED
        send(
            world.machine.provider.wallet,
            ReleaseLease(lease=lease, voucher=voucher, reason=reason),
        )
        paid, fees = _paid(cap, paid, final, ceiling, fee, fees)
        if now - start < life.duration:
            penalty = settlement.release_penalty(cap - paid, PENALTY).value
            bond = _bond_fall(world, penalty)
    else:
        world.at(start + life.duration + WINDOWS.claim + 1 + max(0, now - start))
        send(daily, ExpireLease(lease=lease))
    provider = paid.value - fees + bond - penalty
    return -paid.value + penalty, provider, fees, -bond


def unstarted(
    world: World, life: Life, cap: TokenAmount, lease: LeaseKey
) -> tuple[int, int, int, int]:
    """Nobody began it: who failed to show up pays the other."""
    ready = world.market.beginning(world.machine, world.buyer, lease).ready
    assert ready is not None, "a Ready is signed for every beginning"
    amount = settlement.no_show_amount(cap, life.duration, WINDOWS.no_show).value
    if life.end == "refund-ready":
        world.chain.send(world.machine.provider.daily, PostReady(ready=ready))
    world.at(world.chain.time() + WINDOWS.start + 1)
    world.chain.send(world.buyer.daily, RefundUnstarted(lease=lease))
    if life.end == "refund-ready":
        return -amount, amount, 0, 0
    bond = _bond_fall(world, amount)
    return amount, bond - amount, 0, -bond


def opened(world: World, life: Life) -> LeaseKey:
    ask = replace(
        world.market.ask(world.machine).payload,
        min_price_per_hour=Price(limits.PRICE_TICK),
        min_duration=1,
    )
    bid: Bid = replace(
        world.market.bid(world.buyer, 0, duration=life.duration).payload,
        max_price_per_hour=Price(limits.PRICE_MAX // limits.PRICE_TICK * limits.PRICE_TICK),
        max_fee_bps=BasisPoints(1_000),
        terms=Digest(life.terms),
    )
    ask = replace(ask, max_fee_bps=BasisPoints(1_000))
    domain = world.chain.deployment.domain
    signed_bid: Signed[Bid] = sign(bid, domain, world.buyer.wallet)
    match = MatchedOrders(ask=sign(ask, domain, world.machine.provider.daily), bid=signed_bid)
    call = OpenBatch(
        product=world.market.product,
        price=Price(life.price),
        market_id=world.markets[life.fee],
        matches=(match,),
    )
    world.chain.send(world.market.matcher, call)
    lease = LeaseKey(provider=ask.provider, index=ask.index, seq=ask.seq)
    row = world.chain.ask(lease_book.lease_of(lease.provider, lease.index, lease.seq))
    assert row.cap == cost_down(Price(life.price), GpuSeconds(life.duration)).value, "opened at all"
    return lease


def closing(world: World, lease: LeaseKey, amount: int) -> CloseBatch:
    """Both agree to the amount, whenever it is."""
    voucher = world.market.voucher(world.buyer, lease, amount)
    provider = world.market.final(world.machine.provider.daily, lease, amount)
    buyer = world.market.final(world.buyer.daily, lease, amount)
    return CloseBatch(closings=(Closing(voucher=voucher, final=provider, buyer_final=buyer),))


def _paid(
    cap: TokenAmount,
    paid: TokenAmount,
    amount: int,
    ceiling: TokenAmount,
    fee: BasisPoints,
    fees: int,
) -> tuple[TokenAmount, int]:
    split = settlement.settle(cap, paid, TokenAmount(amount), ceiling, fee, close=True)
    return paid + split.provider + split.market, fees + split.market.value


def _bond_fall(world: World, amount: int) -> int:
    """Bonds fall by whole units; the change is the provider's."""
    unit = world.chain.deployment.bond_unit.value
    return -(-amount // unit) * unit
