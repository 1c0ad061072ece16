"""Margins and campaign ids equal the vectors that Solidity is held to, and margins conserve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.futures import (
    WINDOWS_S,
    Assignment,
    FutureOrder,
    FuturesRules,
    Series,
    forfeit,
    margin,
    part,
)
from cloud_gpu.protocol.group_buy import Campaign, Pledge, providers_hash
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "futures.json").read_text())
TRADER, MATCHER = Address(b"\x01" * 20), Address(b"\x02" * 20)
SOURCES = Path(__file__).parents[3] / "contracts" / "src"


def test_vectors_when_counted_then_there_are_some() -> None:
    assert len(VECTORS["cases"]) >= 40
    assert len(VECTORS["campaigns"]) >= 4


@pytest.mark.parametrize("case", VECTORS["cases"])
def test_margin_when_given_a_vector_then_equal(case: dict[str, str]) -> None:
    at = {name: int(value) for name, value in case.items()}
    found = margin(
        Price(at["price"]),
        gpus=at["gpus"],
        units=at["units"],
        window_s=at["window"],
        share=BasisPoints(at["bps"]),
        floor=TokenAmount(at["floor"]),
    )
    assert found.value == at["margin"]
    assert part(found, at["units"]).value == at["part"]
    lost = forfeit(TokenAmount(at["part"]), left_s=at["left"], window_s=at["window"])
    assert lost.value == at["forfeit"]


@pytest.mark.parametrize("case", VECTORS["campaigns"])
def test_campaign_when_given_a_vector_then_its_id_is_equal(case: dict[str, Any]) -> None:
    providers = [Address.parse(each) for each in case["providers"]]
    named = Digest.parse(case["providersHash"])
    campaign = Campaign(
        organiser=Address.parse(case["organiser"]),
        product=int(case["product"]),
        price_per_hour=Price(int(case["pricePerHour"])),
        duration=int(case["duration"]),
        goal=int(case["goal"]),
        window_start=int(case["windowStart"]),
        deadline=int(case["deadline"]),
        market_id=int(case["marketId"]),
        providers_hash=named,
    )
    assert str(campaign.id(chain_id=31337, contract=Address.parse(case["contract"]))) == case["id"]
    if providers:
        assert providers_hash(providers) == named


@given(
    price=st.integers(1, 2**37),
    gpus=st.integers(1, 64),
    units=st.integers(1, 64),
    window_s=st.sampled_from(WINDOWS_S),
    share=st.integers(1, 5000),
    left_s=st.integers(0, 2**24),
)
def test_margin_when_it_is_split_and_forfeited_then_the_debited_side_keeps_the_rest(
    price: int, gpus: int, units: int, window_s: int, share: int, left_s: int
) -> None:
    whole = margin(
        Price(price * 1000),
        gpus=gpus,
        units=units,
        window_s=window_s,
        share=BasisPoints(share),
        floor=TokenAmount(1),
    )
    each = part(whole, units)
    assert 0 <= whole.value - each.value * units < units
    lost = forfeit(each, left_s=left_s, window_s=window_s)
    assert lost.value <= each.value
    assert (lost == each) or left_s < window_s


def test_series_when_it_is_not_traded_then_refused() -> None:
    day, rules = 24 * 3600, FuturesRules(lead=3600, lead_short=60)
    long = Series(product=1, window_start=day, window_seconds=day)
    short = Series(product=1, window_start=3600, window_seconds=3600)
    assert (long.deadline(rules), short.deadline(rules)) == (day - 3600, 3540)
    for start, length in ((day, 7200), (day + 1, day), (0, day), (2**32 // day * day + day, day)):
        with pytest.raises(ValueError, match=r"series.window"):
            Series(product=1, window_start=start, window_seconds=length)


def _order(**changes: Any) -> FutureOrder:
    fields: dict[str, Any] = {
        "trader": TRADER, "is_buy": True, "product": 1, "window_start": 7200,
        "window_seconds": 3600, "units": 2, "limit_price_per_hour": Price(2000), "start_by": 9,
        "nonce": 4, "matcher": MATCHER,
    }  # fmt: skip
    return FutureOrder(**(fields | changes))


def test_future_order_when_it_could_never_open_then_refused() -> None:
    assert _order().series == Series(product=1, window_start=7200, window_seconds=3600)
    for changed in (
        {"units": 0},
        {"limit_price_per_hour": Price(0)},
        {"matcher": ZERO_ADDRESS},
    ):
        with pytest.raises(ValueError, match=next(iter(changed))):
            _order(**changed)


def test_pledge_and_campaign_when_they_could_never_lock_then_refused() -> None:
    with pytest.raises(ValueError, match=r"pledge.slices"):
        Pledge(
            buyer=TRADER,
            campaign_id=Digest(bytes(32)),
            max_amount=TokenAmount(1),
            slices=101,
            nonce=1,
        )
    terms: dict[str, Any] = {
        "organiser": TRADER, "product": 1, "price_per_hour": Price(1000), "duration": 60,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"campaign.goal"):
        Campaign(**terms, goal=0, window_start=1, deadline=2)
    with pytest.raises(ValueError, match=r"campaign.window_start"):
        Campaign(**terms, goal=1, window_start=3, deadline=2)


@pytest.mark.parametrize("kind", [FutureOrder, Assignment, Pledge], ids=lambda kind: kind.__name__)
def test_type_strings_are_those_of_the_contracts(kind: type[FutureOrder]) -> None:
    source = (SOURCES / "libraries" / "ModuleHash.sol").read_text()
    assert f'"{kind.TYPE}"' in source
