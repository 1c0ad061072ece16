"""What block auctions charge, whatever the matches: never outside what both sides signed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.settlement import bond_needed
from cloud_gpu.protocol.units import Price, TokenAmount
from market.books.ledger import Ledger
from market.clearing.block_prices import Match, each_its_own, match_of, uniform
from market.clearing.fitting import Conditions
from tests.unit.market.builders import (
    FEE,
    NOW_S,
    RULES,
    TOKEN,
    advert,
    order,
    product,
    resting_ask,
    resting_bid,
)

HOURS = {n: resting_bid(order("dan", duration=n * 3_600, limit="2.00")) for n in (1, 2, 10)}
ONE_ASK = resting_ask(advert("ada", at="1.00"))


@st.composite
def matches(draw: st.DrawFn) -> Match:
    """Any machine and any bid that takes it: what it asks, what it may cost, how long."""
    least, room = draw(st.integers(1, 50)), draw(st.sampled_from((0, 1, 7, 40)))
    bid = HOURS[draw(st.sampled_from(sorted(HOURS)))]
    ticks = limits.PRICE_TICK
    return Match(bid, (ONE_ASK,), Price(least * ticks), Price((least + room) * ticks))


@given(st.lists(matches(), min_size=1, max_size=6), st.lists(st.integers(1, 100), max_size=3))
def test_no_price_leaves_what_a_match_may_cost(found: list[Match], losing: list[int]) -> None:
    one = uniform(found, [Price(ticks * limits.PRICE_TICK) for ticks in losing])
    each = each_its_own(found) if one is None else [one] * len(found)
    for match, price in zip(found, each, strict=True):
        assert match.least <= price <= match.most
        assert price.value % limits.PRICE_TICK == 0


@given(st.integers(0, 3 * TOKEN), st.sampled_from(sorted(HOURS)))
def test_a_match_costs_what_its_limit_and_its_bond_allow_and_no_tick_less(
    bond: int, hours: int
) -> None:
    ledger = Ledger(RULES.bond_unit)
    ledger.apply(product())
    bonds = {ONE_ASK.machine: TokenAmount(bond)}
    given_ = Conditions(at=NOW_S, inclusion_s=3, fee=FEE, products=ledger.products, bonds=bonds)
    found = match_of(HOURS[hours], (ONE_ASK,), given_)
    limit = HOURS[hours].bid.payload.max_price_per_hour

    def needed(price: int) -> int:
        cap = TokenAmount(price * hours)
        return bond_needed(cap, ledger.products[1].min_bond).value

    assert found.least <= found.most <= limit
    assert needed(found.most.value) <= bond or found.most == found.least
    assert found.most == limit or needed(found.most.value + limits.PRICE_TICK) > bond
