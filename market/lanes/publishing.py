"""What the market publishes of its rounds: what each was given, what it decided, where it stands.

Counts the journal's entries and watches the inbox; decides nothing about matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import PublishRound
from cloud_gpu.protocol.rounds import (
    Arrival,
    ArrivalKind,
    Condition,
    Fill,
    Gone,
    Lane,
    Placed,
    PlacedAsk,
    RoundBody,
    RoundFacts,
    Unmatched,
)
from cloud_gpu.protocol.ties import EntryBatch
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest, keccak256
from market.doors.arrivals import arrival_of
from market.lanes.floor import Floor
from market.lanes.round_lists import RoundLists, RowT
from market.rules import MatchmakerEvent

ENGINE: Final = "1"
"""Raised with every change of what a lane's rule gives."""

WAITING: Final = "waiting"
FORGOTTEN: Final = "forgotten"
ALTERNATIVE: Final = "alternative"
"""Words for a `Gone`, beside the states of orders."""

LANES: Final = {
    ArrivalKind.BID: Lane.ON_DEMAND,
    ArrivalKind.BLOCK: Lane.BLOCK,
    ArrivalKind.FUTURE: Lane.FUTURES,
}
"""Which lane an order that came in waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRows:
    """The rows of one round, as they stand in its lists."""

    orders: Mapping[str, Placed]
    asks: Mapping[str, PlacedAsk] = field(default_factory=dict)
    conditions: Mapping[str, Condition]
    fills: Sequence[Fill]
    unmatched: Sequence[Unmatched]
    why: Callable[[Digest], str]
    """What became of an order that does not take part."""


class _Lane:
    """What was published of a lane, and what came in for it since."""

    def __init__(self) -> None:
        self.lists = RoundLists()
        self.count = 0
        self.entered: set[Digest] = set()


class Publisher:
    """Numbers the rounds of all lanes."""

    def __init__(self) -> None:
        self._lanes = {lane: _Lane() for lane in Lane}
        self._seeds = {lane.entries: ZERO_DIGEST for lane in Lane}
        self._number = 0
        self._entries = self._entries_told = 0
        self._inbox = self._inbox_told = 0
        self._arrivals: list[Arrival] = []
        self._rules = ZERO_DIGEST

    def lists(self, lane: Lane) -> RoundLists:
        """What was published of a lane last."""
        return self._lanes[lane].lists

    def count(self) -> None:
        """One more entry of the journal."""
        self._entries += 1

    def note(self, event: MatchmakerEvent, floor: Floor) -> None:
        """What came out of the inbox, once the market has answered to it."""
        found = arrival_of(event, floor.out, floor.rules, self._entries)
        if found is None or found.inbox <= self._inbox:
            return
        self._inbox = found.inbox
        self._arrivals.append(found)
        lane = LANES.get(found.kind)
        if lane is not None and not found.refused:
            self._lanes[lane].entered.add(found.order)

    def publish(
        self,
        floor: Floor,
        lane: Lane,
        rows: RoundRows,
        batches: list[EntryBatch],
        *,
        owners_min: int = 0,
        verifiers_alive: bool = False,
    ) -> None:
        """A round of a lane is over. Empties `batches`, those that ended since the one before."""
        state, rules = self._lanes[lane], to_json(floor.rules)
        self._number += 1
        state.count += 1
        if batches:
            self._seeds[lane.entries] = batches[-1].seed
        body = self._body(state, rows, batches, "" if self._is_told(rules) else rules.decode())
        facts = RoundFacts(
            domain=floor.rules.domain,
            market=floor.rules.matcher,
            market_id=floor.rules.market_id,
            number=self._number,
            lane=lane,
            batch=state.count,
            at=floor.now,
            journal_from=self._entries_told + 1,
            journal_to=self._entries,
            inbox_from=self._inbox_told + 1,
            inbox_to=self._inbox,
            engine=ENGINE,
            rules=self._rules,
            fee=floor.fee,
            chain_at=floor.at,
            inclusion_s=floor.rules.inclusion_s,
            owners_min=owners_min,
            verifiers_alive=verifiers_alive,
            seed=self._seeds[lane.entries],
            roots=state.lists.roots,
        )
        self._entries_told, self._inbox_told = self._entries, self._inbox
        self._arrivals.clear()
        batches.clear()
        floor.out.append(PublishRound(facts=facts, body=body))

    def _body(
        self, lane: _Lane, rows: RoundRows, batches: Sequence[EntryBatch], rules: str
    ) -> RoundBody:
        lists, placed = lane.lists, rows.orders
        orders, gone = lists.orders.turn(placed)
        left = {*map(Digest.parse, gone), *(key for key in lane.entered if str(key) not in placed)}
        lane.entered.clear()
        asks, asks_gone = lists.asks.turn(rows.asks)
        conditions, conditions_gone = lists.conditions.turn(rows.conditions)
        unmatched, unmatched_gone = lists.unmatched.turn(_by_key(rows.unmatched))
        lists.fills = tuple(sorted(rows.fills, key=lambda fill: fill.key))
        lists.batches, lists.arrivals = tuple(batches), tuple(self._arrivals)
        return RoundBody(
            rules=rules,
            orders=orders,
            orders_gone=tuple(Gone(order=key, why=rows.why(key)) for key in sorted(left)),
            asks=asks,
            asks_gone=asks_gone,
            conditions=conditions,
            conditions_gone=conditions_gone,
            fills=lists.fills,
            unmatched=unmatched,
            unmatched_gone=unmatched_gone,
            batches=lists.batches,
            arrivals=lists.arrivals,
        )

    def _is_told(self, rules: bytes) -> bool:
        before, self._rules = self._rules, keccak256(rules)
        return before == self._rules


def _by_key(rows: Sequence[RowT]) -> dict[str, RowT]:
    return {row.key: row for row in rows}
