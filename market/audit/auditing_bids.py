"""Lanes A and B in an audit: their bids and asks checked, their clearings computed again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.rounds import (
    Gone,
    PlacedAsk,
    PlacedBid,
    PlacedFuture,
    RoundBody,
    RoundFacts,
)
from cloud_gpu.protocol.ties import subject_of_ask, subject_of_bid
from cloud_gpu.protocol.units import instant
from cloud_gpu.protocol.values import Address, Digest
from market.audit.auditing_lanes import EntryAudit, LaneAudit, by_key, same_rows
from market.audit.differences import Difference, differing
from market.audit.rebuilding import cash_of, conditions_of, resting_ask, resting_bid
from market.books.book import RestingAsk, RestingBid
from market.clearing.block import clear_block, seed_of, window_of
from market.clearing.fitting import Conditions
from market.clearing.on_demand import clear
from market.lanes.bids_record import Outcome, accounts_of, auctioned, on_demand
from market.lanes.publishing import FORGOTTEN, WAITING
from market.rules import MarketRules


class BidsAudit(LaneAudit[RestingBid]):
    """What lanes A and B share."""

    takes_blocks: ClassVar[bool]

    def __init__(self, entries: EntryAudit) -> None:
        super().__init__(entries)
        self.asks: dict[str, RestingAsk] = {}

    def take(
        self, facts: RoundFacts, body: RoundBody, rules: MarketRules, accepted: set[Digest]
    ) -> Iterator[Difference]:
        """See `LaneAudit`."""
        yield from super().take(facts, body, rules, accepted)
        for key in body.asks_gone:
            self.asks.pop(key, None)
        for row in body.asks:
            yield from self._ask(facts, row, rules)

    def _order(
        self, facts: RoundFacts, row: PlacedBid | PlacedFuture, rules: MarketRules
    ) -> Iterator[Difference]:
        field = f"orders {row.key}"
        if not isinstance(row, PlacedBid):
            yield Difference(facts.number, field, "an order of futures", "a bid")
            return
        bid = resting_bid(row, rules.domain)
        if not isinstance(bid, RestingBid):
            found = str(bid) if isinstance(bid, Rejection) else "other terms"
            yield Difference(facts.number, field, found, "what its buyer signed")
            return
        yield from differing(
            facts.number, f"{field}.matcher", bid.bid.payload.matcher, rules.matcher
        )
        yield from differing(
            facts.number, f"{field}.terms.block", bid.terms.block, self.takes_blocks
        )
        if instant(bid.terms.start_from) > facts.at:
            needed = f"a round from {bid.terms.start_from} on"
            yield Difference(facts.number, f"{field}.terms.start_from", str(facts.at), needed)
        subject = subject_of_bid(bid.bid.payload, bid.terms)
        yield from self.entries.tie(facts, field, row.batch, row.tie, subject)
        self.orders[row.key] = bid

    def _ask(self, facts: RoundFacts, row: PlacedAsk, rules: MarketRules) -> Iterator[Difference]:
        field, ask = f"asks {row.key}", resting_ask(row, rules.domain)
        if isinstance(ask, Rejection):
            yield Difference(facts.number, field, str(ask), "what its provider signed")
            return
        payload = ask.ask.payload
        yield from differing(facts.number, f"{field}.matcher", payload.matcher, rules.matcher)
        yield from self.entries.tie(facts, field, row.batch, row.tie, subject_of_ask(payload))
        self.asks[row.key] = ask

    def _may_be_gone(self, facts: RoundFacts, gone: Gone) -> bool:
        bid = self.orders.get(str(gone.order))
        if bid is None or gone.order in self.filled:
            return super()._may_be_gone(facts, gone)
        payload = bid.bid.payload
        match gone.why:
            case "expired":
                return payload.start_by < facts.chain_at or bid.terms.one_round
            case _ if gone.why == FORGOTTEN:
                return payload.start_by < facts.chain_at
            case _ if gone.why == WAITING:  # only after an opening of it failed
                return False
            case _:
                return super()._may_be_gone(facts, gone)

    def clear_again(self, facts: RoundFacts, rules: MarketRules) -> Iterator[Difference]:
        """See `LaneAudit`."""
        rows = list(self.lists.conditions.rows.values())
        given, cash = conditions_of(facts, rules, rows), cash_of(rows)
        bids = sorted(self.orders.values(), key=lambda bid: (bid.rank, bid.id))
        asks = self.ladders({bid.bid.payload.product for bid in bids})
        missing = [a for ladder in asks.values() for a in ladder if a.machine not in given.bonds]
        if missing:
            field = f"conditions machine {missing[0].machine}"
            yield Difference(facts.number, field, "nothing", "its free bond")
            return
        unknown = [product for product in asks if product not in given.products]
        if unknown:
            field = f"conditions product {unknown[0]}"
            yield Difference(facts.number, field, "nothing", "what the chain says of it")
            return
        try:
            outcome = self.outcome_of(facts, rules, bids, asks, cash, given)
        except ValueError as error:
            yield Difference(facts.number, "orders", str(error), "bids that could take part")
            return
        yield from same_rows(facts, "fills", by_key(self.lists.fills), by_key(outcome.taken))
        unmatched = by_key(outcome.unmatched)
        yield from same_rows(facts, "unmatched", self.lists.unmatched.rows, unmatched)
        buyers = {bid.nonce[0] for bid in bids}
        accounts = by_key(accounts_of(buyers, cash, outcome.fills))
        told = {key: row for key, row in self.lists.conditions.rows.items() if key in accounts}
        yield from same_rows(facts, "conditions", told, accounts)
        for fill in outcome.fills:
            self.filled |= {fill.bid.id, fill.bid.nonce}

    @abstractmethod
    def outcome_of(
        self,
        facts: RoundFacts,
        rules: MarketRules,
        bids: Sequence[RestingBid],
        asks: Mapping[int, Sequence[RestingAsk]],
        cash: Mapping[Address, int],
        given: Conditions,
    ) -> Outcome:
        """What the lane's rule gives."""

    def ladders(self, products: set[int]) -> dict[int, list[RestingAsk]]:
        """The asks of some products, cheapest first."""
        found: dict[int, list[RestingAsk]] = {product: [] for product in sorted(products)}
        for ask in sorted(self.asks.values(), key=lambda ask: (ask.rank, ask.machine)):
            if ask.ask.payload.product in found:
                found[ask.ask.payload.product].append(ask)
        return found


class OnDemandAudit(BidsAudit):
    """Lane A."""

    takes_blocks = False

    def outcome_of(
        self,
        facts: RoundFacts,  # noqa: ARG002
        rules: MarketRules,  # noqa: ARG002
        bids: Sequence[RestingBid],
        asks: Mapping[int, Sequence[RestingAsk]],
        cash: Mapping[Address, int],
        given: Conditions,
    ) -> Outcome:
        """See `BidsAudit`."""
        return on_demand(clear(bids, asks, cash, frozenset(), given))


class BlockAudit(BidsAudit):
    """Lane B."""

    takes_blocks = True

    def __init__(self, entries: EntryAudit) -> None:
        super().__init__(entries)
        self._window = -1
        """Of the newest auction: whoever may hold a second one in a window draws its luck again."""

    def take(
        self, facts: RoundFacts, body: RoundBody, rules: MarketRules, accepted: set[Digest]
    ) -> Iterator[Difference]:
        """See `LaneAudit`."""
        window = window_of(facts.at, rules.block_s)
        if window <= self._window:
            needed = f"a window after {self._window}, whose auction was held"
            yield Difference(facts.number, "facts.at", f"{facts.at}, in window {window}", needed)
        self._window = window
        yield from super().take(facts, body, rules, accepted)

    def outcome_of(
        self,
        facts: RoundFacts,
        rules: MarketRules,
        bids: Sequence[RestingBid],
        asks: Mapping[int, Sequence[RestingAsk]],
        cash: Mapping[Address, int],
        given: Conditions,
    ) -> Outcome:
        """See `BidsAudit`."""
        length = rules.block_s
        seed = seed_of(facts.seed, window_of(facts.at, length), bids, asks)
        return auctioned(clear_block(bids, asks, cash, given, block_s=length, seed=seed))
