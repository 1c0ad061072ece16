"""The market's log, computed again: every match that its journal implies, and the final state.

Whoever holds the journal gets the same bytes: that is what makes skipping and reordering provable.
What the market told, in reports and published rounds, must be what the journal says, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cloud_gpu.protocol.calls import MatchedOrders, OpenBatch, OpenGang, OpeningCall, pairs_of
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import (
    MarketEffect,
    PublishRound,
    ReportAuction,
    ReportBid,
    ReportCampaign,
    ReportContract,
    ReportFuture,
    ReportLease,
    ReportPledge,
    Transact,
)
from cloud_gpu.protocol.errors import StorageFailed
from cloud_gpu.protocol.events import AskHeard, BidSubmitted, FutureSubmitted
from cloud_gpu.protocol.orders import AskId, BidId
from cloud_gpu.protocol.units import Instant, Price
from cloud_gpu.protocol.values import Address, Digest, Value
from market.audit.replaying_told import (
    ReportsTold,
    RoundsTold,
    StoredRounds,
    Subject,
    first_differing,
    subject_of,
)
from market.matchmaker import Matchmaker
from market.rules import MatchmakerEvent, RulesSet

Entries: TypeAlias = Iterable[tuple[MatchmakerEvent, Instant]]
Reported: TypeAlias = (
    ReportBid
    | ReportLease
    | ReportAuction
    | ReportFuture
    | ReportContract
    | ReportCampaign
    | ReportPledge
)


class ReplayedMatch(Value, frozen=True, kw_only=True):
    """One match; times in Unix milliseconds."""

    at: Instant
    round: int
    """Rounds of lane A so far."""
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
    """Of lane A."""
    orders: int
    """Asks, bids and orders of futures taken in."""
    matches: int
    head: Digest
    """Of the journal's chain of hashes."""
    state: Digest
    """keccak256 of everything that decides what happens next."""
    reports: int
    """Of orders, leases, auctions, contracts and group buys, as the market told them: all the
    same, byte for byte."""
    published: int
    """Rounds: the same, and signed by the market."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What one event led to."""

    market: Matchmaker
    event: MatchmakerEvent
    at: Instant
    effects: list[MarketEffect]


def replay_lines(
    journal: Callable[[], Entries],
    head: Digest,
    told: Mapping[Subject, bytes],
    stored: StoredRounds = StoredRounds(),  # noqa: B008  frozen
) -> Iterator[bytes]:
    """One line of canonical JSON for each match, then one for the state. Empty: no line.

    `stored` are the rounds that were published, `told` has each report that the market told last;
    taken in this order, both before the journal was read: a market that runs may be behind its
    journal, never ahead. Raises StorageFailed with the round and the field where the journal
    contradicts itself or what was told.
    """
    rounds, reports = RoundsTold(stored), ReportsTold(told, has_rounds=stored.newest > 0)
    step: _Step | None = None
    events = orders = matches = 0
    for step in _steps(journal()):
        events += 1
        orders += isinstance(step.event, AskHeard | BidSubmitted | FutureSubmitted)
        for effect in step.effects:
            if isinstance(effect, Transact) and isinstance(effect.call, OpenBatch | OpenGang):
                for entry in pairs_of(effect.call):
                    matches += 1
                    yield to_json(_match(effect.call, entry, step.at, step.market.status().rounds))
            elif isinstance(effect, PublishRound):
                rounds.take(effect)
                if effect.facts.number == stored.newest:
                    reports.seal(stored.newest)
            elif isinstance(effect, Reported):
                reports.take(effect.report)
    rounds.end(events)
    if reports.unproven:
        raise _first_difference(journal(), reports.unproven)
    if step is not None:
        yield to_json(
            ReplayedState(
                events=events,
                rounds=step.market.status().rounds,
                orders=orders,
                matches=matches,
                head=head,
                state=step.market.state_hash(),
                reports=len(told),
                published=stored.newest,
            )
        )


def _steps(entries: Entries) -> Iterator[_Step]:
    market: Matchmaker | None = None
    entry = 0
    try:
        for event, now in entries:
            entry += 1
            if market is None:
                assert isinstance(event, RulesSet), f"a journal begins with RulesSet, not {event!r}"
                market = Matchmaker(event.rules)
            yield _Step(market, event, now, list(market.handle(event, now)))
    except StorageFailed as error:
        raise StorageFailed(f"{_round(market)}, journal.head: {error}") from error
    except AssertionError as error:
        raise StorageFailed(
            f"{_round(market)}, journal.event: no market writes entry {entry}: {error}"
        ) from error


def _round(market: Matchmaker | None) -> str:
    return f"round {1 if market is None else market.status().rounds + 1}"


def _first_difference(entries: Entries, told: Mapping[Subject, bytes]) -> StorageFailed:
    last: dict[Subject, tuple[int, bytes]] = {}
    rounds = 0
    for step in _steps(entries):
        rounds = step.market.status().rounds
        for effect in step.effects:
            if isinstance(effect, Reported) and subject_of(effect.report) in told:
                last[subject_of(effect.report)] = rounds, to_json(effect.report)
    subject = min(told, key=lambda each: (last.get(each, (rounds, b""))[0], each))
    number, needed = last.get(subject, (rounds, b"{}"))
    where = f"round {number}, {' '.join(subject)}"
    if subject not in last:
        return StorageFailed(f"{where}: the market told of it, the journal does not")
    field, found, wanted = first_differing(told[subject], needed)
    return StorageFailed(f"{where}, {field}: the market told {found}, the journal says {wanted}")


def _match(call: OpeningCall, entry: MatchedOrders, now: Instant, number: int) -> ReplayedMatch:
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
