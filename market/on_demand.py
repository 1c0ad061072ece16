"""Lane A, for what starts now: bids in price-time order, each takes the cheapest ask that fits.

The provider is paid his ask. So no unfilled bid has justified envy: whatever a cheaper bid took,
it could not have used. Integers only, no order of dicts, no clock; a twin in the tests agrees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import BidId
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address
from market.book import Nonce, RestingAsk, RestingBid
from market.fitting import Conditions, fits, locked_by, short_of_cash


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
    """In the order in which bids were served."""
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
    are matched already. A buyer's cash goes to its own bids in the same order as machines do.
    """
    free = {product: list(ladder) for product, ladder in asks.items()}
    left = dict(cash)
    served = set(busy)
    fills: list[Fill] = []
    unmatched: list[RestingBid] = []
    short: dict[BidId, Rejection] = {}
    for bid in bids:
        if bid.nonce in served:
            continue
        buyer = bid.bid.payload.buyer
        ladder = free.get(bid.bid.payload.product, [])
        place = _cheapest(bid, ladder, given)
        if place is not None:
            ask = ladder[place]
            locked = locked_by(bid, ask)
            if left.get(buyer, 0) >= locked.value:
                del ladder[place]
                left[buyer] -= locked.value
                served.add(bid.nonce)
                fills.append(Fill(bid, ask, ask.ask.payload.min_price_per_hour, locked))
                continue
            short[bid.id] = short_of_cash(bid, locked, left.get(buyer))
        unmatched.append(bid)
    # A dearer bid may have failed before its cheaper alternative was matched.
    left_over = tuple(bid for bid in unmatched if bid.nonce not in served)
    return Clearing(
        fills=tuple(fills),
        unmatched=left_over,
        short={bid.id: short[bid.id] for bid in left_over if bid.id in short},
    )


def _cheapest(bid: RestingBid, ladder: Sequence[RestingAsk], given: Conditions) -> int | None:
    limit = bid.bid.payload.max_price_per_hour
    for place, ask in enumerate(ladder):
        if ask.ask.payload.min_price_per_hour > limit:
            return None
        if fits(bid, ask, given):
            return place
    return None
