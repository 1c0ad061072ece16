"""Lane A against a naive twin, and the promises it makes: limits, no envy, nothing used twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.events import AskHeard, BidSubmitted
from cloud_gpu.protocol.orders import AskId, BidId, SignedAdvert, SignedBid, Terms
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address
from market.book import RestingAsk, RestingBid
from market.fitting import Conditions, fits, locked_by
from market.ledger import Ledger
from market.on_demand import Clearing, clear
from market.replaying import ReplayedMatch, ReplayedState, replay_lines
from market.rules import RulesSet
from market.store.journal import FIRST_HEAD
from tests.unit.market.builders import (
    FEE,
    NOW,
    NOW_S,
    RULES,
    TOKEN,
    Desk,
    advert,
    joined,
    key,
    order,
    pairs,
    product,
    profile,
    provider,
    resting_ask,
    resting_bid,
)

PROVIDERS, BUYERS, MACHINES = ("ada", "eve", "bob"), ("bob", "dan"), 3
PRICES = ("0.80", "1.00", "1.10", "1.50")
DURATIONS = (60, 3_600, 3_600, 7_200)
BONDS = (0, 10, 10, 10)


@dataclass(frozen=True)
class Round:
    """What a round is given."""

    asks: dict[int, list[RestingAsk]]
    bids: list[RestingBid]
    cash: dict[Address, int]
    given: Conditions

    @property
    def clearing(self) -> Clearing:
        return clear(self.bids, self.asks, self.cash, frozenset(), self.given)


regions = st.sampled_from(("FR/EU", "US"))
wishes = st.sampled_from(
    (Terms(), Terms(), Terms(regions=("EU",)), Terms(gpu_memory_mib_min=90_000))
)


@st.composite
def adverts(draw: st.DrawFn) -> list[SignedAdvert]:
    """At most one ask a machine, of two products."""
    machines = draw(
        st.lists(
            st.tuples(st.sampled_from(PROVIDERS), st.integers(0, MACHINES - 1)),
            unique=True,
            max_size=7,
        )
    )
    return [
        advert(
            name,
            index,
            at=draw(st.sampled_from(PRICES)),
            product=1 + index % 2,
            min_duration=draw(st.sampled_from((60, 600))),
            hardware=profile(region=draw(regions)),
        )
        for name, index in machines
    ]


@st.composite
def orders(draw: st.DrawFn) -> list[SignedBid]:
    """Bids with shared nonces, wishes and narrow vaults."""
    count = draw(st.integers(0, 8))
    found = [
        order(
            draw(st.sampled_from(BUYERS)),
            limit=draw(st.sampled_from(PRICES)),
            product=draw(st.sampled_from((1, 1, 2))),
            nonce=draw(st.integers(0, 3)),
            duration=draw(st.sampled_from(DURATIONS)),
            wanting=draw(wishes),
        )
        for _ in range(count)
    ]
    return list({each.bid.payload.id: each for each in found}.values())


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    batches = st.integers(0, 1)
    offered = [resting_ask(each, batch=draw(batches)) for each in draw(adverts())]
    wanted = [resting_bid(each, batch=draw(batches)) for each in draw(orders())]
    ledger = Ledger(RULES.bond_unit)
    for number in (1, 2):
        ledger.apply(product(number))
    given_ = Conditions(
        at=NOW_S,
        inclusion_s=3,
        fee=FEE,
        products=ledger.products,
        bonds={a.machine: TokenAmount(draw(st.sampled_from(BONDS)) * TOKEN) for a in offered},
    )
    asks: dict[int, list[RestingAsk]] = {1: [], 2: []}
    for ask in sorted(offered, key=lambda ask: ask.rank):
        asks[ask.ask.payload.product].append(ask)
    cash = {key(name).address: draw(st.sampled_from((0, 1, 2, 99, 99))) * TOKEN for name in BUYERS}
    return Round(asks, sorted(wanted, key=lambda bid: bid.rank), cash, given_)


def twin(found: Round) -> list[tuple[BidId, AskId, Price]]:
    """Every bid looks at every ask, and every rule is written out once more."""
    bids = sorted(
        found.bids, key=lambda b: (-b.bid.payload.max_price_per_hour.value, b.batch, b.tie)
    )
    cash, held = dict(found.cash), dict[AskId, tuple[int, RestingBid, RestingAsk]]()
    to_serve = list(dict.fromkeys(bid.nonce for bid in bids))
    while to_serve:
        nonce = to_serve.pop(0)
        options = []
        for bid in bids:
            if bid.nonce == nonce:
                for ask in (ask for ladder in found.asks.values() for ask in ladder):
                    taken = held.get(ask.id)
                    if taken is not None and bids.index(taken[1]) < bids.index(bid):
                        continue
                    if (cost := naive_cost(bid, ask, found.given)) is not None:
                        options.append(((cost, ask.rank, bids.index(bid)), bid, ask))
        if not options:
            continue
        (cost, _, _), bid, ask = min(options, key=lambda option: option[0])
        if cash.get(nonce[0], 0) < cost:
            continue
        if ask.id in held:
            back, loser, _ = held[ask.id]
            cash[loser.nonce[0]] += back
            to_serve.insert(0, loser.nonce)
        cash[nonce[0]] -= cost
        held[ask.id] = cost, bid, ask
    fills = sorted(held.values(), key=lambda fill: bids.index(fill[1]))
    return [(bid.id, ask.id, ask.ask.payload.min_price_per_hour) for _, bid, ask in fills]


def naive_cost(bid: RestingBid, ask: RestingAsk, given_: Conditions) -> int | None:
    """What the lease would lock; None: it cannot be."""
    wish, offer = bid.bid.payload, ask.ask.payload
    cost = offer.min_price_per_hour.value * wish.count * wish.duration // 3_600
    is_possible = (
        offer.product == wish.product
        and offer.min_price_per_hour.value <= wish.max_price_per_hour.value
        and offer.min_duration <= wish.duration <= offer.max_duration
        and offer.provider != wish.buyer
        and bid.terms.unmet_by(ask.advert.body.profile, offer.provider) is None
        and given_.bonds[ask.machine].value * 10_000 >= cost * 1_000
        and cost > 0
    )
    return cost if is_possible else None


@given(rounds())
def test_the_clearing_is_the_naive_twins(found: Round) -> None:
    fills = [(fill.bid.id, fill.ask.id, fill.price) for fill in found.clearing.fills]
    assert fills == twin(found)


@given(rounds())
def test_every_fill_is_within_all_limits_and_nothing_is_used_twice(found: Round) -> None:
    clearing = found.clearing
    for fill in clearing.fills:
        assert fits(fill.bid, fill.ask, found.given)
        limit = fill.bid.bid.payload.max_price_per_hour
        assert fill.ask.ask.payload.min_price_per_hour == fill.price <= limit
    machines = [fill.ask.machine for fill in clearing.fills]
    nonces = [fill.bid.nonce for fill in clearing.fills]
    assert len(set(machines)) == len(machines)
    assert len(set(nonces)) == len(nonces)
    for buyer, cash in found.cash.items():
        spent = sum(f.locked.value for f in clearing.fills if f.bid.nonce[0] == buyer)
        assert spent <= cash


@given(rounds())
def test_no_unfilled_bid_envies_a_cheaper_one(found: Round) -> None:
    clearing = found.clearing
    for bid in clearing.unmatched:
        if bid.id in clearing.short:
            continue
        for fill in clearing.fills:
            if fill.bid.bid.payload.max_price_per_hour < bid.bid.payload.max_price_per_hour:
                same_book = fill.ask.ask.payload.product == bid.bid.payload.product
                assert not (same_book and fits(bid, fill.ask, found.given)), (bid, fill)


@given(rounds())
def test_nothing_cheaper_is_left_for_a_wish_that_was_served(found: Round) -> None:
    """Of no alternative; neither free nor with a bid that comes later."""
    clearing = found.clearing
    taken = {fill.ask.id: found.bids.index(fill.bid) for fill in clearing.fills}
    for fill in clearing.fills:
        for place, bid in enumerate(found.bids):
            if bid.nonce != fill.bid.nonce:
                continue
            for ask in found.asks[bid.bid.payload.product]:
                if locked_by(bid, ask) < fill.locked and fits(bid, ask, found.given):
                    assert taken.get(ask.id, len(found.bids)) < place, (bid, ask, fill)


@given(rounds())
def test_every_bid_is_filled_unmatched_or_has_an_alternative_that_was_filled(found: Round) -> None:
    clearing = found.clearing
    filled = {fill.bid.id for fill in clearing.fills}
    served = {fill.bid.nonce for fill in clearing.fills}
    left = {bid.id for bid in clearing.unmatched}
    assert not filled & left
    for bid in found.bids:
        assert bid.id in filled or bid.id in left or bid.nonce in served
    assert set(clearing.short) <= left


@given(rounds())
def test_raising_a_filled_bid_never_unfills_it(found: Round) -> None:
    """But where the wish lost a cheaper alternative when the vault had paid for the next wish."""
    for fill in found.clearing.fills:
        raised = order_with_limit(fill.bid, "9.00")
        rest = [bid for bid in found.bids if bid.id != fill.bid.id]
        again = sorted([*rest, raised], key=lambda bid: bid.rank)
        clearing = clear(again, found.asks, found.cash, frozenset(), found.given)
        is_alone = all(bid.nonce != raised.nonce for bid in rest)
        if is_alone or raised.id not in clearing.short:
            assert raised.nonce in {each.bid.nonce for each in clearing.fills}


def order_with_limit(bid: RestingBid, limit: str) -> RestingBid:
    payload = bid.bid.payload
    name = next(name for name in BUYERS if key(name).address == payload.buyer)
    signed = order(
        name,
        limit=limit,
        product=payload.product,
        nonce=payload.nonce,
        duration=payload.duration,
        wanting=bid.terms,
    )
    return resting_bid(signed, batch=bid.batch)


@given(adverts(), orders(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_within_a_round_changes_nothing(
    offered: list[SignedAdvert], wanted: list[SignedBid], rng: Random
) -> None:
    """Neither who is matched with whom, nor the state afterwards."""
    events: list[AskHeard | BidSubmitted] = [AskHeard(advert=each) for each in offered]
    events += [BidSubmitted(order=each, inbox=n) for n, each in enumerate(wanted, 1)]
    shuffled = list(events)
    rng.shuffle(shuffled)
    found = [one_round(each) for each in (events, shuffled)]
    assert found[0] == found[1]


def one_round(events: Sequence[AskHeard | BidSubmitted]) -> tuple[object, object]:
    desk = Desk()
    desk.mine(product(2))
    for name in PROVIDERS:
        desk.mine(*provider(name, MACHINES, products=(1, 2)))
    desk.mine(*joined("bob", 3), *joined("dan", 3))
    desk.tell(*events)
    matched = pairs(desk.end_round())
    return matched, desk.market.state_hash()


@given(adverts(), orders())
def test_a_journal_is_replayed_to_the_same_bytes(
    offered: list[SignedAdvert], wanted: list[SignedBid]
) -> None:
    desk = Desk()
    desk.mine(product(2))
    for name in PROVIDERS:
        desk.mine(*provider(name, MACHINES, products=(1, 2)))
    desk.mine(*joined("bob", 3), *joined("dan", 3))
    desk.hear(*offered)
    desk.submit(*wanted)
    desk.end_round()
    journal = [(RulesSet(rules=RULES), NOW), *desk.log]
    first, again = (list(replay_lines(lambda: journal, FIRST_HEAD, {})) for _ in range(2))
    assert first == again
    matched = [from_json(line, ReplayedMatch) for line in first[:-1]]
    assert [(match.bid, match.ask) for match in matched] == pairs(desk.effects)
    assert from_json(first[-1], ReplayedState).state == desk.market.state_hash()
