"""What the matches of a block auction pay: one price for a product, or a place, or each its own.

Between the dearest accepted ask and the cheapest limit every price keeps all matches within their
limits. The lowest counts that leaves no loser above it, if there is one: a buyer pays what keeps
others out, not what it bid. Where there is none, each place that winners tell apart has its own;
where that has none either, each match pays its ask and the same share of the room up to its limit,
so that providers together have what the dearest ask would have paid, if there is as much room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.orders import AskId
from cloud_gpu.protocol.settlement import bond_needed
from cloud_gpu.protocol.units import (
    GpuSeconds,
    Price,
    TokenAmount,
    cost_down,
    price_down,
    share_down,
    total,
)
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import Conditions, cap_at, locked_at


@dataclass(frozen=True, slots=True)
class Rival:
    """A bid that was left out and would take one winner's machine."""

    limit: Price
    asks: frozenset[AskId]
    """Any of these."""


@dataclass(frozen=True, slots=True)
class Match:
    """A bid, its machines, and between what prices they may open."""

    bid: RestingBid
    asks: tuple[RestingAsk, ...]
    """One, or a gang's, cheapest first."""
    least: Price
    """The dearest of them: all are paid one price."""
    most: Price
    """The limit, or what the weakest bond secures."""

    @property
    def gpu_seconds(self) -> int:
        """Of all machines."""
        return self.bid.bid.payload.quantity.value

    def locked(self, price: Price) -> TokenAmount:
        """Of the buyer's vault, for all machines."""
        return total([locked_at(self.bid, ask, price) for ask in self.asks])


def match_of(bid: RestingBid, asks: tuple[RestingAsk, ...], given: Conditions) -> Match:
    """The prices at which fitting asks may open the bid."""
    least, limit = asks[-1].ask.payload.min_price_per_hour, bid.bid.payload.max_price_per_hour
    product = given.products[bid.bid.payload.product]

    def is_secured(ticks: int) -> bool:
        price = Price(ticks * limits.PRICE_TICK)
        return all(
            bond_needed(cap_at(bid, ask, price), product.min_bond) <= given.bonds[ask.machine]
            for ask in asks
        )

    low, high = least.value // limits.PRICE_TICK, limit.value // limits.PRICE_TICK
    while low < high:  # the dearest tick that the bonds secure
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_secured(middle) else (low, middle - 1)
    return Match(bid, asks, least, Price(low * limits.PRICE_TICK))


def most_locked(bid: RestingBid, given: Conditions) -> TokenAmount:
    """What a bid could lock at most, at its limit."""
    gpus, payload = given.products[bid.bid.payload.product].slice_gpus, bid.bid.payload
    cap = cost_down(payload.max_price_per_hour, GpuSeconds(gpus * payload.duration))
    one = cap + share_down(cap, payload.audit_bps)
    return TokenAmount(one.value * (payload.count // gpus))


@dataclass(frozen=True, slots=True)
class Priced:
    """Matches of a product that pay one price, or each its own."""

    matches: tuple[Match, ...]
    price: Price | None
    """None: no price lies within all limits."""
    regions: tuple[str, ...]
    """Where their machines are, if others of the product are elsewhere and priced apart."""

    @property
    def prices(self) -> list[Price]:
        """Of each match."""
        if self.price is None:
            return each_its_own(self.matches)
        return [self.price] * len(self.matches)


def priced(matches: Sequence[Match], rivals: Sequence[Rival]) -> list[Priced]:
    """The matches of one product: together if one price does, else place by place."""
    price = uniform(matches, [rival.limit for rival in rivals])
    if price is not None:
        return [Priced(tuple(matches), price, ())]
    parts = _by_place(matches)
    if len(parts) == 1:
        return [Priced(tuple(matches), None, ())]
    found = []
    for part in parts:
        asks = {ask.id for match in part for ask in match.asks}
        near = [rival.limit for rival in rivals if rival.asks & asks]
        regions = {ask.advert.body.profile.region for match in part for ask in match.asks}
        found.append(Priced(tuple(part), uniform(part, near), tuple(sorted(regions))))
    return found


def _by_place(matches: Sequence[Match]) -> list[list[Match]]:
    """Machines are in one place if no winner's terms tell them apart, or if one gang has both."""
    wishes = {
        (terms.regions, terms.excluded_regions, terms.network_classes): terms
        for terms in (match.bid.terms for match in matches)
    }.values()
    parts: list[tuple[set[tuple[bool, ...]], list[Match]]] = []
    for match in matches:
        profiles = [ask.advert.body.profile for ask in match.asks]
        places = {tuple(not any(wish.unmet_by_place(p)) for wish in wishes) for p in profiles}
        near = [part for part in parts if part[0] & places]
        parts = [part for part in parts if not part[0] & places]
        together = [*(each for _, found in near for each in found), match]
        parts.append((places.union(*(theirs for theirs, _ in near)), together))
    return [part for _, part in parts]


def uniform(matches: Sequence[Match], losers: Sequence[Price]) -> Price | None:
    """The one price; None: none lies within all limits. `losers`: limits of bids left out."""
    dearest, cheapest = max(each.least for each in matches), min(each.most for each in matches)
    if dearest > cheapest:
        return None
    return min(cheapest, max([dearest, *losers]))


def each_its_own(matches: Sequence[Match]) -> list[Price]:
    """Without one price: the ask, and pro rata of the room above it; whole ticks, rounded down."""
    dearest = max(each.least for each in matches)
    wanted = sum((dearest.value - each.least.value) * each.gpu_seconds for each in matches)
    room = sum((each.most.value - each.least.value) * each.gpu_seconds for each in matches)
    prices = []
    for each in matches:
        has = each.most.value - each.least.value
        share = has * min(wanted, room) // room if room else 0
        prices.append(price_down(each.least.value + share))
    return prices
