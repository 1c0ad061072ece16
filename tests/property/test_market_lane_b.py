"""Lane B against a naive twin, and its promises: limits, nothing used twice, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks._naive_allocation import NaiveCapacity, rows
from benchmarks._naive_search import improved
from cloud_gpu.protocol.auctions import LossReason
from cloud_gpu.protocol.orders import AskId, BidId, Scope, SignedAdvert, SignedBid, Terms
from cloud_gpu.protocol.settlement import bond_needed
from cloud_gpu.protocol.units import Price, TokenAmount, format_tokens
from cloud_gpu.protocol.values import Address, keccak256
from market.books.book import RestingAsk, RestingBid
from market.books.ledger import Ledger
from market.clearing.block import BlockClearing, clear_block
from market.clearing.block_search import Fits
from market.clearing.fitting import Conditions, fits
from market.clearing.on_demand import Fill
from market.kernel.capacity import PART
from tests.unit.market.builders import (
    FEE,
    NOW_S,
    RULES,
    TOKEN,
    advert,
    key,
    order,
    product,
    profile,
    resting_ask,
    resting_bid,
)

PROVIDERS, BUYERS, MACHINES = ("ada", "eve", "bob"), ("dan", "sue", "bob"), 3
ASKED, LIMITS = ("0.80", "1.00", "1.10", "1.50"), ("0.80", "1.00", "1.20", "1.50", "2.00")
DURATIONS = (3_600, 3_600, 7_200, 36_000)
BONDS = (99, 99, 99, 99, 1)
SEED = keccak256(b"seed")


@dataclass(frozen=True)
class Auction:
    """What an auction is given."""

    asks: dict[int, list[RestingAsk]]
    bids: list[RestingBid]
    cash: dict[Address, int]
    given: Conditions

    def clear(self) -> BlockClearing:
        return clear_block(self.bids, self.asks, self.cash, self.given, block_s=3_600, seed=SEED)


regions = st.sampled_from(("FR/EU", "FR/EU", "US"))
wishes = st.sampled_from(
    (
        *(Terms(block=True, salt=SEED),) * 5,
        Terms(block=True, salt=SEED, regions=("EU",)),
        Terms(block=True, salt=SEED, gpu_memory_mib_min=90_000),
        Terms(block=True, salt=SEED, scope=Scope.NODE),
    )
)


@st.composite
def adverts(draw: st.DrawFn) -> list[SignedAdvert]:
    """At most one ask a machine, of two products."""
    machines = draw(
        st.lists(
            st.tuples(st.sampled_from(PROVIDERS), st.integers(0, MACHINES - 1)),
            unique=True,
            min_size=1,
            max_size=draw(st.sampled_from((1, 2, 7))),
        )
    )
    return [
        advert(
            name,
            index,
            at=draw(st.sampled_from(ASKED)),
            product=1 + index % 2,
            min_duration=draw(st.sampled_from((60, 60, 60, 7_200))),
            hardware=profile(region=draw(regions)),
        )
        for name, index in machines
    ]


@st.composite
def orders(draw: st.DrawFn) -> list[SignedBid]:
    """Bids with shared nonces, wishes and gangs."""
    found = [
        order(
            draw(st.sampled_from(BUYERS)),
            limit=draw(st.sampled_from(LIMITS)),
            product=draw(st.sampled_from((1, 1, 1, 1, 2))),
            nonce=draw(st.integers(0, 9)),
            count=draw(st.sampled_from((1, 1, 1, 2))),
            duration=draw(st.sampled_from(DURATIONS)),
            wanting=draw(wishes),
        )
        for _ in range(draw(st.integers(2, 9)))
    ]
    return list({each.bid.payload.id: each for each in found}.values())


@st.composite
def auctions(draw: st.DrawFn) -> Auction:
    bonds = st.sampled_from(BONDS)
    cash = st.sampled_from((999, 999, 999, 20, 2))
    return auction_of(draw(adverts()), draw(orders()), draw, bonds=bonds, cash=cash)


def auction_of(
    adverts: Sequence[SignedAdvert],
    orders: Sequence[SignedBid],
    draw: st.DrawFn,
    *,
    bonds: st.SearchStrategy[int],
    cash: st.SearchStrategy[int],
) -> Auction:
    """Entered in one of two batches; bonds and cash in tokens."""
    batches = st.integers(0, 1)
    offered = [resting_ask(each, batch=draw(batches)) for each in adverts]
    wanted = [resting_bid(each, batch=draw(batches)) for each in orders]
    ledger = Ledger(RULES.bond_unit)
    for number in (1, 2):
        ledger.apply(product(number))
    conditions = Conditions(
        at=NOW_S,
        inclusion_s=3,
        fee=FEE,
        products=ledger.products,
        bonds={ask.machine: TokenAmount(draw(bonds) * TOKEN) for ask in offered},
    )
    asks: dict[int, list[RestingAsk]] = {1: [], 2: []}
    for ask in sorted(offered, key=lambda ask: ask.rank):
        asks[ask.ask.payload.product].append(ask)
    vaults = {key(name).address: draw(cash) * TOKEN for name in BUYERS}
    return Auction(asks, wanted, vaults, conditions)


@st.composite
def contested(draw: st.DrawFn) -> Auction:
    """Few machines, which most bids fit, long cheap bids beside short dear ones: who is left out is
    often ready to pay more than who is not; some bonds secure little more than the ask."""
    machines = draw(st.integers(1, 3))
    places = st.sampled_from(((), (), ("EU",), ("US",)))
    hours = st.sampled_from((3_600, 3_600, 36_000))
    wanted = [
        order(
            ("dan", "sue")[number % 2],
            limit=draw(st.sampled_from(LIMITS)),
            nonce=number,
            duration=draw(hours),
            wanting=Terms(block=True, regions=draw(places)),
        )
        for number in range(machines + draw(st.integers(1, 3)))
    ]
    offered = [
        advert(
            "ada",
            index,
            at=draw(st.sampled_from(ASKED)),
            hardware=profile(region=draw(regions)),
        )
        for index in range(machines)
    ]
    return auction_of(offered, wanted, draw, bonds=st.sampled_from((99, 1)), cash=st.just(999))


def outcome(cleared: BlockClearing) -> list[tuple[BidId, tuple[AskId, ...], int]]:
    return [(f.bid.id, tuple(ask.id for ask in f.asks), f.price.value) for f in cleared.fills]


def test_bids_that_differ_in_their_salt_alone_are_of_one_kind() -> None:
    ledger = Ledger(RULES.bond_unit)
    ledger.apply(product())
    given_ = Conditions(at=NOW_S, inclusion_s=3, fee=FEE, products=ledger.products, bonds={})
    salted = Terms(block=True, salt=SEED)
    found = [resting_bid(order(wanting=each)) for each in (salted, Terms(block=True))]
    fits_ = Fits({}, given_)
    assert found[0].id != found[1].id
    assert fits_.kind_of(found[0]) == fits_.kind_of(found[1])
    other = resting_bid(order(wanting=Terms(block=True, regions=("EU",))))
    assert fits_.kind_of(other) != fits_.kind_of(found[0])


@given(auctions() | contested())
def test_no_match_is_outside_what_both_sides_signed(auction: Auction) -> None:
    """Paradoxical acceptance: a block above its limit, a provider below its ask. Checked anew."""
    cleared = auction.clear()
    spent: dict[Address, int] = {}
    for fill in cleared.fills:
        bid, price = fill.bid.bid.payload, fill.price
        assert price <= bid.max_price_per_hour
        assert sum(ask.gpus for ask in fill.asks) == bid.count
        caps = 0
        for ask in fill.asks:
            assert fits(fill.bid, ask, auction.given)
            assert ask.ask.payload.min_price_per_hour <= price
            cap = TokenAmount(price.value * ask.gpus * bid.duration // 3_600)
            bond = auction.given.bonds[ask.machine]
            assert bond_needed(cap, auction.given.products[bid.product].min_bond) <= bond
            caps += cap.value
        if fill.bid.terms.scope is Scope.NODE:
            assert len({ask.machine.provider for ask in fill.asks}) == 1
        assert fill.locked.value == caps
        spent[bid.buyer] = spent.get(bid.buyer, 0) + caps
    assert all(amount <= auction.cash[buyer] for buyer, amount in spent.items())
    machines = [ask.machine for fill in cleared.fills for ask in fill.asks]
    assert len(machines) == len(set(machines))
    nonces = [fill.bid.nonce for fill in cleared.fills]
    assert len(nonces) == len(set(nonces))
    told = {fill.bid.id for fill in cleared.fills} | {loss.bid.id for loss in cleared.losses}
    assert told == {bid.id for bid in auction.bids}
    assert len(cleared.fills) + len(cleared.losses) == len(auction.bids)


@given(auctions() | contested())
def test_one_price_or_none_that_would_do(auction: Auction) -> None:
    cleared = auction.clear()
    for one in cleared.classes:
        price, fills = one.price, one.fills
        dearest = max(ask.ask.payload.min_price_per_hour for f in fills for ask in f.asks)
        if price is not None:
            assert {fill.price for fill in fills} == {price}
            assert dearest <= price
            continue
        assert any(
            fill.bid.bid.payload.max_price_per_hour < dearest or not secured(fill, dearest, auction)
            for fill in fills
        )
        paid = sum((f.price.value - asked(f)) * f.bid.bid.payload.quantity.value for f in fills)
        wanted = sum((dearest.value - asked(f)) * f.bid.bid.payload.quantity.value for f in fills)
        assert 0 <= paid <= wanted  # providers together have no more than the dearest ask gave


def asked(fill: Fill) -> int:
    return fill.asks[-1].ask.payload.min_price_per_hour.value


def secured(fill: Fill, price: Price, auction: Auction) -> bool:
    bid, asks = fill.bid.bid.payload, fill.asks
    cap = TokenAmount(price.value * bid.duration // 3_600)
    needed = bond_needed(cap, auction.given.products[bid.product].min_bond)
    return all(needed <= auction.given.bonds[ask.machine] for ask in asks)


@given(auctions())
def test_a_loser_could_not_have_had_a_free_machine(auction: Auction) -> None:
    cleared = auction.clear()
    used = {ask.id for fill in cleared.fills for ask in fill.asks}
    free = [ask for ladder in auction.asks.values() for ask in ladder if ask.id not in used]
    prices = {ask.id: fill.price for fill in cleared.fills for ask in fill.asks}
    for loss in cleared.losses:
        if loss.why in (LossReason.ALTERNATIVE, LossReason.CASH):
            continue
        fitting = {
            ask.id
            for ask in auction.asks[loss.bid.bid.payload.product]
            if fits(loss.bid, ask, auction.given)
        }
        if loss.bid.bid.payload.count == 1:
            assert not fitting & {ask.id for ask in free}, loss
            assert (loss.why is LossReason.INFEASIBLE) == (not fitting)
        paid = [prices[each] for each in fitting if each in prices]
        limit = loss.bid.bid.payload.max_price_per_hour
        if loss.why is LossReason.PARADOXICAL:
            assert not paid or min(paid) < limit
        elif loss.why is LossReason.PRICE:
            assert limit <= min(paid)


@given(auctions(), st.randoms())
def test_the_order_of_arrival_changes_nothing(auction: Auction, dice: Random) -> None:
    bids = list(auction.bids)
    dice.shuffle(bids)
    again = replace(auction, bids=bids).clear()
    assert outcome(again) == outcome(auction.clear())
    assert again == auction.clear()


def doubled(signed: SignedBid) -> SignedBid:
    bid = signed.bid.payload
    buyer = next(name for name in BUYERS if key(name).address == bid.buyer)
    return order(
        buyer,
        limit=format_tokens(Price(2 * bid.max_price_per_hour.value), 3),
        product=bid.product,
        nonce=bid.nonce,
        count=bid.count,
        duration=bid.duration,
        wanting=signed.terms,
    )


@given(auctions())
def test_doubling_all_prices_changes_no_allocation(auction: Auction) -> None:
    """Cash and bonds double, too; ids change, so that ties keep the keys of before. Alternatives of
    one price have one key, and then it is their ids that decide."""
    assume(len({bid.rank for bid in auction.bids}) == len(auction.bids))
    asks: dict[int, list[RestingAsk]] = {}
    names: dict[AskId, AskId] = {}
    for number, ladder in auction.asks.items():
        asks[number] = [twice(ask, names) for ask in ladder]
    bids, bid_names = [], dict[BidId, BidId]()
    for bid in auction.bids:
        other = resting_bid(doubled(SignedBid(bid=bid.bid.signed, terms=bid.terms)))
        bid_names[other.id] = bid.id
        bids.append(replace(other, batch=bid.batch, tie=bid.tie))
    given_ = replace(
        auction.given,
        bonds={m: TokenAmount(2 * bond.value) for m, bond in auction.given.bonds.items()},
    )
    cash = {buyer: 2 * amount for buyer, amount in auction.cash.items()}
    again = Auction(asks, bids, cash, given_).clear()
    assert [
        (bid_names[bid], tuple(names[ask] for ask in found)) for bid, found, _ in outcome(again)
    ] == [(bid, found) for bid, found, _ in outcome(auction.clear())]


def twice(ask: RestingAsk, names: dict[AskId, AskId]) -> RestingAsk:
    payload, profile_ = ask.ask.payload, ask.advert.body.profile
    name = next(name for name in PROVIDERS if key(name).address == payload.provider)
    other = resting_ask(
        advert(
            name,
            payload.index,
            at=format_tokens(Price(2 * payload.min_price_per_hour.value), 3),
            product=payload.product,
            min_duration=payload.min_duration,
            hardware=profile_,
        )
    )
    names[other.id] = ask.id
    return replace(other, batch=ask.batch, tie=ask.tie)


# The twin: every kernel call as plain Python.


class Naive:
    """Does what Capacity does, in dicts and lists."""

    def __init__(self, asks: NDArray[np.void], horizon: int) -> None:
        self._plain = NaiveCapacity(asks, horizon)

    def allocate(self, bids: NDArray[np.void], service: NDArray[np.int64]) -> NDArray[np.void]:
        return np.array(self._plain.allocate(bids, service.tolist()), PART)

    def improve(
        self, bids: NDArray[np.void], parts: NDArray[np.void], steps: int, seed: int
    ) -> NDArray[np.void]:
        return np.array(improved(self._plain, rows(bids), parts.tolist(), steps, seed), PART)

    def is_free(self, ask: int) -> bool:
        (gpus,) = (each.gpus for each in self._plain.asks if each.row == ask)
        return set(self._plain.free[ask]) == {gpus}

    def occupy(self, asks: Sequence[int]) -> None:
        for ask in asks:
            self._plain.free[ask] = [0] * len(self._plain.free[ask])


@given(auctions())
def test_plain_python_gives_the_same_matches(auction: Auction) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("market.clearing.block.STEPS", 200)
        compiled = auction.clear()
        patch.setattr("market.clearing.block_search.Capacity", Naive)
        assert auction.clear() == compiled


@given(auctions())
def test_more_kinds_than_bits_take_more_passes(auction: Auction) -> None:
    """With one bit a product every kind has a pass of its own; the promises stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("market.clearing.block_search.KINDS_MAX", 1)
        patch.setattr("market.clearing.block_search.PRODUCTS_MAX", 1)
        cleared = auction.clear()
    assert all(fits(fill.bid, ask, auction.given) for fill in cleared.fills for ask in fill.asks)
    machines = [ask.machine for fill in cleared.fills for ask in fill.asks]
    assert len(machines) == len(set(machines))
    told = {fill.bid.id for fill in cleared.fills} | {loss.bid.id for loss in cleared.losses}
    assert told == {bid.id for bid in auction.bids}
