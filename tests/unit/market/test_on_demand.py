"""Lane A by hand: who is served first, what he takes, what is left for the others."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.units import TokenAmount
from market.fitting import Conditions
from market.ledger import Ledger
from market.on_demand import Clearing, clear
from tests.unit.market.builders import (
    FEE,
    NOW_S,
    RULES,
    TOKEN,
    advert,
    key,
    order,
    product,
    resting_ask,
    resting_bid,
)


def cleared(
    adverts: Sequence[SignedAdvert], orders: Sequence[SignedBid], tokens: float = 100
) -> Clearing:
    asks = sorted((resting_ask(each) for each in adverts), key=lambda ask: ask.rank)
    bids = sorted((resting_bid(each) for each in orders), key=lambda bid: bid.rank)
    ledger = Ledger(RULES.bond_unit)
    ledger.apply(product())
    given = Conditions(
        at=NOW_S,
        inclusion_s=3,
        fee=FEE,
        products=ledger.products,
        bonds={ask.machine: TokenAmount(10 * TOKEN) for ask in asks},
    )
    cash = {key(name).address: int(tokens * TOKEN) for name in ("bob", "dan")}
    return clear(bids, {1: asks}, cash, frozenset(), given)


def test_the_dearer_bid_is_served_first_and_pays_the_asks_price() -> None:
    low, high = order("bob", limit="1.20"), order("dan", limit="1.50")
    cheap, dear = advert("ada", at="1.00"), advert("eve", at="1.15")
    fills = cleared([dear, cheap], [low, high]).fills
    assert [(f.bid.id, f.ask.id) for f in fills] == [
        (high.bid.payload.id, cheap.body.ask.payload.id),
        (low.bid.payload.id, dear.body.ask.payload.id),
    ]
    assert [f.price for f in fills] == [f.ask.ask.payload.min_price_per_hour for f in fills]


def test_one_vault_pays_for_as_many_leases_as_it_covers() -> None:
    orders = [order("bob", nonce=n) for n in range(3)]
    clearing = cleared([advert("ada", n) for n in range(3)], orders, tokens=2.5)
    assert len(clearing.fills) == 2
    (left,) = clearing.unmatched
    assert clearing.short[left.id].reason is RejectReason.CASH_TOO_LOW


def test_a_bid_whose_alternative_is_filled_is_not_called_unmatched() -> None:
    dear, cheap = order("bob", limit="1.50", duration=7_200), order("bob", limit="1.40")
    clearing = cleared([advert("ada")], [dear, cheap], tokens=1.5)
    assert [fill.bid.id for fill in clearing.fills] == [cheap.bid.payload.id]
    assert clearing.unmatched == ()
    assert clearing.short == {}


def test_an_ask_that_does_not_fit_is_passed_over_for_a_dearer_one() -> None:
    short, long = advert("ada", at="1.00", max_duration=600), advert("eve", at="1.30")
    (fill,) = cleared([short, long], [order("bob")]).fills
    assert fill.ask.id == long.body.ask.payload.id


def test_a_bid_at_exactly_the_asks_price_is_filled() -> None:
    assert len(cleared([advert(at="1.50")], [order("bob", limit="1.50")]).fills) == 1
    assert not cleared([advert(at="1.501")], [order("bob", limit="1.50")]).fills
