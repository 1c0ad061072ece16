"""Futures through the market on a real chain: a week ahead, delivered, defaulted, broken.

The matchmaker is the real one, its calls go through a real outbox; only its clock is the chain's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from cloud_gpu.protocol.adapters.bindings import futures as bound
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_calls import calldata, destination, struct
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.calls import ChainCall, OpenFutures, StopLease
from cloud_gpu.protocol.chain_events import ChainAdvanced, EntrySkipped
from cloud_gpu.protocol.effects import MarketEffect, ReportContract, ReportFuture, Transact
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import DeadlinePassed, FutureSubmitted
from cloud_gpu.protocol.future_events import UnitDelivered
from cloud_gpu.protocol.future_reports import ContractReport, ContractState, FutureReport
from cloud_gpu.protocol.futures import Assignment, FutureOrder, FuturePair, forfeit, part
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from market.books.futures_positions import reminders
from market.matchmaker import Matchmaker
from market.rules import MarketRules, MatchmakerEvent
from tests.support.anvil import Deployed
from tests.support.trading import Trading, trading_on
from tests.support.watching import Watch, watched

DAY_S = 24 * 3600
PRICE = Price(1_000_000)
COST = 24_000_000
"""Of a machine for the day, base units."""


class Story:
    """One market, its traders, and everything that it says."""

    def __init__(self, trading: Trading, watch: Watch) -> None:
        self.trading, self.watch = trading, watch
        self.anvil, self.deployment = trading.deployed.anvil, trading.deployed.deployment
        self.rules = MarketRules(
            domain=self.deployment.domain,
            matcher=trading.matcher.address,
            market_id=trading.market_id,
            bond_unit=self.deployment.bond_unit,
            futures_domain=self.deployment.futures_domain,
            futures=self.deployment.futures_rules,
            position_limit=BasisPoints(10_000),
            start_window_s=self.deployment.windows.start,
        )
        self.market = Matchmaker(self.rules)
        self.log: list[tuple[MatchmakerEvent, int]] = []
        self.effects: list[MarketEffect] = []
        self.window_start = (self.anvil.time() // DAY_S + 8) * DAY_S
        self._told = self._inbox = 0

    # The market.

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
        """Hear what the chain told up to its newest block."""
        newest = self.anvil.block()
        await self.watch.until(
            lambda: any(e.block >= newest for e in self.watch.all(ChainAdvanced)),
            "the newest block",
        )
        while self._told < len(self.watch.events):
            self._told += 1
            await self.tell(self.watch.events[self._told - 1])

    async def until(self, state: ContractState, number: int = 1) -> ContractReport:
        with anyio.fail_after(30):
            while (found := self.contract(number)) is None or found.contract.state is not state:
                await self.catch_up()
                await anyio.sleep(0.02)
        return found

    async def trade(self, *orders: Signed[FutureOrder]) -> ContractReport:
        """Place the orders, let the batch end, and see the contract open."""
        await self.catch_up()
        for order in orders:
            self._inbox += 1
            await self.tell(FutureSubmitted(order=order, inbox=self._inbox))
        await self.until_batch_ends()
        await self.end_batch()
        return await self.until(ContractState.OPEN)

    async def until_batch_ends(self) -> None:
        """In steps: a market matches nothing while it has not heard of the chain for a minute."""
        ends = self.market.deadline
        assert ends is not None
        while (left_s := ends // 1000 - self.anvil.time()) > 5:
            self.anvil.pass_time(min(20, left_s - 3))
            await self.catch_up()

    async def end_batch(self) -> None:
        """Without hearing of any block in between."""
        self.anvil.pass_time(10)
        await self.tell(DeadlinePassed())

    def contract(self, number: int = 1) -> ContractReport | None:
        found = [e.report for e in self.effects if isinstance(e, ReportContract)]
        return next((each for each in reversed(found) if each.contract.id == number), None)

    def report(self, order: Signed[FutureOrder]) -> FutureReport:
        found = [e.report for e in self.effects if isinstance(e, ReportFuture)]
        return next(each for each in reversed(found) if each.order == order.payload.id)

    def steps(self) -> list[tuple[str, object]]:
        found = self.contract()
        assert found is not None
        due = reminders(
            found.contract,
            self.rules.futures,
            start_window_s=self.deployment.windows.start,
            at=self.anvil.time(),
        )
        return [(each.step.value, each.account) for each in due]

    # The traders.

    def order(self, trader: LocalKey, *, buys: bool, **changes: Any) -> Signed[FutureOrder]:
        fields: dict[str, Any] = {
            "trader": trader.address,
            "is_buy": buys,
            "product": self.trading.product,
            "window_start": self.window_start,
            "window_seconds": DAY_S,
            "units": 1,
            "limit_price_per_hour": PRICE,
            "start_by": self.anvil.time() + 3_600,
            "nonce": 0,
            "matcher": self.trading.matcher.address,
        }
        order = FutureOrder(**(fields | changes))
        return sign(order, self.deployment.futures_domain, trader)

    async def send(self, key: LocalKey, call: Call[None] | ChainCall) -> None:
        if isinstance(call, Call):
            to, payload = self.deployment.futures, call.calldata
        else:
            to, payload = destination(call, self.deployment), calldata(call)
        sender = DirectSender(self.anvil.rpc, key)
        await anyio.to_thread.run_sync(sender.send, to, payload)
        await self.catch_up()

    async def travel(self, at: int) -> None:
        self.anvil.pass_time(max(0, at - self.anvil.time()))
        await self.catch_up()

    async def assign(self, leaver: LocalKey, joiner: LocalKey) -> None:
        """The long hands its side on for one token."""
        said = Assignment(
            contract_id=1,
            is_buy=True,
            leaver=leaver.address,
            joiner=joiner.address,
            leaver_pays=TokenAmount(1_000_000),
            joiner_pays=TokenAmount(0),
            expiry=self.anvil.time() + 3_600,
            nonce=9,
        )
        signature = sign(said, self.deployment.futures_domain, joiner).signature.raw
        await self.send(leaver, bound.assign(bound.Assignment(*struct(said)), signature))

    async def delivered(self) -> LeaseKey:
        """Funded, nominated as the market suggests, and delivered by the market in time."""
        found = self.contract()
        assert found is not None
        await self.send(self.trading.buyer, bound.fund(1))
        await self.send(self.trading.provider, bound.nominate(1, found.suggested))
        await self.travel(self.window_start)
        await self.until(ContractState.DELIVERED)
        (unit,) = self.watch.all(UnitDelivered)
        return unit.lease

    async def begun(self, lease: LeaseKey) -> None:
        await self.send(self.trading.node, self.trading.posting(lease))
        await self.send(self.trading.node, self.trading.beginning(lease, self.anvil.time()))

    async def cash(self, *keys: LocalKey) -> list[int]:
        """On chain, where the market's ledger must say the same."""
        found = []
        for each in keys:
            held = (await self.watch.chain.account(each.address)).cash.value
            assert self.market._floor.ledger.cash[each.address] == held
            found.append(held)
        return found

    def replayed(self) -> None:
        again = Matchmaker(self.rules)
        effects: Sequence[MarketEffect] = [
            effect for event, now in self.log for effect in again.handle(event, now)
        ]
        assert effects == self.effects
        assert again.state_hash() == self.market.state_hash()


pytestmark = pytest.mark.anyio


async def test_a_day_sold_a_week_ahead_is_assigned_delivered_and_paid(
    deployed: Deployed, tmp_path: Path
) -> None:
    t, first = trading_on(deployed), deployed.member("first long")
    async with watched(deployed, t.matcher, tmp_path / "outbox.sqlite3") as watch:
        story = Story(t, watch)
        buy, sell = story.order(first, buys=True), story.order(t.provider, buys=False)
        found = await story.trade(buy, sell)
        assert (found.contract.long, found.suggested) == (first.address, (0,))
        assert story.report(sell).contracts == story.report(buy).contracts
        assert [each.contract for each in story.report(buy).contracts] == [1]
        await story.assign(first, t.buyer)
        before = await story.cash(first, t.buyer, t.provider)
        assert story.steps() == [
            ("fund", t.buyer.address),
            ("nominate", t.provider.address),
            ("settle-default", None),
        ]
        lease = await story.delivered()
        await story.begun(lease)
        await story.travel(story.window_start + DAY_S + 10)
        await story.send(t.node, t.closing(lease, COST, early=False))
        await story.until(ContractState.SETTLED)
        after = await story.cash(first, t.buyer, t.provider)
        long, short = found.contract.long_margin.value, found.contract.short_margin.value
        gained = [new - old for new, old in zip(after, before, strict=True)]
        assert gained == [0, long - COST, short + COST]
        story.replayed()


async def test_a_short_that_names_nothing_pays_its_margin(
    deployed: Deployed, tmp_path: Path
) -> None:
    t = trading_on(deployed)
    async with watched(deployed, t.matcher, tmp_path / "outbox.sqlite3") as watch:
        story = Story(t, watch)
        before = await story.trade(
            story.order(t.buyer, buys=True), story.order(t.provider, buys=False)
        )
        await story.send(t.buyer, bound.fund(1))
        held = await story.cash(t.buyer, t.provider)
        await story.travel(before.deadline + 1)
        await story.until(ContractState.SHORT_DEFAULT)
        long, short = await story.cash(t.buyer, t.provider)
        margins = before.contract.long_margin.value + before.contract.short_margin.value
        assert [long - held[0], short - held[1]] == [COST + margins, 0]
        story.replayed()


async def test_a_long_that_does_not_fund_pays_its_margin(
    deployed: Deployed, tmp_path: Path
) -> None:
    t = trading_on(deployed)
    async with watched(deployed, t.matcher, tmp_path / "outbox.sqlite3") as watch:
        story = Story(t, watch)
        before = await story.trade(
            story.order(t.buyer, buys=True), story.order(t.provider, buys=False)
        )
        await story.send(t.provider, bound.nominate(1, before.suggested))
        held = await story.cash(t.buyer, t.provider)
        await story.travel(before.deadline + 1)
        await story.until(ContractState.LONG_DEFAULT)
        long, short = await story.cash(t.buyer, t.provider)
        margins = before.contract.long_margin.value + before.contract.short_margin.value
        assert [long - held[0], short - held[1]] == [0, margins]


async def test_a_long_that_stops_half_way_pays_half_its_margin(
    deployed: Deployed, tmp_path: Path
) -> None:
    t = trading_on(deployed)
    async with watched(deployed, t.matcher, tmp_path / "outbox.sqlite3") as watch:
        story = Story(t, watch)
        before = await story.trade(
            story.order(t.buyer, buys=True), story.order(t.provider, buys=False)
        )
        held = await story.cash(t.buyer, t.provider)
        lease = await story.delivered()
        await story.begun(lease)
        begun = story.anvil.time()
        await story.travel(begun + DAY_S // 2)
        await story.send(t.buyer, StopLease(lease=lease))
        left_s = begun + DAY_S - story.anvil.time()
        await story.send(t.node, t.closing(lease, COST // 2, early=False))
        await story.until(ContractState.SETTLED)
        long, short = await story.cash(t.buyer, t.provider)
        margin = part(before.contract.long_margin, 1)
        lost = forfeit(margin, left_s=left_s, window_s=DAY_S).value
        assert abs(long - held[0] - (margin.value - lost - COST // 2)) <= COST // DAY_S * 3
        assert long + short - sum(held) == margin.value + before.contract.short_margin.value


async def test_an_order_opens_two_contracts_and_its_trader_closes_what_is_left(
    deployed: Deployed, tmp_path: Path
) -> None:
    t, other = trading_on(deployed, machines=3), deployed.member("other long")
    async with watched(deployed, t.matcher, tmp_path / "outbox.sqlite3") as watch:
        story = Story(t, watch)
        sell = story.order(t.provider, buys=False, units=3)
        buys = [story.order(trader, buys=True) for trader in (t.buyer, other)]
        await story.trade(sell, *buys)
        await story.until(ContractState.OPEN, 2)
        report = story.report(sell)
        assert (report.state, report.filled) == (BidState.PENDING, 2)
        assert [each.contract for each in report.contracts] == [1, 2]
        assert [story.report(buy).state for buy in buys] == [BidState.OPENED] * 2
        with deployed.wallet(t.provider) as wallet:
            wallet.futures.close_order(sell.payload.id)
        await story.catch_up()
        report = story.report(sell)
        assert (report.state, report.filled) == (BidState.CANCELLED, 2)
        assert report.rejection is not None
        assert report.rejection.reason is RejectReason.ORDER_CLOSED
        pair = OpenFutures(
            series=sell.payload.series,
            price=PRICE,
            pairs=(FuturePair(buy=story.order(t.buyer, buys=True, nonce=1), sell=sell, units=1),),
        )
        await story.watch.chain.submit(pair)
        await story.watch.until(lambda: bool(story.watch.all(EntrySkipped)), "its refusal")
        (skipped,) = story.watch.all(EntrySkipped)
        assert skipped.rejection.reason is RejectReason.ORDER_CLOSED
        story.replayed()


async def test_a_pair_that_the_chain_skips_comes_back_with_its_reason(
    deployed: Deployed, tmp_path: Path
) -> None:
    """The long withdraws between the batch and the block."""
    t = trading_on(deployed)
    async with watched(deployed, t.matcher, tmp_path / "outbox.sqlite3") as watch:
        story = Story(t, watch)
        await story.catch_up()
        buy = story.order(t.buyer, buys=True)
        sell = story.order(t.provider, buys=False)
        for number, order in enumerate((buy, sell), 1):
            await story.tell(FutureSubmitted(order=order, inbox=number))
        cash = (await story.cash(t.buyer))[0]
        await story.until_batch_ends()
        with deployed.wallet(t.buyer) as wallet:
            wallet.withdraw(TokenAmount(cash))
        await story.end_batch()
        assert story.report(buy).state is BidState.MATCHED
        with anyio.fail_after(30):
            while story.report(buy).rejection is None:
                await story.catch_up()
                await anyio.sleep(0.02)
        report = story.report(buy)
        assert report.state is story.report(sell).state is BidState.PENDING
        assert report.rejection is not None
        assert report.rejection.reason is RejectReason.CASH_TOO_LOW
        assert story.contract() is None
