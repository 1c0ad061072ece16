"""Lane A by hand: who is served first, what he takes, what is left for the others."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.units import TokenAmount
from market.book import RestingAsk
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
    price,
    product,
    resting_ask,
    resting_bid,
)


def cleared(
    adverts: Sequence[SignedAdvert], orders: Sequence[SignedBid], tokens: float = 100
) -> Clearing:
    asks: dict[int, list[RestingAsk]] = {1: [], 2: []}
    for ask in sorted((resting_ask(each) for each in adverts), key=lambda ask: ask.rank):
        asks[ask.ask.payload.product].append(ask)
    bids = sorted((resting_bid(each) for each in orders), key=lambda bid: bid.rank)
    ledger = Ledger(RULES.bond_unit)
    ledger.apply(product())
    ledger.apply(product(2))
    given = Conditions(
        at=NOW_S,
        inclusion_s=3,
        fee=FEE,
        products=ledger.products,
        bonds={a.machine: TokenAmount(10 * TOKEN) for ladder in asks.values() for a in ladder},
    )
    cash = {key(name).address: int(tokens * TOKEN) for name in ("bob", "dan", "eve")}
    return clear(bids, asks, cash, frozenset(), given)


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


def test_alternatives_of_one_request_rent_the_cheapest_class_whichever_tie_key_comes_first() -> (
    None
):
    offered = [advert("ada", 0, at="0.87"), advert("ada", 1, at="0.76", product=2)]
    firsts = set()
    for nonce in range(8):
        wanted = [order("bob", nonce=nonce, product=number) for number in (1, 2)]
        firsts.add(min(map(resting_bid, wanted), key=lambda bid: bid.rank).bid.payload.product)
        clearing = cleared(offered, wanted)
        (fill,) = clearing.fills
        assert (fill.bid.bid.payload.product, fill.price) == (2, price("0.76"))
        assert clearing.unmatched == ()
    assert firsts == {1, 2}, "neither order of the tie keys was left out"


def test_the_cheapest_alternative_is_the_one_that_locks_least_in_all() -> None:
    """A longer lease of a cheaper class may cost more."""
    long, short = order("bob", product=1, duration=7_200), order("bob", product=2)
    (fill,) = cleared(
        [advert("ada", 0, at="0.80"), advert("ada", 1, at="1.20", product=2)], [long, short]
    ).fills
    assert fill.bid.id == short.bid.payload.id


def test_a_cheaper_alternative_gives_way_to_a_dearer_bid_of_another_buyer() -> None:
    """The request falls back on its dear alternative, for which it still comes first."""
    dear, cheap = order("bob", limit="1.50"), order("bob", limit="1.10", product=2)
    between, last = order("dan", limit="1.30", product=2), order("dan", limit="1.20", nonce=1)
    offered = [advert("ada", 0, at="1.00"), advert("ada", 1, at="0.80", product=2)]
    clearing = cleared(offered, [dear, cheap, between, last])
    served = [(fill.bid.id, fill.price) for fill in clearing.fills]
    assert served == [
        (dear.bid.payload.id, price("1.00")),
        (between.bid.payload.id, price("0.80")),
    ]
    assert [bid.id for bid in clearing.unmatched] == [last.bid.payload.id]


def test_whoever_loses_his_ask_to_a_request_that_falls_back_takes_his_next() -> None:
    """Three steps: `between` takes bob's cheap ask, bob takes eve's, eve takes the dearest."""
    dear, cheap = order("bob", limit="1.50"), order("bob", limit="1.10", product=2)
    second, between = order("eve", limit="1.40"), order("dan", limit="1.30", product=2)
    offered = [
        advert("ada", 0, at="1.00"),
        advert("ada", 1, at="0.80", product=2),
        advert("ada", 2, at="1.20"),
    ]
    fills = cleared(offered, [dear, cheap, second, between]).fills
    assert [(fill.bid.id, fill.price) for fill in fills] == [
        (dear.bid.payload.id, price("1.00")),
        (second.bid.payload.id, price("1.20")),
        (between.bid.payload.id, price("0.80")),
    ]


def test_a_request_that_cannot_pay_for_what_is_left_says_so_for_each_alternative() -> None:
    wanted = [order("bob", product=number) for number in (1, 2)]
    offered = [advert("ada", 0, at="1.00"), advert("ada", 1, at="1.10", product=2)]
    clearing = cleared(offered, wanted, tokens=0.5)
    assert clearing.fills == ()
    assert {bid.id for bid in clearing.unmatched} == set(clearing.short)
