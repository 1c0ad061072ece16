"""The market's log, computed again: every match that its journal implies, and the final state.

Whoever holds the journal gets the same bytes: that is what makes skipping and reordering provable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cloud_gpu.protocol.calls import MatchedOrders, OpenBatch
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import Transact
from cloud_gpu.protocol.orders import AskId, BidId
from cloud_gpu.protocol.units import Instant, Price
from cloud_gpu.protocol.values import Address, Digest, Value
from market.matchmaker import Matchmaker
from market.rules import MatchmakerEvent, RulesSet


class ReplayedMatch(Value, frozen=True, kw_only=True):
    """One match; times in Unix milliseconds."""

    at: Instant
    round: int
    product: int
    price: Price
    buyer: Address
    bid: BidId
    provider: Address
    machine: int
    seq: int
    ask: AskId


class ReplayedState(Value, frozen=True, kw_only=True):
    """Where the journal ends."""

    events: int
    rounds: int
    matches: int
    head: Digest
    """Of the journal's chain of hashes."""
    state: Digest
    """keccak256 of everything that decides what happens next."""


def replay_lines(
    entries: Iterable[tuple[MatchmakerEvent, Instant]], head: Digest
) -> Iterator[bytes]:
    """One line of canonical JSON for each match, then one for the state. Empty: no line."""
    market: Matchmaker | None = None
    events = matches = 0
    for event, now in entries:
        if market is None:
            assert isinstance(event, RulesSet), f"a journal begins with RulesSet, found {event!r}"
            market = Matchmaker(event.rules)
        events += 1
        for effect in market.handle(event, now):
            if isinstance(effect, Transact) and isinstance(effect.call, OpenBatch):
                for entry in effect.call.matches:
                    matches += 1
                    yield to_json(_match(effect.call, entry, now, market.status().rounds))
    if market is not None:
        yield to_json(
            ReplayedState(
                events=events,
                rounds=market.status().rounds,
                matches=matches,
                head=head,
                state=market.state_hash(),
            )
        )


def _match(call: OpenBatch, entry: MatchedOrders, now: Instant, number: int) -> ReplayedMatch:
    ask, bid = entry.ask.payload, entry.bid.payload
    return ReplayedMatch(
        at=now,
        round=number,
        product=call.product,
        price=call.price,
        buyer=bid.buyer,
        bid=bid.id,
        provider=ask.provider,
        machine=ask.index,
        seq=ask.seq,
        ask=ask.id,
    )
