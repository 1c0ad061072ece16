"""Lane C: batches of futures from the order to the contract on chain, or back.

The market proposes, Futures decides. What was proposed ends in one of three ways: the contract
opened, it was refused, or nothing was heard in time. An order is matched while any contract of it
is on its way; when all were answered, what is left of it waits for the next batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from cloud_gpu.protocol.calls import OpenFutures
from cloud_gpu.protocol.effects import ReportFuture, Transact
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.events import FutureSubmitted
from cloud_gpu.protocol.future_reports import FutureReport
from cloud_gpu.protocol.futures import FuturePair, Series
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.rounds import Lane
from cloud_gpu.protocol.units import Instant, Price, TokenAmount, instant
from cloud_gpu.protocol.values import Address, Digest
from market.books.futures_book import FutureOpening, RestingFuture
from market.clearing.futures_clearing import FutureClearing, Pair
from market.clearing.futures_covering import clear_covered
from market.clearing.futures_explaining import BatchTold
from market.doors.futures_door import beside_others, check_future, margin_of, why_dead
from market.lanes.answers import FORGET_S
from market.lanes.floor import Floor
from market.lanes.futures_listing import SeriesListing
from market.lanes.futures_record import SeriesRound, rows_of
from market.lanes.leasing import BidStep, next_bid_state, unanswered
from market.lanes.publishing import Publisher
from market.timers import Timers

PAIRS_MAX = 32
"""Contracts in one transaction: its gas, the entries' spare included, stays below 2^24."""


class FuturesLane:
    """The clearing of lane C, batch by batch."""

    def __init__(self, floor: Floor, publisher: Publisher) -> None:
        self._floor, self._book, self._publisher = floor, floor.futures, publisher
        self._looks: Timers[Digest] = Timers(self._next_look)
        self._ends: Timers[Digest] = Timers(self._forget_at)
        self.listing = SeriesListing(floor)
        self.ends: Instant | None = None
        """When the open batch ends; None: nothing to clear, no timer."""
        self.has_news = False

    @property
    def deadline(self) -> Instant | None:
        """The end of the open batch, or when to look at an order again."""
        return min(
            (when for when in (self.ends, self._looks.first) if when is not None), default=None
        )

    # Orders.

    def admit(self, event: FutureSubmitted) -> None:
        """An order came out of the inbox."""
        floor, key = self._floor, event.order.payload.id
        if self._book.order(key) is not None:
            return
        order = check_future(
            event.order, rules=floor.rules, products=floor.ledger.products, at=floor.at
        )
        if isinstance(order, Rejection):
            self._refuse(key, order)
            return
        resting = RestingFuture(
            id=key,
            order=order,
            series=order.payload.series,
            inbox=event.inbox,
            batch=self._open_batch(),
            report=self._report(key, BidState.PENDING),
        )
        refused = beside_others(
            resting,
            rules=floor.rules,
            ledger=floor.ledger,
            book=self._book,
            in_use=floor.nonces_in_use(order.payload.trader),
            free_cash=floor.free_cash([order.payload.trader]).get(order.payload.trader, 0),
        )
        if refused is not None:
            self._refuse(key, refused)
            return
        self._book.put(resting)
        self._ends.set(key)
        self._looks.set(key)
        floor.out.append(ReportFuture(report=resting.report))
        self.has_news = True

    def withdraw(self, key: Digest) -> None:
        """Its trader does not want it any more."""
        order = self._book.order(key)
        if order is None:
            return
        if order.state is BidState.MATCHED:  # the transaction cannot be called back
            self._put(replace(order, is_withdrawn=True))
        else:
            self.move(order, BidStep.CANCEL)

    def void_spent(self, account: Address) -> None:
        """Some nonces of an account can never open again: end the orders that wait with them."""
        for order in self._book.live_of(account):
            if order.state is BidState.PENDING:
                self._end_if_dead(order)

    def move(
        self,
        order: RestingFuture,
        step: BidStep,
        *,
        rejection: Rejection | None = None,
    ) -> RestingFuture:
        """Take one step of the bids' table; a step that does not apply changes nothing."""
        state = next_bid_state(order.state, step)
        if state is None:
            return order
        return self._put(replace(order, report=self._report(order.id, state, rejection)))

    def follow(self, key: Digest) -> None:
        """Contracts of an order opened, vanished, were matched or failed: where it stands now."""
        order = self._book.order(key)
        if order is None:
            return
        report = self._report(key, order.state, order.report.rejection)
        order = replace(order, report=report)
        if not order.units:
            self._put(_after(order, BidStep.OPEN))
        elif self._book.on_its_way(key):
            self._put(_after(order, BidStep.UNDO, BidStep.MATCH))
        elif order.state is BidState.MATCHED:
            self._go_on(order)
        else:
            self._put(_after(order, BidStep.UNDO))

    def _go_on(self, order: RestingFuture) -> None:
        """All that was matched of it was answered, and units are left."""
        why, failures = order.failed, order.openings + (order.failed is not None)
        order = replace(order, openings=failures, failed=None)
        if failures >= self._floor.rules.openings_max:
            self.move(order, BidStep.REJECT, rejection=why)
        elif order.is_withdrawn:
            self.move(order, BidStep.CANCEL)
        elif self._end_if_dead(order):
            pass
        elif self._last_second(order) < self._floor.at:
            self.move(order, BidStep.EXPIRE, rejection=why)
        else:
            self.move(order, BidStep.RELEASE, rejection=why)

    def _report(
        self, key: Digest, state: BidState, rejection: Rejection | None = None
    ) -> FutureReport:
        contracts, coming = self._floor.ledger.futures.fills_of(key), self._book.on_its_way(key)
        before = self._book.order(key)
        return FutureReport(
            order=key,
            state=state,
            rejection=rejection,
            price=coming[0].price if coming else None,
            units=sum(each.units for each in coming),
            filled=sum(each.units for each in contracts),
            contracts=contracts,
            explanation=None if before is None else before.report.explanation,
        )

    def _put(self, order: RestingFuture) -> RestingFuture:
        before = self._book.order(order.id)
        self._book.put(order)
        self._looks.set(order.id)
        self.has_news = True
        if before is None or before.report != order.report:
            self._floor.out.append(ReportFuture(report=order.report))
        return order

    def _refuse(self, key: Digest, why: Rejection) -> None:
        report = FutureReport(order=key, state=BidState.REJECTED, rejection=why)
        self._floor.out.append(ReportFuture(report=report))

    def _end_if_dead(self, order: RestingFuture) -> bool:
        why = why_dead(order, self._floor.ledger)
        if why is not None:
            self.move(order, BidStep.CANCEL, rejection=why)
        return why is not None

    # Time.

    def pass_time(self) -> None:
        """What is due now: openings to give up, orders to end, the batch."""
        floor = self._floor
        for key in self._looks.due(floor.now):
            for opening in self._book.on_its_way(key):
                if opening.posted_at + floor.rules.settle_ms <= floor.now:
                    self.give_up(opening, unanswered(floor.rules))
            order = self._book.order(key)
            if order is None:
                continue
            if order.state is BidState.PENDING and self._last_second(order) < floor.at:
                self.move(order, BidStep.EXPIRE, rejection=order.report.rejection)
        if self.ends is not None and floor.now >= self.ends:
            self.ends = None
            if floor.is_ready:
                self._end()

    def reset(self) -> None:
        """The rules changed: look at everything again."""
        self.ends, self.has_news = None, True
        for order in self._book.orders():
            self._looks.set(order.id)

    def plan(self) -> None:
        """Open a batch if something changed while an order waits and the chain is heard."""
        floor = self._floor
        is_wanted = self.has_news and self._book.has_waiting
        if self.ends is None and is_wanted and floor.is_ready:
            length = floor.rules.futures_batch_ms
            self.ends = (floor.now // length + 1) * length

    def forget(self) -> None:
        """Drop orders that nothing can concern any more; called with every block."""
        for key in self._ends.due(self._floor.now):
            self._book.drop(key)
            for opening in self._book.openings_of(key):
                if all(self._book.order(side) is None for side in (opening.buy, opening.sell)):
                    self._book.drop_opening(opening)

    def _open_batch(self) -> Instant:
        length, now = self._floor.rules.futures_batch_ms, self._floor.now
        return self._book.batch_for(now - now % length)

    def _last_second(self, order: RestingFuture) -> int:
        return min(order.order.payload.start_by, order.series.deadline(self._floor.rules.futures))

    def _next_look(self, key: Digest) -> Instant | None:
        order = self._book.order(key)
        if order is None:
            return None
        if coming := self._book.on_its_way(key):
            return min(each.posted_at for each in coming) + self._floor.rules.settle_ms
        is_pending = order.state is BidState.PENDING
        return instant(self._last_second(order) + 1) if is_pending else None

    def _forget_at(self, key: Digest) -> Instant | None:
        order = self._book.order(key)
        return None if order is None else instant(order.order.payload.start_by + FORGET_S)

    # A batch.

    def _end(self) -> None:
        floor = self._floor
        self._book.end_batch()
        self.has_news = False
        parts = {series: self._able(orders) for series, orders in self._book.waiting().items()}
        traders = {order.nonce[0] for able in parts.values() for order in able}
        cash, cleared = floor.free_cash(traders), list[SeriesRound]()
        for series, able in parts.items():
            trade = floor.ledger.futures.trades.get(series.key)
            reference = trade.price if trade is not None else None
            clearing, short = clear_covered(reference, able, floor.free_cash(traders), self._margin)
            covered = [order for order in able if order.id not in short]
            told = BatchTold(covered, clearing, reference)
            if clearing is not None:
                self._post(series, clearing, told)
            for order in able:
                self._explain(order, told, short)
            cleared.append(SeriesRound(series, able, reference, clearing, short))
        self.listing.tell_depth()
        rows = rows_of(cleared, cash, floor.free_cash(traders), floor)
        self._publisher.publish(floor, Lane.FUTURES, rows, self._book.batches.ended)

    def _able(self, orders: Sequence[RestingFuture]) -> list[RestingFuture]:
        soonest = self._floor.at + self._floor.rules.inclusion_s
        return [order for order in orders if self._last_second(order) >= soonest]

    def _margin(self, order: RestingFuture, price: Price, units: int) -> TokenAmount:
        product = self._floor.ledger.products[order.series.product]
        return margin_of(order.order.payload, price, units, self._floor.rules, product)

    def _post(self, series: Series, clearing: FutureClearing, told: BatchTold) -> None:
        floor, price = self._floor, clearing.price
        for start in range(0, len(clearing.pairs), PAIRS_MAX):
            part = clearing.pairs[start : start + PAIRS_MAX]
            call = OpenFutures(series=series, price=price, pairs=tuple(_signed(p) for p in part))
            for pair in part:
                sides = pair.buy, pair.sell
                locked = tuple((o.nonce[0], self._margin(o, price, pair.units)) for o in sides)
                self._book.put_opening(
                    FutureOpening(
                        buy=pair.buy.id,
                        sell=pair.sell.id,
                        matched_at=floor.now,
                        price=price,
                        units=pair.units,
                        locked=locked,
                        call=call,
                        posted_at=floor.now,
                    )
                )
            floor.out.append(Transact(call=call))
        for side in {s.id: s for pair in clearing.pairs for s in (pair.buy, pair.sell)}.values():
            report = msgspec.structs.replace(side.report, explanation=told.why_price(side))
            self._book.put(replace(side, report=report))
            self.follow(side.id)

    def _explain(
        self, order: RestingFuture, told: BatchTold, short: dict[Digest, Rejection]
    ) -> None:
        now = self._book.order(order.id)
        if now is None or now.state is not BidState.PENDING:
            return
        why, how = (short[order.id], None) if order.id in short else told.why_left(order)
        if why != now.report.rejection:
            report = self._report(now.id, now.state, why)
            self._put(replace(now, report=msgspec.structs.replace(report, explanation=how)))

    # Failures.

    def give_up(self, opening: FutureOpening, why: Rejection) -> None:
        """An opening came to nothing: its units of both orders are free again."""
        self._book.drop_opening(opening)
        for key in (opening.buy, opening.sell):
            order = self._book.order(key)
            if order is not None:
                self._book.put(replace(order, failed=why))
                self.follow(key)


def _after(order: RestingFuture, *steps: BidStep) -> RestingFuture:
    """The order after those of the steps that apply."""
    state = order.state
    for step in steps:
        state = next_bid_state(state, step) or state
    rejection = order.report.rejection if state is order.state else None
    report = msgspec.structs.replace(order.report, state=state, rejection=rejection)
    return replace(order, report=report)


def _signed(pair: Pair) -> FuturePair:
    return FuturePair(buy=pair.buy.order.signed, sell=pair.sell.order.signed, units=pair.units)
