"""Lane A against a naive twin, and the promises it makes: limits, no envy, nothing used twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.events import AskHeard, BidSubmitted
from cloud_gpu.protocol.hardware import FABRIC_LABEL
from cloud_gpu.protocol.orders import (
    AskId,
    BidFlags,
    BidId,
    Scope,
    SignedAdvert,
    SignedBid,
    Terms,
)
from cloud_gpu.protocol.units import TokenAmount, format_tokens
from cloud_gpu.protocol.values import Address
from market.audit.replaying import ReplayedMatch, ReplayedState, replay_lines
from market.books.book import Nonce, RestingAsk, RestingBid
from market.books.ledger import Ledger
from market.clearing.explaining import explain
from market.clearing.fitting import Conditions, fits, locked_by
from market.clearing.gangs import best_gang
from market.clearing.on_demand import Clearing, clear
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

PROVIDERS, BUYERS, MACHINES = ("ada", "eve", "bob"), ("bob", "dan"), 5
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
    (
        Terms(),
        Terms(),
        Terms(regions=("EU",)),
        Terms(gpu_memory_mib_min=90_000),
        *(Terms(scope=scope) for scope in Scope),
        Terms(scope=Scope.REGION, chunk=2),
    )
)
labels = st.sampled_from(({}, {FABRIC_LABEL: "nv0"}))


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
            host=f"{name}{index // 3}",
            hardware=profile(region=draw(regions), labels=draw(labels)),
        )
        for name, index in machines
    ]


@st.composite
def orders(draw: st.DrawFn) -> list[SignedBid]:
    """Bids with shared nonces, wishes and narrow vaults."""
    counts = st.sampled_from((1, 1, 2, 2, 3, 4))
    found = [
        order(
            draw(st.sampled_from(BUYERS)),
            limit=draw(st.sampled_from(PRICES)),
            product=draw(st.sampled_from((1, 1, 2))),
            nonce=draw(st.integers(0, 3)),
            count=gpus,
            flags=int(BidFlags.PAY_AS_ASK),
            duration=draw(st.sampled_from(DURATIONS)),
            wanting=wish if gpus % max(1, wish.chunk) == 0 else Terms(),
        )
        for gpus, wish in draw(st.lists(st.tuples(counts, wishes), max_size=8))
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


def twin(found: Round) -> list[tuple[BidId, list[AskId]]]:
    """Every bid looks at every set of machines, and every rule is written out once more."""
    cash, gone, fills = dict(found.cash), set[AskId](), dict[Nonce, tuple[BidId, list[AskId]]]()
    order_of = {
        bid.id: (-bid.bid.payload.max_price_per_hour.value, bid.batch) for bid in found.bids
    }
    for first in sorted(found.bids, key=lambda bid: (order_of[bid.id], bid.tie)):
        nonce, options = first.nonce, []
        for bid in found.bids:
            if bid.nonce != nonce or order_of[bid.id] != order_of[first.id]:
                continue
            count = bid.bid.payload.count
            for gang in combinations(found.asks[bid.bid.payload.product], count):
                costs = [naive_cost(bid, ask, found.given) for ask in gang]
                is_near = len({naive_place(bid.terms.scope, ask) for ask in gang}) == 1
                nodes = Counter(naive_place(Scope.NODE, ask) for ask in gang)
                is_near &= not any(of % max(1, bid.terms.chunk) for of in nodes.values())
                if None in costs or not is_near or gone & {ask.id for ask in gang}:
                    continue
                total = sum(cost for cost in costs if cost is not None)
                key = -count, total, sorted(ask.rank for ask in gang), bid.id
                options.append((key, bid, gang))
        for (_, cost, _, _), bid, gang in sorted(options, key=lambda option: option[0]):
            if nonce not in fills and cash.get(nonce[0], 0) >= cost:
                cash[nonce[0]] -= cost
                fills[nonce] = bid.id, [ask.id for ask in sorted(gang, key=lambda ask: ask.rank)]
                gone |= {ask.id for ask in gang}
    return list(fills.values())


def naive_place(scope: Scope, ask: RestingAsk) -> object:
    advert = ask.advert.body
    node = advert.peer
    near = {
        Scope.NODE: node,
        Scope.FABRIC: (ask.machine.provider, advert.profile.labels.get(FABRIC_LABEL, node)),
        Scope.REGION: advert.profile.region,
        Scope.ANY: "anywhere",
    }
    return near[scope]


def naive_cost(bid: RestingBid, ask: RestingAsk, given_: Conditions) -> int | None:
    """What the lease of one machine would lock; None: it cannot be."""
    wish, offer = bid.bid.payload, ask.ask.payload
    cost = offer.min_price_per_hour.value * wish.duration // 3_600
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
    fills = [(fill.bid.id, [ask.id for ask in fill.asks]) for fill in found.clearing.fills]
    assert fills == twin(found)


@given(rounds())
def test_every_fill_is_within_all_limits_and_nothing_is_used_twice(found: Round) -> None:
    clearing = found.clearing
    for fill in clearing.fills:
        assert all(fits(fill.bid, ask, found.given) for ask in fill.asks)
        assert sum(ask.gpus for ask in fill.asks) == fill.bid.bid.payload.count
        assert fill.price <= fill.bid.bid.payload.max_price_per_hour
    machines = [ask.machine for fill in clearing.fills for ask in fill.asks]
    nonces = [fill.bid.nonce for fill in clearing.fills]
    assert len(set(machines)) == len(machines)
    assert len(set(nonces)) == len(nonces)
    for buyer, cash in found.cash.items():
        spent = sum(f.locked.value for f in clearing.fills if f.bid.nonce[0] == buyer)
        assert spent <= cash


@given(rounds())
def test_no_unfilled_bid_envies_those_that_came_after_it(found: Round) -> None:
    """Neither one of them nor all of them together took what it could have had."""
    clearing = found.clearing
    filled = {ask.id: fill.bid for fill in clearing.fills for ask in fill.asks}
    for bid in clearing.unmatched:
        if bid.id in clearing.short:
            continue
        open_to_it = [
            ask
            for ask in found.asks[bid.bid.payload.product]
            if (ask.id not in filled or filled[ask.id].rank > bid.rank)
            and fits(bid, ask, found.given)
        ]
        assert best_gang(bid, open_to_it, found.given) is None, bid


@given(rounds())
def test_nothing_cheaper_is_left_for_a_bid_that_was_served(found: Round) -> None:
    """Neither free nor with a bid that comes later; nor did it take a smaller alternative."""
    clearing = found.clearing
    taken = {ask.id: fill.bid.rank for fill in clearing.fills for ask in fill.asks}
    for fill in clearing.fills:
        for bid in found.bids:
            if bid.nonce != fill.bid.nonce or bid.rank != fill.bid.rank:
                continue
            mine = {ask.id for ask in fill.asks}
            open_to_it = [
                ask
                for ask in found.asks[bid.bid.payload.product]
                if (ask.id in mine or taken.get(ask.id, (1,)) > bid.rank)
                and fits(bid, ask, found.given)
            ]
            gang = best_gang(bid, open_to_it, found.given)
            if gang is not None and bid.bid.payload.count >= fill.bid.bid.payload.count:
                cost = sum(locked_by(bid, ask).value for ask in gang.asks)
                spent = found.cash[bid.nonce[0]]
                assert cost >= fill.locked.value or cost > spent, (bid, fill)


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
def test_raising_a_filled_bid_never_unfills_its_request(found: Round) -> None:
    """Of a buyer with one request: the vault pays for those of one buyer in turn."""
    for fill in found.clearing.fills:
        raised = altered(fill.bid, limit="9.00")
        rest = [bid for bid in found.bids if bid.id != fill.bid.id]
        if any(bid.nonce[0] == raised.nonce[0] for bid in rest):
            continue
        again = sorted([*rest, raised], key=lambda bid: bid.rank)
        clearing = clear(again, found.asks, found.cash, frozenset(), found.given)
        assert raised.nonce in {each.bid.nonce for each in clearing.fills}


@given(rounds())
def test_the_single_change_that_an_unfilled_bid_is_told_would_have_matched_it(
    found: Round,
) -> None:
    """It, or an alternative; unless it is money that it then wants."""
    clearing = found.clearing
    for bid in clearing.unmatched:
        rest = [other for other in found.bids if other.id != bid.id]
        short, ladder = clearing.short.get(bid.id), found.asks[bid.bid.payload.product]
        _, how = explain(bid, ladder, clearing.taken_at, found.given, short)
        for changed in changes_of(bid, how.change):
            bids = sorted([*rest, changed], key=lambda bid: bid.rank)
            again = clear(bids, found.asks, found.cash, frozenset(), found.given)
            served = {fill.bid.nonce for fill in again.fills}
            assert changed.nonce in served or changed.id in again.short, how.change


def changes_of(bid: RestingBid, told: str) -> list[RestingBid]:
    """Bids as a sentence says that they should have been; those of its parts that are read here."""
    changed = []
    if match := re.match(r"Raise the price limit to ([\d.]+)\.$", told):
        changed.append(altered(bid, limit=match[1]))
    if match := re.search(r"[Bb]id for (\d+) GPUs", told):
        changed.append(altered(bid, count=int(match[1])))
    if match := re.match(r"Widen the scope to (\w+)", told):
        changed.append(altered(bid, wanting=replace(bid.terms, scope=Scope(match[1]))))
    return changed


def altered(bid: RestingBid, **changes: object) -> RestingBid:
    """The same bid of the same batch, but for what is named."""
    payload = bid.bid.payload
    words: dict[str, object] = {
        "limit": format_tokens(payload.max_price_per_hour, 3),
        "product": payload.product,
        "nonce": payload.nonce,
        "duration": payload.duration,
        "count": payload.count,
        "flags": payload.flags,
        "wanting": bid.terms,
    }
    name = next(name for name in BUYERS if key(name).address == payload.buyer)
    return resting_bid(order(name, **(words | changes)), batch=bid.batch)  # type: ignore[arg-type]


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
