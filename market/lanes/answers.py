"""What the market answers about bids: their lives, moved by the table of leasing, and reported.

A report goes out only when it says something new, so that asking again costs a reader nothing.
"""

from __future__ import annotations

from dataclasses import replace

from cloud_gpu.protocol.effects import MarketEffect, ReportBid
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import BidReport, BidState, Explanation
from cloud_gpu.protocol.orders import BidId, SignedAdvert
from cloud_gpu.protocol.units import Instant, Price, instant
from market.books.book import Book, RestingBid
from market.lanes.leasing import BidStep, Openings, next_bid_state
from market.timers import Timers

FORGET_S = 3_600
"""How long after its start-by a finished bid is kept: reorganisations reach back, not so far."""


class Answers:
    """Lives of the bids in the book. Effects go to `out`."""

    def __init__(
        self, book: Book, openings: Openings, settle_ms: int, out: list[MarketEffect]
    ) -> None:
        self._book, self._openings, self._out = book, openings, out
        self._settle_ms = settle_ms
        self._looks: Timers[BidId] = Timers(self._next_look)
        self._ends: Timers[BidId] = Timers(self._forget_at)

    @property
    def deadline(self) -> Instant | None:
        """When some bid must be looked at again."""
        return self._looks.first

    def due(self, now: Instant) -> list[RestingBid]:
        """Bids that must be looked at now."""
        return [bid for key in self._looks.due(now) if (bid := self._book.bid(key)) is not None]

    def enter(self, bid: RestingBid) -> None:
        """A bid passed the door."""
        self._book.enter_bid(bid)
        self._looks.set(bid.id)
        self._ends.set(bid.id)
        self._out.append(ReportBid(report=bid.report))

    def move(
        self,
        bid: RestingBid,
        step: BidStep,
        *,
        rejection: Rejection | None = None,
        price: Price | None = None,
        leases: tuple[LeaseKey, ...] = (),
        adverts: tuple[SignedAdvert, ...] = (),
        explanation: Explanation | None = None,
    ) -> RestingBid:
        """Take one step of the table; a step that does not apply changes nothing."""
        state = next_bid_state(bid.state, step)
        if state is None:
            return bid
        report = BidReport(
            bid=bid.id,
            state=state,
            rejection=rejection,
            price=price,
            leases=leases,
            adverts=adverts,
            explanation=explanation,
        )
        return self.put(replace(bid, report=report))

    def set_patience(self, settle_ms: int) -> None:
        """How long an opening may stay unanswered from now on, those on their way included."""
        self._settle_ms = settle_ms
        for opening in self._openings.on_their_way():
            self._looks.set(opening.bid)

    def explain(
        self, bid: RestingBid, rejection: Rejection, how: Explanation | None, in_round: int
    ) -> None:
        """Say why a waiting bid did not match."""
        report = BidReport(bid=bid.id, state=bid.state, rejection=rejection, explanation=how)
        self.put(replace(bid, report=report, explained_in=in_round))

    def put(self, bid: RestingBid) -> RestingBid:
        """A bid changed; its report goes out if it is a new one."""
        before = self._book.bid(bid.id)
        self._book.put_bid(bid)
        self._looks.set(bid.id)
        if before is None or before.report != bid.report:
            self._out.append(ReportBid(report=bid.report))
        return bid

    def refuse(self, bid: BidId, rejection: Rejection) -> None:
        """A bid did not pass the door."""
        report = BidReport(bid=bid, state=BidState.REJECTED, rejection=rejection)
        self._out.append(ReportBid(report=report))

    def void(self, bid: RestingBid) -> None:
        """Its nonce can never open again."""
        rejection = Rejection(
            reason=RejectReason.NONCE_USED,
            field="bid.nonce",
            found=str(bid.nonce[1]),
            needed="a nonce that is neither opened nor voided",
            next="An alternative opened, or the nonce was voided on chain: sign a new bid.",
        )
        self.move(bid, BidStep.CANCEL, rejection=rejection)

    def expire(self, bid: RestingBid) -> None:
        """Its start-by has passed; what last stood in its way is kept."""
        last = bid.report
        self.move(bid, BidStep.EXPIRE, rejection=last.rejection, explanation=last.explanation)

    def forget(self, now: Instant) -> None:
        """Drop bids that nothing can concern any more; called with every block."""
        for key in self._ends.due(now):
            bid = self._book.bid(key)
            if bid is not None:
                self._openings.drop(key)
                self._book.drop_bid(bid)

    def _next_look(self, key: BidId) -> Instant | None:
        bid = self._book.bid(key)
        if bid is None:
            return None
        if bid.state is BidState.MATCHED:
            opening = self._openings.of(key)
            assert opening is not None, f"{key} is matched without an opening"
            return opening.posted_at + self._settle_ms
        if bid.state is not BidState.PENDING:
            return None
        end = instant(bid.bid.payload.start_by + 1)
        return min(end, bid.not_before) if bid.not_before else end

    def _forget_at(self, key: BidId) -> Instant | None:
        bid = self._book.bid(key)
        return None if bid is None else instant(bid.bid.payload.start_by + FORGET_S)
