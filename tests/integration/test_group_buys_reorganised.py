"""A group buy whose opening block vanishes: real chain, real outbox, the matchmaker by hand."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from cloud_gpu.protocol.chain_events import ChainAdvanced, ChainReorganised
from cloud_gpu.protocol.effects import KeepNotice, MarketEffect, ReportCampaign, Transact
from cloud_gpu.protocol.events import AskHeard, CampaignSubmitted, PledgeSubmitted
from cloud_gpu.protocol.group_events import CampaignClosed
from cloud_gpu.protocol.group_reports import CampaignState
from cloud_gpu.protocol.identity import LocalKey
from market.matchmaker import Matchmaker
from market.rules import MarketRules, MatchmakerEvent
from tests.support.anvil import deployed_on, running_anvil
from tests.support.group_buying import GroupBuying, group_buying
from tests.support.market_daemon import advert_of
from tests.support.trading import Trading, trading_on
from tests.support.watching import Watch, watched

pytestmark = pytest.mark.anyio


class Story:
    """One market and everything that it says; its clock is the chain's."""

    def __init__(self, trading: Trading, watch: Watch) -> None:
        self.watch, self.anvil = watch, trading.deployed.anvil
        deployment = trading.deployed.deployment
        self.rules = MarketRules(
            domain=deployment.domain,
            matcher=trading.matcher.address,
            market_id=trading.market_id,
            bond_unit=deployment.bond_unit,
            group_buy_domain=deployment.group_buy_domain,
        )
        self.market = Matchmaker(self.rules)
        self.log: list[tuple[MatchmakerEvent, int]] = []
        self.effects: list[MarketEffect] = []
        self._told = 0

    async def tell(self, *events: MatchmakerEvent) -> None:
        for event in events:
            now = self.anvil.time() * 1000
            self.log.append((event, now))
            effects = self.market.handle(event, now)
            self.effects += effects
            for effect in effects:
                if isinstance(effect, Transact):
                    await self.watch.chain.submit(effect.call)

    async def catch_up(self) -> None:
        while self._told < len(self.watch.events):
            self._told += 1
            await self.tell(self.watch.events[self._told - 1])

    async def hear_all(self) -> None:
        """What the chain told up to its newest block."""
        newest = self.anvil.block()
        await self.watch.until(
            lambda: any(e.block >= newest for e in self.watch.all(ChainAdvanced)),
            "the newest block",
        )
        await self.catch_up()

    async def until(self, state: CampaignState) -> ReportCampaign:
        with anyio.fail_after(30):
            while (found := self.campaign()) is None or found.report.state is not state:
                await self.catch_up()
                await anyio.sleep(0.02)
        return found

    def campaign(self) -> ReportCampaign | None:
        found = [each for each in self.effects if isinstance(each, ReportCampaign)]
        return found[-1] if found else None

    def kinds(self, member: LocalKey) -> list[str]:
        found = [each.notice for each in self.effects if isinstance(each, KeepNotice)]
        return [
            str(each.kind) if each.undone is None else f"not {each.undone}"
            for each in found
            if each.account == member.address
        ]

    async def agrees_with_the_chain(self, *keys: LocalKey) -> None:
        for each in keys:
            held = (await self.watch.chain.account(each.address)).cash.value
            assert self.market._floor.ledger.cash[each.address] == held

    def replays(self) -> None:
        again = Matchmaker(self.rules)
        effects = [effect for event, now in self.log for effect in again.handle(event, now)]
        assert effects == self.effects
        assert again.state_hash() == self.market.state_hash()


async def opened(story: Story, buying: GroupBuying) -> None:
    module = buying.trading.deployed.deployment.group_buy
    await story.hear_all()
    await story.tell(CampaignSubmitted(offer=buying.offer, inbox=1))
    for index in range(2):
        advert = advert_of(buying.trading, index, matcher=module)
        await story.tell(AskHeard(advert=advert))
    for place, member in enumerate(buying.members, 2):
        await story.tell(PledgeSubmitted(pledge=buying.pledge(member), inbox=place))
    await story.until(CampaignState.OPENED)


async def test_what_a_vanished_block_opened_opens_again(tmp_path: Path) -> None:
    with running_anvil() as anvil:
        t = trading_on(deployed_on(anvil), 2)
        async with watched(t.deployed, t.matcher, tmp_path / "outbox.sqlite3") as watch:
            buying = group_buying(t, "ann", "ben", goal=2, within_s=3_600)
            story = Story(t, watch)
            await opened(story, buying)
            anvil.reorganise(1)
            await watch.wait_for(ChainReorganised)
            await story.catch_up()
            with anyio.fail_after(30):
                while len(watch.all(CampaignClosed)) < 2:
                    await story.catch_up()
                    anvil.mine()
                    await anyio.sleep(0.05)
            found = await story.until(CampaignState.OPENED)
            await story.hear_all()
            assert [each.buyer for each in found.leases] == [m.address for m in buying.members]
            ann = story.kinds(buying.members[0])
            assert ann[-3:] == ["leases-opened", "not leases-opened", "leases-opened"]
            await story.agrees_with_the_chain(*buying.members, t.provider)
            story.replays()
