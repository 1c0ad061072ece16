"""Lane A, for what starts now: bids in price-time order, each takes the best that fits.

That is the cheapest, where its terms weigh nothing else (`scoring`). Bids of one nonce and price
are one wish, for which the best of them is taken: the most GPUs, then the least score. A dearer bid
of that nonce comes before, and what it takes ends the others. So nothing that a bid takes fits a
bid before it that was left without: no bid has justified envy, and whoever says that one has can
show it with the two bids and the asks. Each provider is paid his ask. Integers only, no order of
dicts, no clock; a twin in the tests agrees.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import BidId
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address
from market.books.book import Nonce, RestingAsk, RestingBid
from market.clearing.explaining import short_of_cash
from market.clearing.fitting import Conditions, fits, locked_by
from market.clearing.gangs import best_gang, takes_first


@dataclass(frozen=True, slots=True)
class Fill:
    """A match of this round."""

    bid: RestingBid
    asks: tuple[RestingAsk, ...]
    """A lease each, cheapest first; of one bid all open or none."""
    price: Price
    """The dearest ask's; of several, each is paid its own. In lane B what all of them are paid."""
    locked: TokenAmount
    """Of the buyer's cash, for all of them."""
    score: int = 0


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
        return {
            ask.machine: fill.bid.bid.payload.max_price_per_hour
            for fill in self.fills
            for ask in fill.asks
        }


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
    are matched already.
    """
    waiting = [bid for bid in bids if bid.nonce not in busy]
    free = {product: list(ladder) for product, ladder in asks.items()}
    left = dict(cash)
    fills: dict[Nonce, Fill] = {}
    short: dict[BidId, Rejection] = {}
    for (_, nonce), group in groupby(waiting, key=lambda bid: (bid.rank, bid.nonce)):
        if nonce in fills:
            continue
        buyer, wish = nonce[0], list(group)
        ways = [way for bid in wish if (way := _best(bid, free, given)) is not None]
        paid = [way for way in ways if buyer in left and way.locked.value <= left[buyer]]
        if not paid:
            cash_left = left.get(buyer)
            short |= {way.bid.id: short_of_cash(way.bid, way.locked, cash_left) for way in ways}
            continue
        best = min(paid, key=_preference)
        fills[nonce] = best
        left[buyer] -= best.locked.value
        ladder = free[best.bid.bid.payload.product]
        for ask in best.asks:
            del ladder[bisect_left(ladder, _order(ask), key=_order)]
    unmatched = tuple(bid for bid in waiting if bid.nonce not in fills)
    return Clearing(
        fills=tuple(fills.values()),
        unmatched=unmatched,
        short={bid.id: short[bid.id] for bid in unmatched if bid.id in short},
    )


def _best(
    bid: RestingBid, free: Mapping[int, Sequence[RestingAsk]], given: Conditions
) -> Fill | None:
    payload = bid.bid.payload
    fitting: list[RestingAsk] = []
    for ask in free.get(payload.product, ()):
        if ask.ask.payload.min_price_per_hour > payload.max_price_per_hour:
            break
        if not fits(bid, ask, given):
            continue
        fitting.append(ask)
        if len(fitting) * ask.gpus == payload.count and takes_first(bid, ask.gpus, given):
            break
    gang = best_gang(bid, fitting, given)
    if gang is None:
        return None
    locked = TokenAmount(sum(locked_by(bid, ask).value for ask in gang.asks))
    price = gang.asks[-1].ask.payload.min_price_per_hour
    return Fill(bid, gang.asks, price, locked, gang.score)


def _order(ask: RestingAsk) -> tuple[tuple[int, int, bytes], MachineKey]:
    return ask.rank, ask.machine


def _preference(fill: Fill) -> tuple[int, int, list[tuple[int, int, bytes]], BidId]:
    return (
        -fill.bid.bid.payload.count,
        fill.score,
        [ask.rank for ask in fill.asks],
        fill.bid.id,
    )
