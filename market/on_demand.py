"""Lane A, for what starts now: bids in price-time order, each wish takes the cheapest that fits.

A wish is a nonce: its bids are alternatives, and it wants the one ask that locks least. It gives
way to bids before its own, and then takes its next cheapest (deferred acceptance). So nothing
cheaper is left for whoever was served, and no bid has justified envy. The provider is paid his
ask. Integers only, no order of dicts, no clock; a twin in the tests agrees.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import AskId, BidId
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address
from market.book import Nonce, RestingAsk, RestingBid
from market.explaining import short_of_cash
from market.fitting import Conditions, fits, locked_by


@dataclass(frozen=True, slots=True)
class Fill:
    """A match of this round."""

    bid: RestingBid
    ask: RestingAsk
    price: Price
    locked: TokenAmount
    """Of the buyer's cash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearing:
    """What a round decided."""

    fills: tuple[Fill, ...]
    """In the order of their bids."""
    unmatched: tuple[RestingBid, ...]
    """Those whose alternative was matched are not among them."""
    short: Mapping[BidId, Rejection]
    """Unmatched bids that only want of cash kept from a match."""

    @property
    def taken_at(self) -> dict[MachineKey, Price]:
        """The limit price at which each machine went."""
        return {fill.ask.machine: fill.bid.bid.payload.max_price_per_hour for fill in self.fills}


def clear(
    bids: Sequence[RestingBid],
    asks: Mapping[int, Sequence[RestingAsk]],
    cash: Mapping[Address, int],
    busy: frozenset[Nonce],
    given: Conditions,
) -> Clearing:
    """Match a round.

    `bids` dearest first; `asks` per product, free ones only, cheapest first; `cash` of the buyers
    in base units, less what openings on their way will lock; `busy` are the nonces of bids that
    are matched already. A buyer's cash goes to its wishes in the order of their dearest bids.
    """
    waiting = [bid for bid in bids if bid.nonce not in busy]
    wishes: dict[Nonce, list[RestingBid]] = {}
    for bid in waiting:
        wishes.setdefault(bid.nonce, []).append(bid)
    lane = _Lane(wishes, {bid.id: place for place, bid in enumerate(waiting)}, asks, cash, given)
    for bid in waiting:
        if bid is wishes[bid.nonce][0]:
            lane.serve(bid.nonce)
        lane.pass_by(bid)
    left_over = tuple(bid for bid in waiting if bid.nonce not in lane.fills)
    return Clearing(
        fills=tuple(sorted(lane.fills.values(), key=lambda fill: lane.place(fill.bid))),
        unmatched=left_over,
        short={bid.id: lane.short[bid.id] for bid in left_over if bid.id in lane.short},
    )


class _Lane:
    """Who holds which ask while a round is cleared; an ask only ever goes to a bid before."""

    def __init__(
        self,
        wishes: Mapping[Nonce, Sequence[RestingBid]],
        places: Mapping[BidId, int],
        asks: Mapping[int, Sequence[RestingAsk]],
        cash: Mapping[Address, int],
        given: Conditions,
    ) -> None:
        self._wishes, self._places, self._asks, self._given = wishes, places, asks, given
        self._open = {product: list(ladder) for product, ladder in asks.items()}
        """Without what bids that were passed by hold: no later bid can take it from them."""
        self._left = dict(cash)
        self._holders: dict[AskId, RestingBid] = {}
        self._rungs: dict[BidId, int] = {}
        """Of each bid that lost an ask: what is below on its ladder stays closed to it."""
        self.fills: dict[Nonce, Fill] = {}
        self.short: dict[BidId, Rejection] = {}

    def place(self, bid: RestingBid) -> int:
        """In the order of service; 0 is first."""
        return self._places[bid.id]

    def serve(self, nonce: Nonce) -> None:
        """A wish takes its cheapest ask; whoever held that takes his next, and so on."""
        wanting: Nonce | None = nonce
        while wanting is not None:
            found = [self._cheapest(bid, is_back=wanting != nonce) for bid in self._wishes[wanting]]
            ways = [way for way in found if way is not None]
            best = min(ways, key=self._cost, default=None)
            cash = self._left.get(wanting[0])
            if best is None or (cash or 0) < best.locked.value:
                self.short |= {way.bid.id: short_of_cash(way.bid, way.locked, cash) for way in ways}
                return
            wanting = self._take(best)

    def pass_by(self, bid: RestingBid) -> None:
        """All bids from here on come after this one: what it holds is closed to them."""
        fill = self.fills.get(bid.nonce)
        if fill is None or fill.bid is not bid:
            return
        ladder = self._open[bid.bid.payload.product]
        place = bisect_left(ladder, fill.ask.rank, key=lambda ask: ask.rank)
        assert ladder[place] is fill.ask, (ladder[place].id, fill.ask.id)
        del ladder[place]

    def _take(self, fill: Fill) -> Nonce | None:
        """Returns the wish that held the ask before."""
        before = self._holders.get(fill.ask.id)
        if before is not None:
            lost = self.fills.pop(before.nonce)
            self._left[before.nonce[0]] += lost.locked.value
        self._holders[fill.ask.id] = fill.bid
        self.fills[fill.bid.nonce] = fill
        self._left[fill.bid.nonce[0]] -= fill.locked.value
        return None if before is None else before.nonce

    def _cheapest(self, bid: RestingBid, *, is_back: bool) -> Fill | None:
        """`is_back`: it lost what it took. Then asks of bids passed by may yet be open to it."""
        ladder = (self._asks if is_back else self._open).get(bid.bid.payload.product, ())
        limit, place = bid.bid.payload.max_price_per_hour, self.place(bid)
        for rung in range(self._rungs.get(bid.id, 0) if is_back else 0, len(ladder)):
            ask = ladder[rung]
            price = ask.ask.payload.min_price_per_hour
            if price > limit:
                return None
            holder = self._holders.get(ask.id)
            if (holder is None or place < self.place(holder)) and fits(bid, ask, self._given):
                if is_back:
                    self._rungs[bid.id] = rung
                return Fill(bid, ask, price, locked_by(bid, ask))
        return None

    def _cost(self, fill: Fill) -> tuple[int, tuple[int, int, bytes], int]:
        return fill.locked.value, fill.ask.rank, self.place(fill.bid)
