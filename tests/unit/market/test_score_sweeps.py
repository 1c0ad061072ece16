"""What the weights of a score do on a day's real offers, each swept around its default.

Power, delays and intensities are illustrative; the offers, their prices and regions are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import product as pairs_of

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.effects import ReportAuction
from cloud_gpu.protocol.hardware import Gpu
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import Scope, SignedBid, Terms
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from market.attributes import Attributes, Power, Site, Tier
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import Conditions, fits
from market.clearing.scoring import score
from tests.unit.market.builders import (
    FEE,
    NOW_S,
    RULES,
    SEALED,
    TOKEN,
    Desk,
    advert,
    joined,
    key,
    order,
    product,
    profile,
    provider,
    resting_ask,
    resting_bid,
)
from tests.unit.market.test_real_offers import rows

INTENSITY = {"FR": 50, "SE": 40, "CA": 120, "IS": 28, "DE": 350, "US": 370, "CN": 540, "AU": 500}
"""Grams of CO2 per kWh, rounded."""
WATTS = 400


@cache
def offers() -> tuple[RestingAsk, ...]:
    """One for each row, of one product a model and size."""
    found = rows()
    kinds = sorted({(row.model, row.gpus) for row in found})
    return tuple(
        resting_ask(
            advert(
                row.name,
                at=row.tick_price,
                product=100 + kinds.index((row.model, row.gpus)),
                hardware=replace(
                    profile(gpu_class=row.model, region=row.region),
                    gpus=(Gpu(model=row.model, memory_mib=row.memory_mib),) * row.gpus,
                ),
            )
        )
        for row in found
    )


def markets() -> list[list[RestingAsk]]:
    """Offers of one product, where there is a choice."""
    found: dict[int, list[RestingAsk]] = {}
    for ask in offers():
        found.setdefault(ask.ask.payload.product, []).append(ask)
    return [each for each in found.values() if len(each) > 1]


def price_of(ask: RestingAsk) -> int:
    return ask.ask.payload.min_price_per_hour.value


def chosen(asks: Iterable[RestingAsk], bid: RestingBid, table: Attributes) -> RestingAsk:
    return min(asks, key=lambda ask: (score(bid, ask, table, at=NOW_S), ask.rank))


def total(table: Attributes, bid: RestingBid, cost: Callable[[RestingAsk], float]) -> float:
    """Over all markets: what the machines cost that the bid would choose."""
    return sum(cost(chosen(asks, bid, table)) for asks in markets())


def test_a_memory_margin_trades_jobs_that_run_out_for_jobs_that_are_refused() -> None:
    """Jobs take up to 40 % more than they say; eight sizes, on each of the cards."""
    needs = [2_000, 4_000, 8_000, 12_000, 20_000, 30_000, 60_000, 120_000]
    overshoots = (0, 5, 10, 15, 20, 30, 40)
    ran_out, refused = [], []
    for margin in range(0, 5_001, 500):
        given = conditions(Attributes(memory_margin=BasisPoints(margin)))
        failed = no_card = 0
        for ask, need in pairs_of(offers(), needs):
            card = ask.advert.body.profile.gpus[0].memory_mib
            wanted = resting_bid(
                asking(Terms(gpu_memory_need_mib=need), ask.ask.payload.product, ask.gpus)
            )
            if fits(wanted, ask, given):
                failed += sum(need * (100 + more) > card * 100 for more in overshoots)
            else:
                no_card += sum(need * (100 + more) <= card * 100 for more in overshoots)
        ran_out.append(failed)
        refused.append(no_card)
    assert ran_out == sorted(ran_out, reverse=True)
    assert refused == sorted(refused)
    assert ran_out[0] > 0 == ran_out[8]  # with 40 % nobody runs out
    assert refused[0] == 0 < refused[-1]
    assert ran_out[4] + refused[4] <= min(ran_out[0] + refused[0], ran_out[10] + refused[10])


@cache
def asking(wanting: Terms, number: int = 1, gpus: int = 1) -> SignedBid:
    return order(limit="9.00", product=number, count=gpus, wanting=wanting)


def conditions(table: Attributes) -> Conditions:
    return Conditions(
        at=NOW_S,
        inclusion_s=3,
        fee=FEE,
        products={
            ask.ask.payload.product: product(
                ask.ask.payload.product, ask.gpus, gpu_class=ask.advert.body.profile.gpu_class
            ).row
            for ask in offers()
        },
        bonds={ask.machine: TokenAmount(1_000 * TOKEN) for ask in offers()},
        attributes=table,
    )


@pytest.mark.parametrize("slower", [12_500, 15_000, 20_000])
def test_a_locality_weight_as_large_as_the_slow_down_costs_least(slower: int) -> None:
    """A near gang at one price or a far one at another, where distance makes it slower."""
    bid = resting_bid(order(wanting=Terms(communication=BasisPoints(10_000))))
    costs = {}
    for weight in range(10_000, 25_001, 2_500):
        table = Attributes(fabric=BasisPoints(10_000), apart=BasisPoints(weight))
        costs[weight] = 0
        for near, far in pairs_of(offers(), offers()):
            if near.gpus != far.gpus:
                continue
            by_near = score(bid, near, table, at=NOW_S)
            by_far = score(bid, far, table, at=NOW_S, spread=Scope.ANY)
            takes_near = by_near <= by_far
            costs[weight] += price_of(near) * 10_000 if takes_near else price_of(far) * slower
    assert costs[slower] == min(costs.values())
    assert costs[slower] < costs[10_000]


def test_a_start_delay_counts_against_cheap_machines_that_are_cold() -> None:
    """Adjusted cost: what the buyer pays for the delay and for the work of an hour."""
    cold = {ask.id for asks in markets() for ask in asks[: len(asks) // 2]}
    for delay in (0, 60, 600, 3_600):
        table = Attributes(
            tiers=tuple(
                Tier(provider=ask.machine.provider, start_delay_s=delay)
                for ask in offers()
                if ask.id in cold
            )
        )
        bid = resting_bid(order(duration=3_600))

        def adjusted(ask: RestingAsk, delay: int = delay) -> float:
            return price_of(ask) * (3_600 + (delay if ask.id in cold else 0))

        blind = total(Attributes(), bid, adjusted)
        assert total(table, bid, adjusted) <= blind
        if delay == 3_600:
            assert total(table, bid, adjusted) < blind


def energy_table() -> Attributes:
    return Attributes(
        powers=tuple(
            Power(gpu_class=name, watts=WATTS)
            for name in sorted({ask.advert.body.profile.gpu_class for ask in offers()})
        ),
        sites=tuple(
            Site(region=region, pue=BasisPoints(13_000), carbon=(grams,), electricity=(200_000,))
            for region, grams in INTENSITY.items()
        ),
    )


def grams(ask: RestingAsk) -> float:
    """Of an hour; places that the table does not name count for nothing there either."""
    place = ask.advert.body.profile.region.split("/")[0]
    return INTENSITY.get(place, 0) * WATTS * 1.3 / 1_000 * ask.gpus


def test_a_carbon_price_buys_less_carbon_for_more_money() -> None:
    table = energy_table()
    carbon, money = [], []
    for tokens in (0, 1, 10, 100):
        bid = resting_bid(order(wanting=Terms(carbon_price=TokenAmount(tokens * TOKEN))))
        carbon.append(total(table, bid, grams))
        money.append(total(table, bid, lambda ask: price_of(ask) * ask.gpus))
    assert carbon == sorted(carbon, reverse=True)
    assert money == sorted(money)
    assert carbon[-1] < carbon[0]


@pytest.mark.parametrize("is_block", [False, True])
def test_both_lanes_choose_by_score_and_pay_a_price(is_block: bool) -> None:
    attributes = Attributes(
        powers=(Power(gpu_class=profile().gpu_class, watts=WATTS),),
        sites=(Site(region="US", carbon=(370,)), Site(region="FR", carbon=(50,))),
    )
    desk = Desk(replace(RULES, attributes=attributes, block_s=60))
    desk.mine(*provider("ada"), *provider("eve"), *joined("bob", 100))
    desk.hear(
        advert("ada", at="1.00", hardware=profile(region="US")),
        advert("eve", at="1.05", hardware=profile(region="FR")),
    )
    terms = replace(SEALED if is_block else Terms(), carbon_price=TokenAmount(TOKEN))
    wanted = order(limit="1.50", wanting=terms)
    desk.submit(wanted)
    effects = desk.pass_time(60_000)
    report = desk.report(wanted)
    assert report.state is BidState.MATCHED
    assert [each.body.ask.payload.provider for each in report.adverts] == [key("eve").address]
    assert report.price is not None
    assert report.price.value == 1_050_000
    assert any(isinstance(each, ReportAuction) for each in effects) is is_block
