"""Group buys through the market's daemon on a real chain: one that succeeds, one that fails.

Five people, five machines: opened by the market in one call, begun, run, settled, and every sum
exact to the base unit. The chain's clock is moved; the market's processes are real.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignPage,
    CampaignReport,
    CampaignState,
    GroupLease,
    PledgeReport,
    PledgeState,
)
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.units import share_down
from tests.support.anvil import deployed_on, running_anvil
from tests.support.group_buying import DURATION_S, GroupBuying, group_buying
from tests.support.market_daemon import (
    MarketDaemon,
    market_command,
    market_config,
    provider_peer,
    start_market,
)
from tests.support.trading import FEE, Trading, trading_on

NAMES = ("ann", "ben", "cem", "dee", "eli")


@pytest.fixture
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        found = trading_on(deployed_on(anvil), len(NAMES))
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


@pytest.fixture
def config(trading: Trading, tmp_path: Path) -> Path:
    return market_config(trading, tmp_path / "market")


@pytest.fixture
def market(config: Path) -> Iterator[MarketDaemon]:
    found = start_market(config)
    yield found
    if found.process.poll() is None:
        found.kill()


def page(market: MarketDaemon, buying: GroupBuying) -> CampaignPage:
    answer = market.get(f"/v1/group-buys/{buying.id}")
    assert answer.status_code == 200, answer.text
    return from_json(answer.content, CampaignPage)


def until(
    market: MarketDaemon,
    buying: GroupBuying,
    true: Callable[[CampaignPage], bool],
    within_s: float = 40,
) -> CampaignPage:
    give_up_at = time.monotonic() + within_s
    while not true(found := page(market, buying)):
        assert time.monotonic() < give_up_at, f"not within {within_s} s: {found.report}"
        time.sleep(0.1)
    return found


def until_state(market: MarketDaemon, buying: GroupBuying, state: CampaignState) -> CampaignPage:
    return until(market, buying, lambda found: found.report.state is state)


def opened(market: MarketDaemon, buying: GroupBuying) -> None:
    answer = market.post("/v1/group-buys", to_json(buying.offer))
    assert answer.status_code == 201, answer.text
    assert answer.json()["body"]["order"] == str(buying.id)


def handed_in(market: MarketDaemon, buying: GroupBuying, member: LocalKey) -> None:
    signed = buying.pledge(member)
    path = f"/v1/group-buys/{buying.id}/pledges"
    answer = market.post(path, to_json(signed))
    assert answer.status_code == 201, answer.text
    give_up_at = time.monotonic() + 20
    while True:
        found = from_json(market.get(f"{path}/{signed.payload.id}").content, PledgeReport)
        if found.state is PledgeState.LOCKED:
            return
        assert found.state is PledgeState.WAITING, found
        assert time.monotonic() < give_up_at, found
        time.sleep(0.05)


def told(market: MarketDaemon, member: LocalKey) -> list[CampaignNotice]:
    """All notices, page by page."""
    found: list[CampaignNotice] = []
    while True:
        after = found[-1].number if found else 0
        query = f"account={member.address}&after={after}&limit=2"
        more = from_json(market.get(f"/v1/notices?{query}").content, list[CampaignNotice])
        if not more:
            return found
        found += more


def replayed(config: Path, reports: int) -> None:
    """The journal says what the market told, byte for byte."""
    done = market_command("replay", "--json", "--config", str(config))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["reports"] == reports


async def test_five_people_fund_five_machines_and_each_leases_one(
    trading: Trading, market: MarketDaemon, config: Path
) -> None:
    anvil = trading.deployed.anvil
    with anvil.at_once():
        buying = group_buying(trading, *NAMES, goal=5, within_s=3_600)
    everybody = (*buying.members, trading.provider, trading.matcher)
    before = buying.cash(*everybody)
    opened(market, buying)
    async with provider_peer(trading, market) as peer:
        module = trading.deployed.deployment.group_buy
        adverts = [peer.advert(index, matcher=module) for index in range(5)]
        await peer.announce(*adverts)
        await trio.to_thread.run_sync(
            until, market, buying, lambda found: found.report.machines == 5
        )
    for member in buying.members[:3]:
        handed_in(market, buying, member)
    buying.lock(buying.members[3])
    half = until(market, buying, lambda found: found.report.slices == 4)
    assert (half.report.state, half.report.missing_slices) == (CampaignState.GATHERING, 1)
    buying.lock(buying.members[4])
    over = until_state(market, buying, CampaignState.OPENED)
    assert (over.report.leases, len(over.pledges)) == (5, 5)
    answer = market.get(f"/v1/group-buys/{buying.id}/leases")
    leases = from_json(answer.content, list[GroupLease])
    assert [each.buyer for each in leases] == [each.address for each in buying.members]
    assert sorted(leases, key=lambda each: each.lease.index) == [
        GroupLease(lease=trading.lease(index=n), buyer=each.buyer, advert=adverts[n])
        for n, each in enumerate(sorted(leases, key=lambda each: each.lease.index))
    ]
    with anvil.at_once():
        for each, member in zip(leases, buying.members, strict=True):
            buying.run(each.lease, member)
        anvil.pass_time(DURATION_S + 10)
        for each, member in zip(leases, buying.members, strict=True):
            buying.settle(each.lease, member)
    fee = share_down(buying.cost, FEE).value * 5
    paid = buying.cost.value * 5
    after = buying.cash(*everybody)
    gained = [new - old for new, old in zip(after, before, strict=True)]
    assert gained == [*[-buying.cost.value] * 5, paid - fee, fee]
    kinds = [each.kind.value for each in told(market, buying.members[0])]
    assert kinds == ["pledged", "half", "reached", "leases-opened"]
    market.kill()
    again = start_market(config)
    assert page(again, buying).report == over.report
    assert [each.kind.value for each in told(again, buying.members[0])] == kinds
    assert again.end() == 0
    replayed(config, reports=5 + 1 + 3)


def test_a_missed_goal_gives_everybody_all_of_it_back(
    trading: Trading, market: MarketDaemon, config: Path
) -> None:
    with trading.deployed.anvil.at_once():
        buying = group_buying(trading, *NAMES, goal=6, within_s=3_600)
    before = buying.cash(*buying.members)
    opened(market, buying)
    for member in buying.members[:2]:
        handed_in(market, buying, member)
    for member in buying.members[2:]:
        buying.lock(member)
    full = until(market, buying, lambda found: found.report.slices == 5)
    assert full.report.missing_slices == 1
    locked = buying.cash(*buying.members)
    assert [old - new for new, old in zip(locked, before, strict=True)] == [buying.cost.value] * 5
    trading.deployed.anvil.pass_time(3_601)
    over = until_state(market, buying, CampaignState.REFUNDED)
    assert [each.state for each in over.pledges] == [PledgeState.REFUNDED] * 5
    assert buying.cash(*buying.members) == before
    for member in buying.members:
        last = told(market, member)[-2:]
        assert [each.kind.value for each in last] == ["failed", "refunded"]
        assert [each.amount for each in last] == [buying.cost] * 2
    listed = market.get("/v1/group-buys?state=refunded&product=1")
    assert from_json(listed.content, list[CampaignReport]) == [over.report]
    assert from_json(market.get("/v1/group-buys?state=opened").content, list[CampaignReport]) == []
    late = market.post(
        f"/v1/group-buys/{buying.id}/pledges", to_json(buying.pledge(trading.buyer, 2))
    )
    assert late.status_code == 409, late.text
    assert market.end() == 0
    replayed(config, reports=1 + 2)
