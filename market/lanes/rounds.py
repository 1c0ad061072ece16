"""Rounds: when one is open, and what happens when it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import BidFlags
from cloud_gpu.protocol.rounds import Lane
from cloud_gpu.protocol.units import Instant
from market.books.book import Nonce, RestingAsk, RestingBid
from market.books.verifiers import owners_of
from market.clearing.explaining import explain, explain_match
from market.clearing.fitting import Conditions
from market.clearing.on_demand import Clearing, clear
from market.lanes.bids_record import BidsRound, on_demand, rows_of
from market.lanes.floor import Floor
from market.lanes.leasing import openings_for
from market.lanes.publishing import Publisher

EXPLAINED_ASKS_MAX = 100
"""Cheapest asks that are compared with a bid to say what stands in its way: about a millisecond."""

EXPLAINED_BIDS_MAX = 100
"""Bids a round that are told why they wait, new ones first; the others in a later round. As many
matches are told what they passed by."""


class Rounds:
    """The clearing of lane A, round by round."""

    def __init__(self, floor: Floor, publisher: Publisher) -> None:
        self._floor, self._publisher = floor, publisher
        self.count = 0
        self.ends: Instant | None = None
        """When the open round ends; None: nothing to match, no timer."""

    def plan(self) -> None:
        """Open a round if something changed while a bid waits and the chain is heard."""
        floor = self._floor
        if self.ends is None and floor.has_news and floor.book.has_waiting and floor.is_ready:
            self.ends = (floor.now // floor.rules.round_ms + 1) * floor.rules.round_ms

    def end_if_due(self) -> None:
        """Clear the round whose time is over."""
        if self.ends is None or self._floor.now < self.ends:
            return
        self.ends = None
        if self._floor.is_ready:
            self._end()

    def _end(self) -> None:
        floor = self._floor
        floor.book.end_batch()
        floor.has_news = False
        self.count += 1
        floor.shelf.expire(floor.now, floor.at)
        bids = [bid for bid in floor.book.waiting() if bid.not_before <= floor.now]
        asks = {
            product: floor.book.available(product, floor.ledger, floor.at)
            for product in sorted({bid.bid.payload.product for bid in bids})
        }
        given = self.conditions(bids, asks)
        cash = floor.free_cash({bid.nonce[0] for bid in bids})
        busy = self.busy()
        part = [bid for bid in bids if bid.nonce not in busy]
        clearing = clear(bids, asks, cash, busy, given)
        self._post(clearing, asks, given)
        self._explain(clearing, asks, given)
        self._end_one_round(part)
        self.publish(
            Lane.ON_DEMAND,
            BidsRound(
                bids=part,
                asks=asks,
                cash=cash,
                given=given,
                outcome=on_demand(clearing),
                busy=busy,
            ),
        )

    def publish(self, lane: Lane, cleared: BidsRound) -> None:
        """Tell what a clearing of lane A or B was given and gave."""
        floor, told = self._floor, self._publisher.lists(lane)
        self._publisher.publish(
            floor,
            lane,
            rows_of(cleared, floor.book, told),
            floor.book.batches.ended,
            owners_min=cleared.given.owners_min,
            verifiers_alive=cleared.given.verifiers_alive,
        )

    def conditions(
        self, bids: Sequence[RestingBid], asks: Mapping[int, Sequence[RestingAsk]]
    ) -> Conditions:
        """What besides these orders decides about their matches now."""
        floor, products = self._floor, self._floor.ledger.products
        audited = {b.bid.payload.product for b in bids if b.bid.payload.flags & BidFlags.VERIFIED}
        return Conditions(
            at=floor.at,
            inclusion_s=floor.rules.inclusion_s,
            fee=floor.fee,
            products=products,
            bonds={
                ask.machine: floor.ledger.machines[ask.machine].free_bond
                for ladder in asks.values()
                for ask in ladder
            },
            verifiers_alive=floor.verifiers.are_alive(floor.rules, floor.at),
            owners={
                product: owners_of(products[product].gpu_class, floor.ledger)
                for product in sorted(audited)
            },
            owners_min=floor.rules.class_owners_min,
            barred=floor.ledger.barred.keys(),
            attributes=floor.rules.attributes,
        )

    def busy(self) -> frozenset[Nonce]:
        """Nonces that something on its way to the chain uses."""
        on_their_way = self._floor.openings.on_their_way()
        leases = frozenset((found.buyer, found.nonce) for found in on_their_way)
        return leases | self._floor.futures.busy()

    def _post(
        self, clearing: Clearing, asks: Mapping[int, Sequence[RestingAsk]], given: Conditions
    ) -> None:
        floor, taken_at = self._floor, clearing.taken_at
        openings = openings_for(clearing.fills, floor.rules, floor.now)
        matched = {fill.bid.id: fill.bid for fill in clearing.fills}
        why = {}
        for place, opening in enumerate(openings):
            bid = matched[opening.bid]
            # What it passed by is told to so many; why it has its price, to all.
            ladder = compared(bid, asks) if place < EXPLAINED_BIDS_MAX else ()
            why[bid.id] = explain_match(bid, opening.asks, ladder, taken_at, given)
        floor.post(openings, why)

    def _end_one_round(self, part: Sequence[RestingBid]) -> None:
        """What wanted this round or nothing has ended, with what it was told.

        So has what stood back for an alternative: whatever becomes of that one, its round is over.
        """
        for bid in part:
            now = self._floor.book.bid(bid.id)
            if bid.terms.one_round and now is not None and now.state is BidState.PENDING:
                self._floor.answers.expire(now)

    def _explain(
        self, clearing: Clearing, asks: Mapping[int, Sequence[RestingAsk]], given: Conditions
    ) -> None:
        # New bids first (-1), of these whose last round it is, then those whose explanation is
        # oldest; each in order of service.
        bids = sorted(
            clearing.unmatched, key=lambda bid: (bid.explained_in, not bid.terms.one_round)
        )
        taken_at = clearing.taken_at
        for bid in bids[:EXPLAINED_BIDS_MAX]:
            why, how = explain(
                bid, compared(bid, asks), taken_at, given, clearing.short.get(bid.id)
            )
            self._floor.answers.explain(bid, why, how, self.count)
        if any(bid.explained_in < 0 for bid in bids[EXPLAINED_BIDS_MAX:]):
            self._floor.has_news = True


def compared(bid: RestingBid, asks: Mapping[int, Sequence[RestingAsk]]) -> Sequence[RestingAsk]:
    """The cheapest asks of a bid's product, as many as it is told about."""
    return asks[bid.bid.payload.product][: EXPLAINED_ASKS_MAX + bid.bid.payload.count]
