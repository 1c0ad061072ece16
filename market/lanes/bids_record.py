"""A round of lane A or B as it is published: its rows, from what its clearing took and gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.rounds import (
    AccountCondition,
    Condition,
    MachineCondition,
    PlacedAsk,
    PlacedBid,
    ProductCondition,
    Taken,
    Unmatched,
)
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import Address, Digest
from market.books.book import Book, Nonce, RestingAsk, RestingBid
from market.clearing.block import BlockClearing
from market.clearing.fitting import Conditions, locked_at
from market.clearing.on_demand import Clearing, Fill
from market.lanes.publishing import ALTERNATIVE, FORGOTTEN, WAITING, RoundRows
from market.lanes.round_lists import RoundLists


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a clearing of bids gave, as rows."""

    fills: Sequence[Fill]
    taken: Sequence[Taken]
    unmatched: Sequence[Unmatched]


@dataclass(frozen=True, slots=True, kw_only=True)
class BidsRound:
    """A clearing: what it was given, and what it gave."""

    bids: Sequence[RestingBid]
    """That took part."""
    asks: Mapping[int, Sequence[RestingAsk]]
    """That were free, by product."""
    cash: Mapping[Address, int]
    """Free before it, base units."""
    given: Conditions
    outcome: Outcome
    busy: Set[Nonce]
    """Of what is on its way to the chain."""


def on_demand(clearing: Clearing) -> Outcome:
    """Of a round of lane A: each provider is paid his ask."""
    return Outcome(
        clearing.fills,
        [
            _taken(fill, ask, ask.ask.payload.min_price_per_hour)
            for fill in clearing.fills
            for ask in fill.asks
        ],
        [Unmatched(order=bid.id, reason=_reason(bid, clearing)) for bid in clearing.unmatched],
    )


def auctioned(clearing: BlockClearing) -> Outcome:
    """Of an auction of lane B: every machine of a match is paid the match's price."""
    return Outcome(
        clearing.fills,
        [_taken(fill, ask, fill.price) for fill in clearing.fills for ask in fill.asks],
        [Unmatched(order=loss.bid.id, reason=loss.why.value) for loss in clearing.losses],
    )


def rows_of(cleared: BidsRound, book: Book, before: RoundLists) -> RoundRows:
    """The rows; `before` is what was published of the lane last.

    Of products that nobody wants, what was published before stays: nobody is matched by it, and it
    need not be said again when somebody wants them.
    """

    def why(order: Digest) -> str:
        bid = book.bid(order)
        if bid is None:
            return FORGOTTEN
        if bid.state is not BidState.PENDING:
            return bid.state.value
        return ALTERNATIVE if bid.nonce in cleared.busy else WAITING

    bids, asks, outcome = cleared.bids, cleared.asks, cleared.outcome
    ladders = [ask for ladder in asks.values() for ask in ladder]
    said, offered = before.orders.rows, before.asks.rows
    kept = {
        key: row for key, row in offered.items() if row.advert.body.ask.payload.product not in asks
    }
    placed = {key: _placed_ask(ask, offered.get(key)) for ask in ladders for key in (str(ask.id),)}
    return RoundRows(
        orders={key: said.get(key) or _placed_bid(bid) for bid in bids for key in (str(bid.id),)},
        asks=kept | placed,
        conditions={
            row.key: row
            for row in (
                *_kept(kept.values(), asks, before),
                *accounts_of({bid.nonce[0] for bid in bids}, cleared.cash, outcome.fills),
                *_machines(ladders, cleared.given),
                *_products(asks, cleared.given),
            )
        },
        fills=outcome.taken,
        unmatched=outcome.unmatched,
        why=why,
    )


def _placed_bid(bid: RestingBid) -> PlacedBid:
    order = SignedBid(bid=bid.bid.signed, terms=bid.terms)
    return PlacedBid(order=order, batch=bid.batch, tie=Digest(bid.tie))


def _placed_ask(ask: RestingAsk, said: PlacedAsk | None) -> PlacedAsk:
    if said is not None and said.advert is ask.advert and said.batch == ask.batch:
        return said
    return PlacedAsk(advert=ask.advert, batch=ask.batch, tie=Digest(ask.tie))


def _kept(
    asks: Iterable[PlacedAsk], wanted: Mapping[int, object], before: RoundLists
) -> list[Condition]:
    machines = {MachineCondition.key_of(each.advert.body.ask.payload.machine) for each in asks}
    return [
        row
        for key, row in before.conditions.rows.items()
        if key in machines or (isinstance(row, ProductCondition) and row.product.id not in wanted)
    ]


def _taken(fill: Fill, ask: RestingAsk, price: Price) -> Taken:
    locked = locked_at(fill.bid, ask, price)
    return Taken(ask=ask.id, bid=fill.bid.id, price=price, locked=locked)


def accounts_of(
    buyers: Set[Address], cash: Mapping[Address, int], fills: Iterable[Fill]
) -> list[AccountCondition]:
    """A row for each buyer that has a vault."""
    left = dict(cash)
    for fill in fills:
        left[fill.bid.nonce[0]] -= fill.locked.value
    known = sorted(buyers & cash.keys())
    return [AccountCondition(account=each, cash=cash[each], left=left[each]) for each in known]


def _machines(asks: Sequence[RestingAsk], given: Conditions) -> list[MachineCondition]:
    return [
        MachineCondition(
            machine=ask.machine,
            bond=given.bonds[ask.machine],
            is_barred=ask.ask.payload.provider in given.barred,
        )
        for ask in asks
    ]


def _products(asks: Mapping[int, object], given: Conditions) -> list[ProductCondition]:
    return [
        ProductCondition(product=given.products[each], owners=given.owners.get(each, 0))
        for each in sorted(asks)
        if each in given.products
    ]


def _reason(bid: RestingBid, clearing: Clearing) -> str:
    short = clearing.short.get(bid.id)
    return (short.reason if short is not None else RejectReason.NO_MATCH).value
