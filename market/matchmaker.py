"""The matchmaker: a party over verified orders and chain events, the single writer of the book.

What arrives within a round is matched together when the round ends; the matches go to the chain,
and their capacity is held until it answers. Knows no database, no HTTP and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cloud_gpu.protocol.audit_messages import SignedVerifierNotice
from cloud_gpu.protocol.effects import (
    ListProduct,
    MarketEffect,
    ReportBid,
    ReportFuture,
    ReportLease,
    Transact,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import (
    AskHeard,
    BidSubmitted,
    BidWithdrawn,
    CampaignSubmitted,
    DeadlinePassed,
    FutureSubmitted,
    PledgeSubmitted,
    VerifierHeard,
)
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.units import BasisPoints, Instant, instant
from cloud_gpu.protocol.values import Digest
from market.books.book import RestingAsk, RestingBid
from market.doors.intake import check_bid
from market.lanes.block_auctions import BlockAuctions
from market.lanes.floor import Floor
from market.lanes.futures_lane import FuturesLane
from market.lanes.futures_outcomes import FutureOutcomes
from market.lanes.group_lane import GroupLane
from market.lanes.group_outcomes import GroupOutcomes
from market.lanes.group_pledging import Pledging
from market.lanes.indexing import Indexing
from market.lanes.keeping import Keeper
from market.lanes.leasing import BidStep, calls_of, unanswered
from market.lanes.outcomes import Outcomes
from market.lanes.promised_nodes import PromisedNodes
from market.lanes.publishing import Publisher
from market.lanes.rounds import Rounds
from market.rules import MarketRules, MatchmakerEvent, RulesSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketStatus:
    """How the market stands, for health and metrics."""

    block: int
    """The newest one followed; -1: none yet."""
    chain_at: int
    """Unix seconds of the newest block."""
    rounds: int
    """Of lane A, cleared."""
    waiting: int
    """Bids without a match."""
    asks: int
    """On offer."""
    openings: int
    """On their way to the chain."""
    inbox: int
    """The last position handled."""
    fee: BasisPoints
    is_registered: bool

    @property
    def followed(self) -> int | None:
        """Up to which block the chain need not be told again."""
        return None if self.block < 0 else self.block


class Matchmaker:
    """Clears orders in rounds. Same events at the same times: same effects, same state."""

    def __init__(self, rules: MarketRules) -> None:
        self._floor = Floor(rules)
        self._publisher = Publisher()
        self._rounds = Rounds(self._floor, self._publisher)
        self._blocks = BlockAuctions(self._floor, self._rounds)
        self._futures = FuturesLane(self._floor, self._publisher)
        self._contracts = FutureOutcomes(self._floor, self._futures)
        self._keeper, self._pledges = Keeper(self._floor), Pledging(self._floor)
        self._groups = GroupLane(self._floor, self._pledges)
        groups = GroupOutcomes(self._floor, self._groups, self._pledges)
        self._outcomes = Outcomes(self._floor, self._contracts, groups, self._keeper)
        self._indexing = Indexing(self._floor)
        self._nodes = PromisedNodes(self._floor)
        self._inbox = 0

    @property
    def rules(self) -> MarketRules:
        """In force now."""
        return self._floor.rules

    @property
    def deadline(self) -> Instant | None:
        """The end of an open round, or when to look at an order again. None: nothing waits."""
        parts = (self._floor.answers, self._blocks, self._futures, self._groups, self._keeper)
        times = (self._rounds.ends, *(part.deadline for part in parts))
        return min((when for when in times if when is not None), default=None)

    def handle(self, event: MatchmakerEvent, now: Instant) -> Sequence[MarketEffect]:
        """See `Party`. What was due before `now` happens before the event."""
        floor = self._floor
        floor.out.clear()
        floor.now = max(floor.now, now)
        self._publisher.count()
        self._pass_time()
        match event:
            case DeadlinePassed():
                pass
            case RulesSet():
                self._set_rules(event.rules)
            case AskHeard():
                self._hear(event.advert)
            case VerifierHeard():
                self._hear_verifier(event.notice)
            case BidSubmitted():
                self._admit(event)
            case BidWithdrawn():
                self._withdraw(event)
            case FutureSubmitted():
                self._inbox = max(self._inbox, event.inbox)
                self._futures.admit(event)
            case CampaignSubmitted():
                self._inbox = max(self._inbox, event.inbox)
                self._groups.admit(event)
            case PledgeSubmitted():
                self._inbox = max(self._inbox, event.inbox)
                self._pledges.admit(event)
            case _:
                self._outcomes.apply(event)
                self._nodes.follow(event)
        self._publisher.note(event, floor)
        self._indexing.advance()
        self._rounds.plan()
        self._blocks.plan()
        self._futures.plan()
        self._groups.plan()
        self._keeper.plan()
        return list(floor.out)

    # Questions; they change nothing.

    def status(self) -> MarketStatus:
        """How the market stands."""
        floor = self._floor
        return MarketStatus(
            block=floor.ledger.block,
            chain_at=floor.ledger.at,
            rounds=self._rounds.count,
            waiting=floor.book.waiting_count,
            asks=floor.shelf.listed_count,
            openings=sum(1 for _ in floor.openings.on_their_way()),
            inbox=self._inbox,
            fee=floor.fee,
            is_registered=floor.is_registered,
        )

    def examine(self, advert: SignedAdvert, now: Instant) -> Rejection | None:
        """Why hearing this advert would change nothing; None: it is worth an event."""
        floor, at = self._floor, self._floor.at_time(now)
        if self._groups.is_for_groups(advert):
            asked = self._groups.examine(advert, at)
            return asked if isinstance(asked, Rejection) else None
        if self._nodes.is_meant(advert):
            return self._nodes.examine(advert, at)
        found = floor.shelf.examine(advert, rules=floor.rules, at=at, batch=0)
        return found if isinstance(found, Rejection) else None

    def examine_notice(self, notice: SignedVerifierNotice, now: Instant) -> bool:
        """Whether hearing this notice would change anything."""
        floor = self._floor
        return floor.verifiers.is_news(notice, floor.rules, floor.at_time(now))

    def adverts(self) -> list[SignedAdvert]:
        """What is on offer, by machine."""
        return [listed.advert for listed in self._floor.shelf.listed()]

    def restated(self) -> list[MarketEffect]:
        """The effects that bring an outside world in line that may have missed some.

        After a restart the journal says what was decided, not what was carried out.
        """
        floor = self._floor
        products, leases = (
            sorted(floor.ledger.products.items()),
            sorted(floor.ledger.leases.items()),
        )
        effects: list[MarketEffect] = [ListProduct(product=product) for _, product in products]
        effects += floor.shelf.listed()
        effects += [ReportLease(report=report) for _, report in leases]
        effects += [ReportBid(report=bid.report) for bid in floor.book.bids()]
        effects += [ReportFuture(report=each.report) for each in floor.futures.orders()]
        effects += self._contracts.restated()
        effects += self._futures.listing.restated()
        effects += self._nodes.restated()
        effects += self._groups.restated()
        effects += self._indexing.restated()
        effects += self._blocks.restated()
        effects += [Transact(call=call) for call in calls_of(list(floor.openings.on_their_way()))]
        calls = (*floor.futures.calls(), *self._groups.calls(), *self._keeper.calls())
        return effects + [Transact(call=call) for call in calls]

    def state_hash(self) -> Digest:
        """keccak256 of all that decides what happens next."""
        floor = self._floor
        return floor.book.state_hash(
            floor.rules,
            floor.openings.rows(),
            floor.shelf.rows(),
            floor.verifiers.rows(),
            [[name, rows] for name, rows in floor.ledger.rows()],
            [floor.futures.rows(), self._futures.ends, self._futures.has_news, self._nodes.rows()],
            [floor.groups.rows(), self._groups.rows(), self._keeper.rows()],
            self._indexing.rows(),
            self._blocks.rows(),
            [floor.now, floor.has_news, self._rounds.ends, self._rounds.count, self._inbox],
        )

    # Time and rules.

    def _pass_time(self) -> None:
        floor = self._floor
        for bid in floor.answers.due(floor.now):
            opening = floor.openings.of(bid.id)
            if bid.state is BidState.MATCHED and opening is not None:
                floor.give_up(opening, unanswered(floor.rules))
            elif bid.bid.payload.start_by < floor.at:
                floor.answers.expire(bid)
            else:  # its time to wait after a failure is over
                floor.answers.put(replace(bid, not_before=0))
                floor.has_news = True
        self._rounds.end_if_due()
        self._blocks.pass_time()
        self._futures.pass_time()

    def _set_rules(self, rules: MarketRules) -> None:
        floor = self._floor
        assert rules.identity == floor.rules.identity, "a journal belongs to one market"
        floor.rules = rules
        floor.answers.set_patience(rules.settle_ms)
        self._rounds.ends = None
        self._blocks.reset()
        floor.has_news = True
        self._futures.reset()
        self._groups.look_at_all()

    # Orders.

    def _hear(self, advert: SignedAdvert) -> None:
        floor = self._floor
        if self._groups.is_for_groups(advert):
            self._groups.hear(advert)
            return
        if self._nodes.is_meant(advert):
            self._nodes.hear(advert)
            return
        ask = floor.shelf.examine(advert, rules=floor.rules, at=floor.at, batch=floor.batch())
        if isinstance(ask, RestingAsk):
            floor.shelf.put(ask, floor.at)
            floor.has_news = True

    def _hear_verifier(self, notice: SignedVerifierNotice) -> None:
        floor = self._floor
        if floor.verifiers.is_news(notice, floor.rules, floor.at):
            floor.verifiers.hear(notice)
            floor.has_news = True

    def _admit(self, event: BidSubmitted) -> None:
        floor = self._floor
        self._inbox = max(self._inbox, event.inbox)
        key = event.order.bid.payload.id
        if floor.book.bid(key) is not None:
            return
        bid = check_bid(
            event.order,
            rules=floor.rules,
            products=floor.ledger.products,
            fee=floor.fee,
            at=floor.at,
        )
        if isinstance(bid, Rejection):
            floor.answers.refuse(key, bid)
            return
        resting = RestingBid(
            id=key,
            bid=bid,
            terms=event.order.terms,
            inbox=event.inbox,
            batch=floor.batch(),
            not_before=instant(event.order.terms.start_from),
            report=BidReport(bid=key, state=BidState.PENDING),
        )
        refused = self._beside_others(resting)
        if refused is not None:
            floor.answers.refuse(key, refused)
            return
        floor.answers.enter(resting)
        floor.has_news = True

    def _beside_others(self, bid: RestingBid) -> Rejection | None:
        floor, (buyer, nonce) = self._floor, bid.nonce
        if floor.ledger.is_void(buyer, nonce):
            return Rejection(
                reason=RejectReason.NONCE_USED,
                field="bid.nonce",
                found=str(nonce),
                needed="a nonce that is neither opened nor voided",
                next="Sign the bid with the account's next free nonce.",
            )
        if floor.book.live_count(buyer) >= floor.rules.bids_per_account_max:
            return Rejection(
                reason=RejectReason.RATE_LIMITED,
                field="bid.nonce",
                found=f"{floor.book.live_count(buyer)} live bids of its account",
                needed=f"fewer than {floor.rules.bids_per_account_max}",
                next="Cancel some, or wait until some ended.",
            )
        return None

    def _withdraw(self, event: BidWithdrawn) -> None:
        self._inbox = max(self._inbox, event.inbox)
        bid = self._floor.book.bid(event.bid)
        if bid is None:
            self._futures.withdraw(event.bid)
        elif bid.state is BidState.MATCHED:  # the transaction cannot be called back
            self._floor.answers.put(replace(bid, is_withdrawn=True))
        else:
            self._floor.answers.move(bid, BidStep.CANCEL)
