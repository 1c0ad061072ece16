"""Scores: price first, and what the terms make of nearness, delay, electricity and carbon."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.orders import Scope, Terms
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from market.attributes import Attributes, Power, Site, Tier
from market.clearing.fitting import Conditions, fits
from market.clearing.scoring import is_by_price, score
from tests.unit.market.builders import (
    A100,
    FEE,
    NOW_S,
    TOKEN,
    advert,
    key,
    order,
    product,
    profile,
    resting_ask,
    resting_bid,
)

ONE = 3_600 * 10**14
"""A base unit in a score."""
WHOLE = BasisPoints(10_000)


def scored(
    table: Attributes,
    wanting: Terms | None = None,
    at: str = "1.00",
    gpus: int = 1,
    spread: Scope = Scope.NODE,
    duration: int = 3_600,
) -> float:
    """In base units."""
    bid = resting_bid(order(wanting=wanting, duration=duration))
    ask = resting_ask(advert("ada", at=at, hardware=profile(gpus, region="FR/EU")))
    return score(bid, ask, table, at=0, spread=spread) / ONE


def test_without_a_table_it_is_what_the_machine_costs() -> None:
    assert scored(Attributes()) == TOKEN
    assert scored(Attributes(), gpus=8, duration=7_200) == 16 * TOKEN
    assert is_by_price(resting_bid(order()), Attributes())


@pytest.mark.parametrize(
    ("spread", "share", "expected"),
    [
        (Scope.NODE, 10_000, 1.0),
        (Scope.FABRIC, 10_000, 1.25),
        (Scope.REGION, 10_000, 1.5),
        (Scope.ANY, 10_000, 1.5),
        (Scope.ANY, 2_000, 1.1),
        (Scope.ANY, 0, 1.0),
    ],
)
def test_distance_counts_for_the_share_of_communication(
    spread: Scope, share: int, expected: float
) -> None:
    wanting = Terms(communication=BasisPoints(share))
    assert scored(Attributes(), wanting, spread=spread) == expected * TOKEN


def test_a_cold_machine_counts_its_delay_as_paid_time() -> None:
    table = Attributes(tiers=(Tier(provider=key("ada").address, start_delay_s=360),))
    assert scored(table) == 1.1 * TOKEN
    assert not is_by_price(resting_bid(order()), table)


def test_electricity_and_carbon_count_as_the_terms_weigh_them() -> None:
    table = Attributes(
        powers=(Power(gpu_class=A100, watts=400),),
        sites=(
            Site(region="EU", pue=BasisPoints(15_000), electricity=(200_000,), carbon=(50,)),
            Site(region="FR", electricity=(1,)),
        ),
    )
    assert scored(table) == TOKEN
    # 0.4 kW x 1.5 = 0.6 kWh at 0.20, and 30 g at 0.10 a kilogram.
    assert scored(table, Terms(electricity_weight=WHOLE)) == TOKEN + 120_000
    assert scored(table, Terms(electricity_weight=BasisPoints(5_000))) == TOKEN + 60_000
    assert scored(table, Terms(carbon_price=TokenAmount(100_000))) == TOKEN + 3_000
    elsewhere = Attributes(powers=table.powers, sites=(Site(region="US", electricity=(1,)),))
    assert scored(elsewhere, Terms(electricity_weight=WHOLE)) == TOKEN


def test_electricity_has_the_prices_of_the_hours_that_the_lease_runs() -> None:
    table = Attributes(
        powers=(Power(gpu_class=A100, watts=1_000),),
        sites=(Site(region="FR", electricity=tuple(range(0, 24_000, 1_000))),),
    )
    bid = resting_bid(order(wanting=Terms(electricity_weight=WHOLE), duration=3 * 3_600))
    ask = resting_ask(advert("ada", hardware=profile(region="FR")))
    energy = [score(bid, ask, table, at=at) / ONE - 3 * TOKEN for at in (0, 1_800, 22 * 3_600)]
    assert energy == [3_000, 1_000 + 2_000 + 1_500, 22_000 + 23_000]
    long = resting_bid(order(wanting=Terms(electricity_weight=WHOLE), duration=49 * 3_600))
    assert score(long, ask, table, at=0) / ONE - 49 * TOKEN == 2 * sum(range(0, 24_000, 1_000))


def test_doubling_all_prices_doubles_a_score_of_time_and_distance() -> None:
    table = Attributes(tiers=(Tier(provider=key("ada").address, start_delay_s=7),))
    wanting = Terms(communication=BasisPoints(3_333))
    assert scored(table, wanting, "0.333", spread=Scope.FABRIC) * 2 == scored(
        table, wanting, "0.666", spread=Scope.FABRIC
    )


@pytest.mark.parametrize(("need", "does_fit"), [(68_266, True), (68_267, False), (0, True)])
def test_a_job_needs_its_memory_and_the_margin(need: int, does_fit: bool) -> None:
    ask = resting_ask(advert("ada"))  # 81,920 MiB: need x 6 <= 81,920 x 5
    given = Conditions(
        at=NOW_S,
        inclusion_s=3,
        fee=FEE,
        products={1: product().row},
        bonds={ask.machine: TokenAmount(10 * TOKEN)},
    )
    assert fits(resting_bid(order(wanting=Terms(gpu_memory_need_mib=need))), ask, given) is does_fit


@pytest.mark.parametrize(
    "wrong",
    [
        {"fabric": BasisPoints(9_999)},
        {"fabric": BasisPoints(16_000)},
        {"sites": (Site(region="FR", electricity=(1, 2)),)},
        {"sites": (Site(region="FR", carbon=(-1,)),)},
        {"powers": (Power(gpu_class=A100, watts=-1),)},
    ],
)
def test_a_table_that_says_nothing_sound_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="attributes"):
        Attributes(**wrong)  # type: ignore[arg-type]
