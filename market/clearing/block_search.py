"""Lane B in integers: a block auction's bids and asks as rows of the kernel, and who gets which.

`fitting` decides which ask fits which bid, apart from the price; here its answer becomes a bit.
Bids that differ in nothing but buyer, price and life are of one kind and share a bit. An ask opens
one lease whatever its length, so every block begins in the first slot and no two share an ask.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from cloud_gpu.protocol.orders import BidId
from cloud_gpu.protocol.values import ZERO_DIGEST
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import Conditions, obstacles
from market.clearing.gangs import best_gang
from market.kernel import Capacity
from market.kernel.allocation import ALONE, ANY
from market.kernel.capacity import ASK, BID, PART, by_value
from market.rules import BLOCK_WINDOWS_MAX

PRODUCTS_MAX, KINDS_MAX = 62, 62
"""In one pass of the kernel, and of each product: bits of a signed word."""

_NOT_COMPILED = frozenset({"bid.max_price_per_hour", "bid.buyer"})
"""The kernel compares prices and owners itself."""

Kind = tuple[object, ...]


class Fits:
    """Which asks fit which kinds of bids; each pair is looked at once an auction."""

    def __init__(self, asks: Mapping[int, Sequence[RestingAsk]], given: Conditions) -> None:
        self.asks, self.given = asks, given
        self._found: dict[Kind, tuple[list[RestingAsk], list[int]]] = {}
        self._kinds: dict[BidId, Kind] = {}
        self._providers = {ask.machine.provider for each in asks.values() for ask in each}

    def of(self, bid: RestingBid) -> list[RestingAsk]:
        """Asks that only price or owner may keep from the bid, cheapest first."""
        return self._of(bid)[0]

    def _of(self, bid: RestingBid) -> tuple[list[RestingAsk], list[int]]:
        """The same, and their prices."""
        kind = self.kind_of(bid)
        if kind not in self._found:
            fitting = [
                ask
                for ask in self.asks.get(bid.bid.payload.product, ())
                if all(each.field in _NOT_COMPILED for each in obstacles(bid, ask, self.given))
            ]
            prices = [ask.ask.payload.min_price_per_hour.value for ask in fitting]
            self._found[kind] = fitting, prices
        return self._found[kind]

    def within(self, bid: RestingBid) -> list[RestingAsk]:
        """Asks that fit the bid, cheapest first."""
        fitting, prices = self._of(bid)
        buyer = bid.bid.payload.buyer
        reached = fitting[: bisect_right(prices, bid.bid.payload.max_price_per_hour.value)]
        if buyer not in self._providers:
            return reached
        return [ask for ask in reached if ask.ask.payload.provider != buyer]

    def is_gang(self, bid: RestingBid) -> bool:
        """Whether it wants more than one machine."""
        payload = bid.bid.payload
        return payload.count != self.given.products[payload.product].slice_gpus

    def kind_of(self, bid: RestingBid) -> Kind:
        """What the bid shares with others of its kind."""
        if bid.id not in self._kinds:
            self._kinds[bid.id] = _kind_of(bid, self.given)
        return self._kinds[bid.id]


def _kind_of(bid: RestingBid, given: Conditions) -> Kind:
    """All of a bid that `fitting` reads, but for price and buyer."""
    payload = bid.bid.payload
    return (
        payload.product,
        payload.count,
        payload.duration,
        payload.start_by >= given.at + given.inclusion_s,
        payload.provider,
        payload.max_fee_bps.value,
        payload.flags,
        replace(bid.terms, salt=ZERO_DIGEST),
    )


def slots_of(bid: RestingBid, block_s: int) -> int:
    """How many windows the block lasts."""
    return min(-(-bid.bid.payload.duration // block_s), BLOCK_WINDOWS_MAX)


def served(
    bids: Sequence[RestingBid], fits: Fits, *, block_s: int, seed: int, steps: int
) -> dict[BidId, tuple[RestingAsk, ...]]:
    """Greedy by value, then `steps` of the search a pass; `bids` in the order of their ranks."""
    taken: dict[BidId, tuple[RestingAsk, ...]] = {}
    for part in _passes(bids, fits):
        used = {ask.id for asks in taken.values() for ask in asks}
        offered = [
            ask
            for product in sorted({bid.bid.payload.product for bid in part})
            for ask in fits.asks.get(product, ())
            if ask.id not in used
        ]
        if offered:
            taken |= _Pass(part, offered, fits, block_s).run(seed, steps)
    return taken


class _Pass:
    """One run of the kernel; gangs are put together beside it, in the same order of service."""

    def __init__(
        self, bids: Sequence[RestingBid], asks: list[RestingAsk], fits: Fits, block_s: int
    ) -> None:
        self._bids, self._asks, self._fits = bids, asks, fits
        self._rows = {ask.id: row for row, ask in enumerate(asks)}
        horizon = max(slots_of(bid, block_s) for bid in bids)
        self._wanted, bits = _bid_rows(bids, fits, block_s)
        self._capacity = Capacity(_ask_rows(asks, bids, fits, bits, horizon), horizon)
        self._gangs: dict[BidId, tuple[RestingAsk, ...]] = {}

    def run(self, seed: int, steps: int) -> dict[BidId, tuple[RestingAsk, ...]]:
        """Who gets what."""
        parts = [np.empty(0, PART)]
        alone: list[int] = []
        for row in by_value(self._wanted).tolist():
            if not self._fits.is_gang(self._bids[row]):
                alone.append(row)
                continue
            parts.append(self._capacity.allocate(self._wanted, np.array(alone, np.int64)))
            alone.clear()
            self._serve_gang(self._bids[row])
        parts.append(self._capacity.allocate(self._wanted, np.array(alone, np.int64)))
        moved = self._capacity.improve(self._wanted, np.concatenate(parts), steps, seed)
        singles = {self._bids[bid].id: (self._asks[ask],) for bid, ask, *_ in moved.tolist()}
        return singles | self._gangs

    def _serve_gang(self, bid: RestingBid) -> None:
        free = [
            ask
            for ask in self._fits.within(bid)
            if ask.id in self._rows and self._capacity.is_free(self._rows[ask.id])
        ]
        gang = best_gang(bid, free, self._fits.given)
        if gang is not None:
            self._gangs[bid.id] = gang.asks
            self._capacity.occupy([self._rows[ask.id] for ask in gang.asks])


def _passes(bids: Sequence[RestingBid], fits: Fits) -> Iterator[list[RestingBid]]:
    """As few as the bits allow; a kind that finds no bit left waits for the next."""
    left = list(bids)
    while left:
        kinds: dict[int, set[Kind]] = {}
        part, rest = [], []
        for bid in left:
            of = kinds.setdefault(bid.bid.payload.product, set())
            has_bit = fits.kind_of(bid) in of or len(of) < KINDS_MAX
            if has_bit and len(kinds) <= PRODUCTS_MAX:
                of.add(fits.kind_of(bid))
                part.append(bid)
            else:
                rest.append(bid)
                if not of:
                    del kinds[bid.bid.payload.product]
        yield part
        left = rest


def _models(bids: Sequence[RestingBid]) -> dict[int, int]:
    products = sorted({bid.bid.payload.product for bid in bids})
    return {product: model for model, product in enumerate(products)}


def _bid_rows(
    bids: Sequence[RestingBid], fits: Fits, block_s: int
) -> tuple[NDArray[np.void], dict[Kind, int]]:
    """BID rows, and the bit of each kind within its product."""
    bits: dict[Kind, int] = {}
    counts: dict[int, int] = {}
    for bid in bids:
        if (kind := fits.kind_of(bid)) not in bits:
            bits[kind] = counts.get(bid.bid.payload.product, 0)
            counts[bid.bid.payload.product] = bits[kind] + 1
    models, owners = _models(bids), _owners(bids, fits)
    rows = [
        (
            bid.bid.payload.max_price_per_hour.value,
            rank,
            1 << models[bid.bid.payload.product],
            1,
            1 << bits[fits.kind_of(bid)],
            owners[bid.bid.payload.buyer.raw],
            bid.bid.payload.count,
            slots_of(bid, block_s),
            0,
            0,
            ANY if fits.is_gang(bid) else ALONE,
            1,
        )
        for rank, bid in enumerate(bids)
    ]
    return np.array(rows, BID), bits


def _ask_rows(
    asks: Sequence[RestingAsk],
    bids: Sequence[RestingBid],
    fits: Fits,
    bits: Mapping[Kind, int],
    horizon: int,
) -> NDArray[np.void]:
    traits: dict[bytes, int] = {}
    for kind, bid in {fits.kind_of(bid): bid for bid in bids}.items():
        for ask in fits.of(bid):
            traits[ask.id.raw] = traits.get(ask.id.raw, 0) | 1 << bits[kind]
    models, owners = _models(bids), _owners(bids, fits)
    ranks = {ask.id: n for n, ask in enumerate(sorted(asks, key=lambda each: each.rank))}
    rows = [
        (
            ask.ask.payload.min_price_per_hour.value,
            ranks[ask.id],
            traits.get(ask.id.raw, 0),
            owners[ask.ask.payload.provider.raw],
            models[ask.ask.payload.product],
            0,
            0,
            ask.gpus,
            ask.gpus,
            0,
            horizon,
        )
        for ask in asks
    ]
    return np.array(rows, ASK)


def _owners(bids: Sequence[RestingBid], fits: Fits) -> dict[bytes, int]:
    found = {bid.bid.payload.buyer.raw for bid in bids}
    found |= {ask.ask.payload.provider.raw for ladder in fits.asks.values() for ask in ladder}
    return {owner: number for number, owner in enumerate(sorted(found))}
