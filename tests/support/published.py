"""What a test's market publishes: its journal run again, signed and chained as by the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import MarketEffect, PublishRound
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.receipts import Receipt, SignedReceipt
from cloud_gpu.protocol.rounds import Lane, PublishedRound, RoundBody, RoundHeader
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from market.audit.auditing import Auditor
from market.audit.differences import Difference
from market.audit.proving import Prover
from market.lanes.round_lists import RoundLists
from market.matchmaker import Matchmaker
from market.receipts import header_signer, receipt_signer
from market.rules import MarketRules, MatchmakerEvent, RulesSet
from market.store.journal import FIRST_HEAD, next_head
from tests.unit.market.builders import DOMAIN, MARKET_KEY, NOW, RULES, Desk

Entry = tuple[MatchmakerEvent, Instant]


def journal_of(desk: Desk, rules: MarketRules = RULES) -> list[Entry]:
    """As the runner writes it."""
    return [(RulesSet(rules=rules), NOW), *desk.log]


def effects_of(journal: Iterable[Entry]) -> list[MarketEffect]:
    """What a market does that handles it."""
    market = Matchmaker(RULES)
    return [effect for event, now in journal for effect in market.handle(event, now)]


def published(journal: Sequence[Entry], signer: Signer = MARKET_KEY) -> list[PublishedRound]:
    """Every round of a journal."""
    first, sign = journal[0][0], header_signer(signer)
    assert isinstance(first, RulesSet)
    market = Matchmaker(first.rules)
    head, before, found = FIRST_HEAD, ZERO_DIGEST, []
    for event, now in journal:
        head = next_head(head, now, to_json(event))
        for effect in market.handle(event, now):
            if isinstance(effect, PublishRound):
                header = RoundHeader(facts=effect.facts, before=before, journal_head=head)
                before = header.id
                found.append(PublishedRound(header=sign(header), body=effect.body))
    return found


def receipt_of(
    order: Digest, inbox: int, at: Instant = NOW, signer: Signer = MARKET_KEY
) -> SignedReceipt:
    """As a market answers for an order that came alone."""
    receipt = Receipt(order=order, inbox=inbox, received_at=at)
    return from_json(receipt_signer(signer, DOMAIN)([receipt])[0], SignedReceipt)


def resealed(
    rounds: Sequence[PublishedRound],
    change: Callable[[int, RoundBody], RoundBody] = lambda _, body: body,
    *,
    facts: Mapping[str, object] | None = None,
    signer: Signer = MARKET_KEY,
) -> list[PublishedRound]:
    """A market that cheats: other bodies or facts, under roots and signatures that fit them."""
    lists: dict[Lane, RoundLists] = {lane: RoundLists() for lane in Lane}
    before, found = ZERO_DIGEST, []
    for place, each in enumerate(rounds):
        said = each.header.body.facts
        body = change(place, each.body)
        lists[said.lane].apply(body)
        said = replace(said, roots=lists[said.lane].roots, **(facts or {}))
        header = RoundHeader(facts=said, before=before, journal_head=each.header.body.journal_head)
        before = header.id
        found.append(PublishedRound(header=header_signer(signer)(header), body=body))
    return found


def audited(rounds: Iterable[PublishedRound], **given: Any) -> tuple[Difference | None, Auditor]:
    """The first difference, and who found it."""
    auditor = Auditor(MARKET_KEY.address, **given)
    for each in rounds:
        if (found := auditor.check(each)) is not None:
            return found, auditor
    return auditor.end(), auditor


def prover_of(rounds: Iterable[PublishedRound]) -> Prover:
    """A stranger who read these rounds."""
    prover = Prover(MARKET_KEY.address)
    for each in rounds:
        prover.take(each)
    return prover
