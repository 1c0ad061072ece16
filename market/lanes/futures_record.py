"""A batch of lane C as it is published: its rows, from what each series was given and gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.rounds import (
    AccountCondition,
    Condition,
    Paired,
    PlacedFuture,
    ProductCondition,
    SeriesCondition,
    Unmatched,
)
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import Address, Digest
from market.books.futures_book import RestingFuture
from market.clearing.futures_clearing import FutureClearing
from market.lanes.floor import Floor
from market.lanes.publishing import FORGOTTEN, WAITING, RoundRows


@dataclass(frozen=True, slots=True)
class SeriesRound:
    """One series' part of a batch."""

    series: Series
    orders: Sequence[RestingFuture]
    """That took part."""
    reference: Price | None
    clearing: FutureClearing | None
    short: Mapping[Digest, Rejection]
    """Orders whose margin was not covered."""


def rows_of(
    cleared: Sequence[SeriesRound],
    cash: Mapping[Address, int],
    left: Mapping[Address, int],
    floor: Floor,
) -> RoundRows:
    """The rows; free cash before and after the batch, base units."""

    def why(key: Digest) -> str:
        order = floor.futures.order(key)
        if order is None:
            return FORGOTTEN
        return WAITING if order.state is BidState.PENDING else order.state.value

    return RoundRows(
        orders={
            str(order.id): PlacedFuture(
                order=order.order.signed,
                filled=order.report.filled,
                batch=order.batch,
                tie=Digest(order.tie),
            )
            for each in cleared
            for order in each.orders
        },
        conditions={row.key: row for row in _conditions(cleared, cash, left, floor)},
        fills=paired_by(cleared),
        unmatched=unmatched_of(cleared),
        why=why,
    )


def _conditions(
    cleared: Sequence[SeriesRound],
    cash: Mapping[Address, int],
    left: Mapping[Address, int],
    floor: Floor,
) -> list[Condition]:
    products = sorted({each.series.product for each in cleared})
    return [
        *(SeriesCondition(series=each.series, reference=each.reference) for each in cleared),
        *(ProductCondition(product=floor.ledger.products[each], owners=0) for each in products),
        *(AccountCondition(account=a, cash=cash[a], left=left[a]) for a in sorted(cash)),
    ]


def paired_by(cleared: Sequence[SeriesRound]) -> list[Paired]:
    """A row for each contract that was matched."""
    return [
        Paired(buy=pair.buy.id, sell=pair.sell.id, price=each.clearing.price, units=pair.units)
        for each in cleared
        if each.clearing is not None
        for pair in each.clearing.pairs
    ]


def unmatched_of(cleared: Sequence[SeriesRound]) -> list[Unmatched]:
    """A row for each order that was not."""
    return [row for each in cleared for row in _unmatched(each)]


def _unmatched(each: SeriesRound) -> list[Unmatched]:
    pairs = each.clearing.pairs if each.clearing is not None else ()
    matched = {order.id for pair in pairs for order in (pair.buy, pair.sell)}
    return [
        Unmatched(
            order=order.id,
            reason=(
                each.short[order.id].reason if order.id in each.short else RejectReason.NO_MATCH
            ).value,
        )
        for order in each.orders
        if order.id not in matched
    ]
