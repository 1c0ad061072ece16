"""Lane A by hand: who is served first, what he takes, what is left for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.hardware import FABRIC_LABEL
from cloud_gpu.protocol.orders import BidFlags, Scope, SignedAdvert, SignedBid, Terms
from cloud_gpu.protocol.units import TokenAmount
from market.books.book import RestingAsk
from market.books.ledger import Ledger
from market.clearing.fitting import Conditions
from market.clearing.on_demand import Clearing, clear
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
    profile,
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
    assert [(f.bid.id, f.asks[0].id) for f in fills] == [
        (high.bid.payload.id, cheap.body.ask.payload.id),
        (low.bid.payload.id, dear.body.ask.payload.id),
    ]
    assert [f.price for f in fills] == [f.asks[0].ask.payload.min_price_per_hour for f in fills]


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
    assert fill.asks[0].id == long.body.ask.payload.id


def test_a_bid_at_exactly_the_asks_price_is_filled() -> None:
    assert len(cleared([advert(at="1.50")], [order("bob", limit="1.50")]).fills) == 1
    assert not cleared([advert(at="1.501")], [order("bob", limit="1.50")]).fills


def test_alternatives_of_one_price_rent_the_cheapest_class() -> None:
    offered = [advert("ada", 0, at="0.87"), advert("ada", 1, at="0.76", product=2)]
    wanted = [order("bob", product=number) for number in (1, 2)]
    clearing = cleared(offered, wanted)
    (fill,) = clearing.fills
    assert (fill.bid.bid.payload.product, fill.price) == (2, price("0.76"))
    assert clearing.unmatched == ()


def test_the_cheapest_alternative_is_the_one_that_locks_least_in_all() -> None:
    """A longer lease of a cheaper class may cost more."""
    long, short = order("bob", product=1, duration=7_200), order("bob", product=2)
    (fill,) = cleared(
        [advert("ada", 0, at="0.80"), advert("ada", 1, at="1.20", product=2)], [long, short]
    ).fills
    assert fill.bid.id == short.bid.payload.id


def test_an_alternative_with_a_lower_limit_waits_for_its_own_turn() -> None:
    """So that no bid between the two has a reason to envy it."""
    dear, cheap = order("bob", limit="1.50"), order("bob", limit="1.10", product=2)
    between = order("dan", limit="1.30", product=2)
    offered = [advert("ada", 0, at="1.00"), advert("ada", 1, at="0.80", product=2)]
    clearing = cleared(offered, [dear, cheap, between])
    assert [(fill.bid.id, fill.price) for fill in clearing.fills] == [
        (dear.bid.payload.id, price("1.00")),
        (between.bid.payload.id, price("0.80")),
    ]
    assert clearing.unmatched == ()


def test_a_request_that_cannot_pay_for_what_is_left_says_so_for_each_alternative() -> None:
    wanted = [order("bob", product=number) for number in (1, 2)]
    offered = [advert("ada", 0, at="1.00"), advert("ada", 1, at="1.10", product=2)]
    clearing = cleared(offered, wanted, tokens=0.5)
    assert clearing.fills == ()
    assert {bid.id for bid in clearing.unmatched} == set(clearing.short)


# Gangs.

GANG = BidFlags.PAY_AS_ASK


def gang(count: int, buyer: str = "bob", **changes: Any) -> SignedBid:
    wanting = Terms(scope=changes.pop("scope", Scope.ANY), chunk=changes.pop("chunk", 0))
    return order(buyer, count=count, flags=int(GANG), wanting=wanting, **changes)


def machines(clearing: Clearing) -> list[tuple[str, int]]:
    """Host and machine of each lease of the only fill."""
    (fill,) = clearing.fills
    return [(ask.advert.body.peer, ask.machine.index) for ask in fill.asks]


def test_a_gang_takes_the_cheapest_machines_and_each_is_paid_its_ask() -> None:
    offered = [advert("ada", n, at=f"1.{n}0") for n in (3, 1, 2, 0)]
    clearing = cleared(offered, [gang(3)])
    (fill,) = clearing.fills
    assert machines(clearing) == [("peer-ada", 0), ("peer-ada", 1), ("peer-ada", 2)]
    assert fill.price == price("1.20")
    assert fill.locked == TokenAmount(int(3.3 * TOKEN))


def test_a_gang_takes_all_or_nothing_and_leaves_nothing_taken_behind() -> None:
    offered = [advert("ada", n) for n in range(2)]
    clearing = cleared(offered, [gang(3, limit="1.60"), order("dan", limit="1.20")])
    assert [fill.bid.bid.payload.count for fill in clearing.fills] == [1]
    assert [bid.bid.payload.count for bid in clearing.unmatched] == [3]


def test_of_one_request_the_greater_count_is_taken_though_the_smaller_costs_less() -> None:
    offered = [advert("ada", n) for n in range(3)]
    wanted = [order("bob", count=1, flags=int(GANG)), gang(2), gang(3), gang(4)]
    assert len(machines(cleared(offered, wanted))) == 3
    assert len(machines(cleared(offered, wanted, tokens=2.5))) == 2


def test_a_gang_of_one_node_is_not_spread_however_cheap() -> None:
    offered = [
        advert("ada", 0, at="0.50"),
        advert("eve", 0, at="0.90"),
        advert("eve", 1, at="0.95"),
    ]
    assert machines(cleared(offered, [gang(2, scope=Scope.NODE)])) == [
        ("peer-eve", 0),
        ("peer-eve", 1),
    ]
    assert cleared(offered[:2], [gang(2, scope=Scope.NODE)]).fills == ()


def test_a_fabric_joins_nodes_of_one_provider_that_says_so() -> None:
    def node(provider: str, index: int, fabric: str) -> SignedAdvert:
        labels = {FABRIC_LABEL: fabric} if fabric else {}
        at = f"0.{index + 1}0"
        hardware = profile(labels=labels)
        return advert(provider, index, at=at, host=f"{provider}{index}", hardware=hardware)

    offered = [node("ada", 0, ""), node("ada", 1, "a"), node("eve", 2, "a"), node("ada", 3, "a")]
    assert machines(cleared(offered, [gang(2, scope=Scope.FABRIC)])) == [
        ("peer-ada1", 1),
        ("peer-ada3", 3),
    ]
    assert cleared(offered[:3], [gang(2, scope=Scope.FABRIC)]).fills == ()


def test_a_gang_of_one_region_does_not_cross_it() -> None:
    offered = [
        advert("ada", 0, at="0.50", hardware=profile(region="US")),
        advert("ada", 1, at="0.90"),
        advert("eve", 0, at="0.95"),
    ]
    assert machines(cleared(offered, [gang(2, scope=Scope.REGION)])) == [
        ("peer-ada", 1),
        ("peer-eve", 0),
    ]


def test_chunks_come_whole_from_each_node() -> None:
    offered = [
        advert("ada", 0, at="0.10"),
        *(advert("eve", n, at="0.20") for n in range(3)),
        *(advert("dan", n, at="0.30") for n in range(2)),
    ]
    hosts = [host for host, _ in machines(cleared(offered, [gang(4, chunk=2)]))]
    assert hosts == ["peer-eve", "peer-eve", "peer-dan", "peer-dan"]
    assert cleared(offered, [gang(6, chunk=2)]).fills == ()


def test_more_than_32_gpus_of_one_fabric_come_together() -> None:
    """Nine machines of four GPUs on three nodes; a cheaper one stands outside."""
    inside = profile(4, labels={FABRIC_LABEL: "ib0"})
    offered = [
        advert("ada", n, product=2, at="1.00", host=f"ada{n // 3}", hardware=inside)
        for n in range(10)
    ]
    offered.append(advert("eve", 0, product=2, at="0.10", hardware=profile(4)))
    wanted = gang(36, product=2, scope=Scope.FABRIC)
    assert {host for host, _ in machines(cleared(offered, [wanted]))} <= {
        f"peer-ada{n}" for n in range(4)
    }
    assert len(machines(cleared(offered, [wanted]))) == 9
