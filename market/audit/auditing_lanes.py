"""One lane's part of an audit: its lists, its orders' signatures and ranks, its clearing again.

What all lanes share, and lane C; `auditing_bids` has lanes A and B.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.rounds import (
    AccountCondition,
    Gone,
    PlacedBid,
    PlacedFuture,
    ProductCondition,
    RoundBody,
    RoundFacts,
    SeriesCondition,
)
from cloud_gpu.protocol.ties import EntryBatch, tie_of
from cloud_gpu.protocol.units import Instant, Price, TokenAmount
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from market.audit.differences import Difference, differing
from market.audit.rebuilding import cash_of, resting_future
from market.books.book import RestingBid
from market.books.futures_book import RestingFuture
from market.clearing.futures_covering import clear_covered
from market.doors.futures_door import margin_of
from market.lanes.futures_record import SeriesRound, paired_by, unmatched_of
from market.lanes.round_lists import RoundLists, RowT
from market.rules import MarketRules

_AFTER_A_FILL = (BidState.MATCHED.value, BidState.REJECTED.value)
"""States that an order only comes to when a round has matched it."""

OrderT = TypeVar("OrderT", RestingBid, RestingFuture)


class EntryAudit:
    """The entry batches of one book: what entered, and the tie keys that were drawn for it."""

    def __init__(self) -> None:
        self.seed = ZERO_DIGEST
        """Of the newest batch."""
        self._seeds: dict[Instant, Digest] = {}
        self._subjects: set[tuple[Instant, Digest]] = set()

    def end_batch(self, facts: RoundFacts, batch: EntryBatch) -> Iterator[Difference]:
        """A batch ended."""
        field = f"batches {batch.batch}"
        yield from differing(facts.number, f"{field}.before", batch.before, self.seed)
        yield from differing(
            facts.number, f"{field}.entered", batch.entered, tuple(sorted(set(batch.entered)))
        )
        newest = max(self._seeds, default=-1)
        if not newest < batch.batch <= facts.at:
            span = f"later than {newest}, not after the round"
            yield Difference(facts.number, field, str(batch.batch), span)
        self.seed = self._seeds[batch.batch] = batch.seed
        self._subjects |= {(batch.batch, subject) for subject in batch.entered}

    def tie(
        self, facts: RoundFacts, field: str, batch: Instant, tie: Digest, subject: Digest
    ) -> Iterator[Difference]:
        """Whether the tie key of an order is the one drawn for its subject in its batch."""
        if (batch, subject) not in self._subjects:
            yield Difference(facts.number, f"{field}.batch", str(batch), "the batch it entered in")
            return
        needed = tie_of(self._seeds[batch], subject)
        yield from differing(facts.number, f"{field}.tie", tie, needed)


class LaneAudit(ABC, Generic[OrderT]):
    """What is known of a lane; the part that all lanes share."""

    def __init__(self, entries: EntryAudit) -> None:
        """`entries` of the lane's book, which other lanes may share."""
        self.lists = RoundLists()
        self.count = 0
        self.entered: set[Digest] = set()
        """Orders that came in since the lane's last round."""
        self.orders: dict[str, OrderT] = {}
        """Of the round, checked."""
        self.filled: set[object] = set()
        """Orders and nonces that some round matched."""
        self.entries = entries

    def take(
        self, facts: RoundFacts, body: RoundBody, rules: MarketRules, accepted: set[Digest]
    ) -> Iterator[Difference]:
        """Bring the lists to this round. `accepted` are orders that came out of the inbox."""
        self.count += 1
        for batch in body.batches:
            yield from self.entries.end_batch(facts, batch)
        yield from differing(facts.number, "facts.seed", facts.seed, self.entries.seed)
        yield from self._gone(facts, body)
        try:
            self.lists.apply(body)
        except KeyError as error:
            yield Difference(facts.number, "body", f"{error.args[0]} is gone", "what was there")
        yield from self._entered(facts, body)
        for row in body.orders:
            if Digest.parse(row.key) not in accepted:
                what = "one that came out of the inbox"
                yield Difference(facts.number, f"orders {row.key}", "an order from nowhere", what)
            yield from self._order(facts, row, rules)
        yield from self._fills(facts)

    @abstractmethod
    def clear_again(self, facts: RoundFacts, rules: MarketRules) -> Iterator[Difference]:
        """Whether the lane's rule gives what was published."""

    @abstractmethod
    def _order(
        self, facts: RoundFacts, row: PlacedBid | PlacedFuture, rules: MarketRules
    ) -> Iterator[Difference]:
        """Check an order that took part, and keep it in `orders`."""

    # What came, what left, and what was matched.

    def _entered(self, facts: RoundFacts, body: RoundBody) -> Iterator[Difference]:
        gone, placed = {each.order for each in body.orders_gone}, self.lists.orders.rows
        for order in sorted(self.entered - gone):
            if str(order) not in placed:
                what = "the order that came in, or what became of it"
                yield Difference(facts.number, f"orders {order}", "nothing", what)
        self.entered.clear()

    def _gone(self, facts: RoundFacts, body: RoundBody) -> Iterator[Difference]:
        for each in body.orders_gone:
            if not self._may_be_gone(facts, each):
                what = "took part without a match before: nothing of the kind can follow"
                yield Difference(facts.number, f"orders_gone {each.order}", each.why, what)
            self.orders.pop(str(each.order), None)

    def _may_be_gone(self, facts: RoundFacts, gone: Gone) -> bool:  # noqa: ARG002
        return gone.order in self.filled or gone.why not in _AFTER_A_FILL

    def _fills(self, facts: RoundFacts) -> Iterator[Difference]:
        keys = [fill.key for fill in self.lists.fills]
        needed = sorted(set(keys))
        yield from differing(facts.number, "fills", keys, needed)


class FuturesAudit(LaneAudit[RestingFuture]):
    """Lane C."""

    def __init__(self, entries: EntryAudit) -> None:
        super().__init__(entries)
        self._matched: dict[Digest, int] = {}
        """Units of each order that rounds have matched; not all of them came into contracts."""

    def _order(
        self, facts: RoundFacts, row: PlacedBid | PlacedFuture, rules: MarketRules
    ) -> Iterator[Difference]:
        field = f"orders {row.key}"
        if not isinstance(row, PlacedFuture) or rules.futures_domain is None:
            yield Difference(facts.number, field, "no order of futures", "one")
            return
        order = resting_future(row, rules.futures_domain)
        if isinstance(order, Rejection):
            yield Difference(facts.number, field, str(order), "what its trader signed")
            return
        matcher = order.order.payload.matcher
        yield from differing(facts.number, f"{field}.matcher", matcher, rules.matcher)
        yield from self.entries.tie(facts, field, row.batch, row.tie, order.id)
        most = min(self._matched.get(order.id, 0), order.order.payload.units - 1)
        if not 0 <= row.filled <= most:
            needed = f"0 to {most}, which rounds have matched, and not all of its units"
            yield Difference(facts.number, f"{field}.filled", str(row.filled), needed)
            return
        self.orders[row.key] = order

    def clear_again(self, facts: RoundFacts, rules: MarketRules) -> Iterator[Difference]:
        """See `LaneAudit`."""
        rows = list(self.lists.conditions.rows.values())
        products = {
            row.product.id: row.product for row in rows if isinstance(row, ProductCondition)
        }
        references = {row.series: row.reference for row in rows if isinstance(row, SeriesCondition)}
        cash = cash_of(rows)
        left, cleared = dict(cash), list[SeriesRound]()

        def margin(order: RestingFuture, price: Price, units: int) -> TokenAmount:
            product = products[order.series.product]
            return margin_of(order.order.payload, price, units, rules, product)

        for series, orders in self._by_series():
            if series not in references or series.product not in products:
                field = f"conditions series {series}"
                yield Difference(facts.number, field, "nothing", "its reference and its product")
                return
            clearing, short = clear_covered(references[series], orders, left, margin)
            for pair in clearing.pairs if clearing is not None else ():
                assert clearing is not None
                for order in (pair.buy, pair.sell):
                    trader, need = order.nonce[0], margin(order, clearing.price, pair.units).value
                    left[trader] = left.get(trader, 0) - need  # a margin of nothing needs no row
            cleared.append(SeriesRound(series, orders, references[series], clearing, short))
        fills, unmatched = paired_by(cleared), unmatched_of(cleared)
        yield from same_rows(facts, "fills", by_key(self.lists.fills), by_key(fills))
        yield from same_rows(facts, "unmatched", self.lists.unmatched.rows, by_key(unmatched))
        for row in rows:
            if isinstance(row, AccountCondition):
                field = f"conditions {row.key}.left"
                yield from differing(facts.number, field, row.left, left[row.account])
        for fill in fills:
            self.filled |= {fill.buy, fill.sell}
            for order_id in (fill.buy, fill.sell):
                self._matched[order_id] = self._matched.get(order_id, 0) + fill.units

    def _by_series(self) -> list[tuple[Series, list[RestingFuture]]]:
        found: dict[Series, list[RestingFuture]] = {}
        for order in self.orders.values():
            found.setdefault(order.series, []).append(order)
        return sorted(found.items(), key=lambda item: item[0].key)


def same_rows(
    facts: RoundFacts, name: str, found: Mapping[str, object], needed: Mapping[str, object]
) -> Iterator[Difference]:
    """The first row of a list that is not what it must be."""
    for key in sorted(found.keys() | needed.keys()):
        here, there = found.get(key, "nothing"), needed.get(key, "nothing")
        yield from differing(facts.number, f"{name} {key}", here, there)


def by_key(rows: Iterable[RowT]) -> dict[str, RowT]:
    """Rows as a list has them."""
    return {row.key: row for row in rows}
