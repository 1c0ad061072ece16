"""From a match to a funded lease, or back: openings on their way to the chain, as two tables.

The market proposes, LeaseBook decides. Whatever was proposed ends in one of three ways: the lease
opened, the contract refused, or nothing was heard in time; then capacity is free again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cloud_gpu.protocol.calls import MatchedOrders, OpenBatch, OpenGang, OpeningCall
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import BidId, SignedAdvert
from cloud_gpu.protocol.units import Instant, Price, TokenAmount
from cloud_gpu.protocol.values import Address
from market.books.book import RestingAsk
from market.clearing.on_demand import Fill
from market.rules import BATCH_MATCHES_MAX, MarketRules


class BidStep(StrEnum):
    """What happens to a bid."""

    MATCH = "match"
    OPEN = "open"
    """LeaseBook says that a lease came of it."""
    RELEASE = "release"
    """The opening failed through no fault of the bid."""
    REJECT = "reject"
    EXPIRE = "expire"
    CANCEL = "cancel"
    UNDO = "undo"
    """The block that opened it is no longer part of the chain."""


BID_TABLE: Final = MappingProxyType(
    {
        (BidState.PENDING, BidStep.MATCH): BidState.MATCHED,
        (BidState.PENDING, BidStep.REJECT): BidState.REJECTED,
        (BidState.PENDING, BidStep.EXPIRE): BidState.EXPIRED,
        (BidState.PENDING, BidStep.CANCEL): BidState.CANCELLED,
        (BidState.MATCHED, BidStep.RELEASE): BidState.PENDING,
        (BidState.MATCHED, BidStep.REJECT): BidState.REJECTED,
        (BidState.MATCHED, BidStep.EXPIRE): BidState.EXPIRED,
        (BidState.MATCHED, BidStep.CANCEL): BidState.CANCELLED,
        # The chain's word stands above ours, also when it comes late.
        **{(state, BidStep.OPEN): BidState.OPENED for state in BidState},
        (BidState.OPENED, BidStep.UNDO): BidState.PENDING,
    }
)
"""(state, step) -> state; a missing entry means that nothing happens."""


def next_bid_state(state: BidState, step: BidStep) -> BidState | None:
    """The state after a step, or None when the step does not apply."""
    return BID_TABLE.get((state, step))


class Blame(StrEnum):
    """Whose order cannot be opened."""

    ASK = "ask"
    BID = "bid"
    NOBODY = "nobody"


def blame_for(rejection: Rejection) -> Blame:
    """Whom the contract's refusal of an entry concerns.

    What both orders were checked against before (price, product, fee) is the bid's: it would be
    matched and refused again. An expiry is nobody's: the orders that ended leave by themselves.
    """
    if rejection.reason is RejectReason.EXPIRED:
        return Blame.NOBODY
    return Blame.ASK if rejection.field.startswith("ask.") else Blame.BID


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A match whose transaction is on its way."""

    bid: BidId
    buyer: Address
    nonce: int
    asks: tuple[RestingAsk, ...]
    """A lease each; all of them open or none."""
    price: Price
    locked: TokenAmount
    """Of the buyer's cash, once it opens."""
    call: OpeningCall
    posted_at: Instant
    is_settled: bool = False
    """The lease opened; kept in case that its block does not stay."""

    @property
    def adverts(self) -> tuple[SignedAdvert, ...]:
        """Where its machines' nodes are."""
        return tuple(ask.advert for ask in self.asks)

    @property
    def leases(self) -> tuple[LeaseKey, ...]:
        """What it opens."""
        return tuple(ask.ask.payload.lease for ask in self.asks)

    def settled(self) -> Opening:
        """After LeaseOpened."""
        return replace(self, is_settled=True)

    def posted_again(self, now: Instant) -> Opening:
        """After its block vanished: the transaction is expected to be mined once more."""
        return replace(self, is_settled=False, posted_at=now)


class Openings:
    """Openings by bid: one bid has at most one."""

    def __init__(self) -> None:
        self._of: dict[BidId, Opening] = {}

    def of(self, bid: BidId) -> Opening | None:
        """The opening of a bid."""
        return self._of.get(bid)

    def put(self, opening: Opening) -> None:
        """A new opening, or one that changed."""
        self._of[opening.bid] = opening

    def drop(self, bid: BidId) -> None:
        """Forget a bid's opening."""
        self._of.pop(bid, None)

    def on_their_way(self) -> Iterator[Opening]:
        """Openings that the chain has not answered, by bid."""
        return (self._of[bid] for bid in sorted(self._of) if not self._of[bid].is_settled)

    def locking(self) -> dict[Address, int]:
        """What each buyer's openings on their way will lock, base units."""
        sums: dict[Address, int] = {}
        for opening in self.on_their_way():
            sums[opening.buyer] = sums.get(opening.buyer, 0) + opening.locked.value
        return sums

    def in_call(self, call: OpeningCall) -> list[Opening]:
        """The openings that one transaction carries and that still wait for it."""
        return [opening for opening in self.on_their_way() if opening.call == call]

    def rows(self) -> list[list[object]]:
        """Everything in it in one fixed order, for a digest of the state."""
        return [
            [bid, [ask.id for ask in found.asks], found.price, found.posted_at, found.is_settled]
            for bid, found in sorted(self._of.items())
        ]


def openings_for(fills: Sequence[Fill], rules: MarketRules, now: Instant) -> list[Opening]:
    """Group a round's matches into transactions: one product and one price, the asks' own, each.

    A gang has one for itself, since it opens whole or reverts; its bid says that each machine is
    paid its own ask. Within a group a buyer's matches stand together, which saves gas, in the order
    in which its bids were served.
    """
    groups: dict[tuple[int, int], list[Fill]] = {}
    for fill in (fill for fill in fills if len(fill.asks) == 1):
        groups.setdefault((fill.bid.bid.payload.product, fill.price.value), []).append(fill)
    openings = []
    for (product, price), group in sorted(groups.items()):
        group.sort(key=lambda fill: fill.bid.bid.payload.buyer)
        for start in range(0, len(group), BATCH_MATCHES_MAX):
            part = group[start : start + BATCH_MATCHES_MAX]
            call = OpenBatch(
                product=product,
                price=Price(price),
                market_id=rules.market_id,
                matches=tuple(
                    MatchedOrders(ask=fill.asks[0].ask.signed, bid=fill.bid.bid.signed)
                    for fill in part
                ),
            )
            openings += [_opening(fill, call, now) for fill in part]
    return openings + [
        _opening(fill, _gang_call(fill, rules), now) for fill in fills if len(fill.asks) > 1
    ]


def _gang_call(fill: Fill, rules: MarketRules) -> OpenGang:
    return OpenGang(
        product=fill.bid.bid.payload.product,
        price=fill.price,
        market_id=rules.market_id,
        bid=fill.bid.bid.signed,
        asks=tuple(ask.ask.signed for ask in fill.asks),
    )


def _opening(fill: Fill, call: OpeningCall, now: Instant) -> Opening:
    return Opening(
        bid=fill.bid.id,
        buyer=fill.bid.bid.payload.buyer,
        nonce=fill.bid.bid.payload.nonce,
        asks=fill.asks,
        price=fill.price,
        locked=fill.locked,
        call=call,
        posted_at=now,
    )


def calls_of(openings: Sequence[Opening]) -> list[OpeningCall]:
    """The distinct transactions of some openings, in their order."""
    calls: list[OpeningCall] = []
    for opening in openings:
        if opening.call not in calls:
            calls.append(opening.call)
    return calls


def retry_after(failures: int, rules: MarketRules, now: Instant) -> Instant:
    """When a bid may be matched again after its openings failed: twice as long each time."""
    return now + rules.round_ms * (1 << failures)


def unanswered(rules: MarketRules) -> Rejection:
    """Why an opening was given up when nothing was heard of it."""
    return Rejection(
        reason=RejectReason.OPENING_PAUSED,
        field="chain",
        found=f"no answer to the opening in {rules.settle_ms // 1000} s",
        needed="a mined transaction",
        next="Nothing to do: the market tries again until the order's start-by.",
    )


def reverted(error: str) -> Rejection:
    """Why an opening was given up when its transaction failed."""
    return Rejection(
        reason=RejectReason.OPENING_PAUSED,
        field="chain",
        found=error[:500],
        needed="a mined transaction",
        next="Nothing to do: the market tries again until the order's start-by.",
    )
