"""Moves of group buys: campaigns, pledges, and their two ends."""

from __future__ import annotations

from typing import Final

from benchmarks._parties import PRICE, Machine, Party
from benchmarks._season import Pool, Season
from benchmarks._season_moves import Move
from cloud_gpu.protocol import limits
from cloud_gpu.protocol.adapters.bindings import group_buy
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_calls import struct
from cloud_gpu.protocol.adapters.evm_group_buys import campaign_row
from cloud_gpu.protocol.group_buy import ANY_PROVIDER, Campaign, Pledge, providers_hash
from cloud_gpu.protocol.lease import MachineStatus
from cloud_gpu.protocol.signing import sign
from cloud_gpu.protocol.units import GpuSeconds, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import Address, Digest

_HOUR: Final = 3_600
_POOLS_MAX: Final = 2


def pledge(s: Season) -> None:
    """To a campaign, maybe a new one; signed, or sent by the buyer itself."""
    if len(s.pools) < _POOLS_MAX and s.dice.random() < 0.4:
        s.pools.append(_new(s))
    if not s.pools:
        return
    pool, buyer = s.dice.choice(s.pools), s.dice.choice(s.buyers)
    slices, own = s.dice.randint(1, 3), s.dice.random() < 0.3
    call = locking(s, pool, buyer, slices=slices, signer=None if own else buyer)
    place = s.chain.ask(group_buy.state_of(id_of(s, pool).raw)).pledges
    if s.attempt(buyer.wallet if own else s.market.matcher, call):
        pool.pledges[place] = (buyer, slices)
        s.facts["pledges"] += 1


def _new(s: Season) -> Pool:
    now = s.chain.time()
    listed: tuple[Address, ...] = ()
    if s.dice.random() < 0.5:
        listed = tuple(p.wallet.address for p in s.dice.sample(s.providers, 2))
    campaign = Campaign(
        organiser=s.stranger().wallet.address,
        product=s.market.product,
        price_per_hour=Price(PRICE.value + limits.PRICE_TICK * s.dice.randint(0, 3_000)),
        duration=s.dice.choice((601, _HOUR, 86_399)),
        goal=s.dice.randint(1, 3),
        window_start=now + s.dice.choice((0, 600)),
        deadline=now + s.dice.choice((6 * _HOUR, 24 * _HOUR, 72 * _HOUR)),
        market_id=s.dice.choice((0, s.market.market_id)),
        providers_hash=providers_hash(listed) if listed else ANY_PROVIDER,
    )
    return Pool(campaign, listed)


def id_of(s: Season, pool: Pool) -> Digest:
    """By our own arithmetic; a pledge with another one is refused."""
    deployment = s.chain.deployment
    return pool.campaign.id(chain_id=deployment.chain_id, contract=deployment.group_buy)


def locking(
    s: Season, pool: Pool, buyer: Party, *, slices: int, signer: Party | None, short: int = 0
) -> Call[int]:
    """`short`: base units that the limit is below the price. None signs where the buyer sends."""
    campaign = pool.campaign
    price = cost_down(campaign.price_per_hour, GpuSeconds(campaign.duration)).value * slices
    said = Pledge(
        buyer=buyer.wallet.address,
        campaign_id=id_of(s, pool),
        max_amount=TokenAmount(price - short),
        slices=slices,
        nonce=s.nonce(buyer),
    )
    signature = b""
    if signer is not None:
        signature = sign(said, s.chain.deployment.group_buy_domain, signer.wallet).signature.raw
    return group_buy.lock_pledge(campaign_row(campaign), group_buy.Pledge(*struct(said)), signature)


def close_campaign(s: Season) -> None:
    """Anybody, with asks for as many slices as there are machines for."""
    pool = next((each for each in s.pools if slices_of(each) >= each.campaign.goal), None)
    if pool is None:
        return
    s.travel(pool.campaign.window_start)
    machines = _servers(s, pool)
    if len(machines) < pool.campaign.goal:
        return
    machines = machines[: s.dice.randint(pool.campaign.goal, min(len(machines), slices_of(pool)))]
    entries = tuple(entry(s, pool, machine) for machine in machines)
    call = group_buy.close_campaign(campaign_row(pool.campaign), pool.listed, entries)
    if not s.attempt(s.stranger().wallet, call):
        return
    s.pools.remove(pool)
    s.facts["group buys"] += 1
    served = [buyer for buyer, slices in pool.pledges.values() for _ in range(slices)]
    for machine, each, buyer in zip(machines, entries, served, strict=False):
        s.opened(machine, buyer, each.ask.seq, verified=False)


def slices_of(pool: Pool) -> int:
    """Pledged so far."""
    return sum(slices for _, slices in pool.pledges.values())


def _servers(s: Season, pool: Pool) -> list[Machine]:
    found = [
        machine
        for machine in s.machines
        if not pool.listed or machine.provider.wallet.address in pool.listed
    ]
    s.dice.shuffle(found)
    return [machine for machine in found if s.machine(machine).status == MachineStatus.FREE]


def entry(s: Season, pool: Pool, machine: Machine) -> group_buy.PledgedAsk:
    """A machine's ask with GroupBuy as its matcher."""
    ask = s.market.ask(machine, matcher=s.chain.deployment.group_buy)
    provider = ask.payload.provider
    place = pool.listed.index(provider) if provider in pool.listed else 0
    return group_buy.PledgedAsk(group_buy.Ask(*struct(ask.payload)), ask.signature.raw, place)


def refund(s: Season) -> None:
    """Anybody, past the deadline."""
    if not s.pools:
        return
    pool = min(s.pools, key=lambda each: each.campaign.deadline)
    if s.dice.random() < 0.3:
        s.travel(pool.campaign.deadline + 1)
    for place in list(pool.pledges):
        call = group_buy.refund_pledge(campaign_row(pool.campaign), place)
        if not s.attempt(s.stranger().wallet, call):
            return
        del pool.pledges[place]
        s.facts["pledges refunded"] += 1
    if s.chain.time() > pool.campaign.deadline:
        s.pools.remove(pool)


GROUP_MOVES: tuple[tuple[Move, int], ...] = ((pledge, 8), (close_campaign, 4), (refund, 2))


def end_campaigns(s: Season) -> None:
    """Every pledge that is locked, past all deadlines."""
    last = max((pool.campaign.deadline for pool in s.pools), default=0)
    s.chain.pass_time(max(0, last + 1 - s.chain.time()))
    for pool in s.pools:
        for place in pool.pledges:
            s.must(s.stranger().wallet, group_buy.refund_pledge(campaign_row(pool.campaign), place))
