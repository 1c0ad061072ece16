"""From the rows of a published round back to what its clearing was given; signatures are checked.

A stranger has no chain. That a node key may sign for its provider is taken from the binding in the
advert, which the provider's own key signed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cloud_gpu.protocol.adverts import ANY_TIME, ask_of
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.future_reports import FutureReport
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.rounds import (
    AccountCondition,
    Condition,
    MachineCondition,
    PlacedAsk,
    PlacedBid,
    PlacedFuture,
    ProductCondition,
    RoundFacts,
)
from cloud_gpu.protocol.signing import Domain, verify
from cloud_gpu.protocol.values import Address, keccak256
from market.books.book import RestingAsk, RestingBid
from market.books.futures_book import RestingFuture
from market.clearing.fitting import Conditions
from market.rules import MarketRules


def resting_bid(row: PlacedBid, domain: Domain) -> RestingBid | Rejection | None:
    """The bid; a rejection where its signature fails, None where its terms are others."""
    bid = row.order.bid.payload
    if keccak256(to_json(row.order.terms)) != bid.terms:
        return None
    found = verify(row.order.bid, domain, account=bid.buyer, keys=NoDelegates(), at=ANY_TIME)
    if isinstance(found, Rejection):
        return found
    return RestingBid(
        id=bid.id,
        bid=found,
        terms=row.order.terms,
        inbox=0,
        batch=row.batch,
        tie=row.tie.raw,
        report=BidReport(bid=bid.id, state=BidState.PENDING),
    )


def resting_ask(row: PlacedAsk, domain: Domain) -> RestingAsk | Rejection:
    """The ask; a rejection where a signature of the ask, its advert or the binding fails."""
    found = ask_of(row.advert, domain, at=ANY_TIME)
    if isinstance(found, Rejection):
        return found
    return RestingAsk(
        id=found.payload.id, ask=found, advert=row.advert, batch=row.batch, tie=row.tie.raw
    )


def resting_future(row: PlacedFuture, domain: Domain) -> RestingFuture | Rejection:
    """The order of futures; a rejection where its signature fails."""
    order = row.order.payload
    found = verify(row.order, domain, account=order.trader, keys=NoDelegates(), at=ANY_TIME)
    if isinstance(found, Rejection):
        return found
    return RestingFuture(
        id=order.id,
        order=found,
        series=order.series,
        inbox=0,
        batch=row.batch,
        tie=row.tie.raw,
        report=FutureReport(order=order.id, state=BidState.PENDING, filled=row.filled),
    )


def conditions_of(facts: RoundFacts, rules: MarketRules, rows: Sequence[Condition]) -> Conditions:
    """What the clearing of lane A or B read besides the orders."""
    machines = [row for row in rows if isinstance(row, MachineCondition)]
    products = [row for row in rows if isinstance(row, ProductCondition)]
    return Conditions(
        at=facts.chain_at,
        inclusion_s=facts.inclusion_s,
        fee=facts.fee,
        products={row.product.id: row.product for row in products},
        bonds={row.machine: row.bond for row in machines},
        verifiers_alive=facts.verifiers_alive,
        owners={row.product.id: row.owners for row in products},
        owners_min=facts.owners_min,
        barred={row.machine.provider for row in machines if row.is_barred},
        attributes=rules.attributes,
    )


def cash_of(rows: Iterable[Condition]) -> dict[Address, int]:
    """Free cash before the round, base units."""
    return {row.account: row.cash for row in rows if isinstance(row, AccountCondition)}
