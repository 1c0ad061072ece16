"""The floor: all that the matchmaker's parts work on together, and the time it is there.

A part is a class over a floor: `Rounds` matches, `Outcomes` follows what the chain made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cloud_gpu.protocol.effects import MarketEffect, Transact
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.match import BidState, Explanation
from cloud_gpu.protocol.orders import BidId
from cloud_gpu.protocol.units import BasisPoints, Instant, instant, unix_seconds
from cloud_gpu.protocol.values import Address
from market.books.book import Book, Nonce
from market.books.futures_book import FuturesBook
from market.books.ledger import Ledger
from market.books.verifiers import Verifiers
from market.doors.shelf import Shelf
from market.lanes.answers import Answers
from market.lanes.group_book import GroupBook
from market.lanes.leasing import BidStep, Blame, Opening, Openings, calls_of, retry_after
from market.rules import MarketRules


class Floor:
    """The market's whole state, but for the rounds' own."""

    def __init__(self, rules: MarketRules) -> None:
        self.rules = rules
        self.out: list[MarketEffect] = []
        self.book, self.openings, self.futures = Book(), Openings(), FuturesBook()
        self.groups = GroupBook()
        self.ledger = Ledger(rules.bond_unit)
        self.shelf = Shelf(self.book, self.ledger, self.out)
        self.answers = Answers(self.book, self.openings, rules.settle_ms, self.out)
        self.verifiers = Verifiers()
        self.now: Instant = 0
        self.has_news = False
        """Something changed that may make a match."""

    @property
    def at(self) -> int:
        """Unix seconds: the later of our clock and the chain's, which decides about orders."""
        return self.at_time(self.now)

    def at_time(self, now: Instant) -> int:
        """The same for another reading of our clock."""
        return max(unix_seconds(now), self.ledger.at)

    @property
    def fee(self) -> BasisPoints:
        """This market's share of what providers are paid."""
        return self.ledger.fee_of(self.rules.market_id)

    @property
    def is_registered(self) -> bool:
        """Whether LeaseBook knows this market."""
        return self.rules.market_id == 0 or self.rules.market_id in self.ledger.markets

    @property
    def is_ready(self) -> bool:
        """Whether the chain was heard of lately enough to match against it."""
        return self.is_registered and self.now - instant(self.ledger.at) <= self.rules.silence_ms

    def free_cash(self, accounts: Iterable[Address]) -> dict[Address, int]:
        """Of those that are registered, less what openings on their way will lock; base units."""
        cash = self.ledger.cash
        locking = self.openings.locking(), self.futures.locking(), self.groups.locking()
        return {
            account: max(0, cash[account] - sum(each.get(account, 0) for each in locking))
            for account in accounts
            if account in cash
        }

    def nonces_in_use(self, account: Address) -> set[Nonce]:
        """Of its orders of all lanes, and pledges, that wait or are on their way to the chain."""
        of_bids = {each.nonce for each in self.book.live_of(account)}
        of_futures = {each.nonce for each in self.futures.live_of(account)}
        return of_bids | of_futures | self.groups.nonces_of(account)

    def batch(self) -> Instant:
        """The entry batch of what comes now; closes the one before."""
        return self.book.batch_for(self.now - self.now % self.rules.round_ms)

    def post(self, openings: Sequence[Opening], why: Mapping[BidId, Explanation]) -> None:
        """Hold the machines of matches, tell their bids `why`, and send what opens them."""
        for opening in openings:
            bid = self.book.bid(opening.bid)
            assert bid is not None, opening.bid
            for ask in opening.asks:
                self.book.hold(ask.machine, opening.bid)
            self.openings.put(opening)
            self.answers.move(
                bid,
                BidStep.MATCH,
                price=opening.price,
                adverts=opening.adverts,
                explanation=why.get(opening.bid),
            )
            for ask in opening.asks:
                self.shelf.sync(ask.machine, self.at)
        self.out += [Transact(call=call) for call in calls_of(openings)]

    def give_up(
        self, opening: Opening, why: Rejection, blame: Blame = Blame.NOBODY, refused: int = 0
    ) -> None:
        """An opening came to nothing: free what it held; its bid waits again, or ends.

        `refused` says which of its asks is to blame, if one is.
        """
        self.drop_opening(opening)
        if blame is Blame.ASK:
            self.shelf.refuse(opening.asks[refused], self.at)
        self.has_news = True
        bid = self.book.bid(opening.bid)
        if bid is None or bid.state is not BidState.MATCHED:
            return
        failures = bid.openings + (blame is not Blame.ASK)
        if blame is Blame.BID or failures >= self.rules.openings_max:
            self.answers.move(bid, BidStep.REJECT, rejection=why)
        elif bid.is_withdrawn:
            self.answers.move(bid, BidStep.CANCEL)
        elif self.ledger.is_void(*bid.nonce):
            self.answers.void(bid)
        elif bid.terms.one_round or bid.bid.payload.start_by < self.at:
            self.answers.move(bid, BidStep.EXPIRE, rejection=why)
        else:  # it waits again, with its age, for a while first
            not_before = self._retry_at(blame, failures)
            bid = replace(bid, openings=failures, not_before=not_before)
            self.answers.move(bid, BidStep.RELEASE, rejection=why)

    def drop_opening(self, opening: Opening) -> None:
        """Forget an opening and free the machines that it holds."""
        self.openings.drop(opening.bid)
        for ask in opening.asks:
            self.book.release(ask.machine, opening.bid)
            self.shelf.sync(ask.machine, self.at)

    def _retry_at(self, blame: Blame, failures: int) -> Instant:
        return 0 if blame is Blame.ASK else retry_after(failures, self.rules, self.now)
