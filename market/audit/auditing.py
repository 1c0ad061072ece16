"""A market audited by strangers: its rounds computed again from what it published.

The first difference ends the audit.

Nothing is needed but what was published: no chain, no database, no key. What only a chain can tell
(cash, bonds, whether an opening failed) is taken from the signed conditions of each round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.receipts import AHEAD_S_MAX, SignedReceipt, is_ahead
from cloud_gpu.protocol.rounds import (
    Arrival,
    Lane,
    PublishedRound,
    RoundBody,
    RoundFacts,
    SignedHeader,
)
from cloud_gpu.protocol.signing import document_of, recover
from cloud_gpu.protocol.values import ZERO_DIGEST, Address, Digest, Value, keccak256
from market.audit.auditing_bids import BlockAudit, OnDemandAudit
from market.audit.auditing_lanes import EntryAudit, FuturesAudit
from market.audit.differences import Difference, differing
from market.lanes.publishing import ENGINE, LANES
from market.lanes.round_lists import ROOTS
from market.rules import MarketRules

INBOX_PATIENCE_MS = 600_000
"""An order whose receipt is so much older than a round must have come out of the inbox by then."""


class Audited(Value, frozen=True, kw_only=True):
    """Where the published rounds end."""

    market: Address
    rounds: int
    orders: int
    """Bids and orders of futures that were taken in, and cancellations."""
    matches: int
    head: Digest
    """The id of the newest header: keep it, and no earlier round can change any more."""
    journal: int
    """Entries of the journal that the rounds cover."""
    journal_head: Digest
    receipts: int
    """Of those given: found in the rounds."""
    waiting: int
    """Of those given: younger than what the rounds cover."""


_Receipts: TypeAlias = defaultdict[int, list[SignedReceipt]]
"""By place in the inbox."""

_Headers: TypeAlias = defaultdict[int, list[SignedHeader]]
"""By round."""


class Auditor:
    """Takes the rounds in one by one, in order."""

    def __init__(
        self,
        market: Address,
        receipts: Sequence[SignedReceipt] = (),
        held: Sequence[SignedHeader] = (),
    ) -> None:
        """`receipts`, and headers `held` since earlier, must be in the rounds."""
        self._market = market
        self._receipts, self._held = _Receipts(list), _Headers(list)
        for receipt in receipts:  # a market that cheats gives two for one place
            self._receipts[receipt.body.inbox].append(receipt)
        for header in held:
            self._held[header.body.facts.number].append(header)
        self._last: RoundFacts | None = None
        self._head, self._journal_head = ZERO_DIGEST, ZERO_DIGEST
        self._rules: MarketRules | None = None
        self._orders = self._matches = self._found = 0
        self._accepted: set[Digest] = set()
        book = EntryAudit()
        self.on_demand, self.blocks = OnDemandAudit(book), BlockAudit(book)
        self.futures = FuturesAudit(EntryAudit())

    def check(self, published: PublishedRound) -> Difference | None:
        """The next round: its first difference from what it must be; None: there is none.

        After a difference nothing more can be said.
        """
        found = next(self._differences(published), None)
        if found is None:
            self._last = published.header.body.facts
            self._head = published.header.body.id
            self._journal_head = published.header.body.journal_head
        return found

    def end(self) -> Difference | None:
        """After the last round: what should have been there, too."""
        newest = self._last.number if self._last is not None else 0
        missing = [number for number in self._held if number > newest]
        if missing:
            return Difference(
                number=newest,
                field="header",
                found=f"no round behind {newest}",
                needed=f"round {max(missing)}, whose signed header is held: the log was cut",
            )
        return None

    @property
    def audited(self) -> Audited:
        """What was found to be right."""
        last = self._last
        return Audited(
            market=self._market,
            rounds=last.number if last is not None else 0,
            orders=self._orders,
            matches=self._matches,
            head=self._head,
            journal=last.journal_to if last is not None else 0,
            journal_head=self._journal_head,
            receipts=self._found,
            waiting=sum(map(len, self._receipts.values())),
        )

    @property
    def rules(self) -> MarketRules | None:
        """In force in the newest round."""
        return self._rules

    def lane(self, lane: Lane) -> OnDemandAudit | BlockAudit | FuturesAudit:
        """What was found of a lane, up to the newest round."""
        match lane:
            case Lane.ON_DEMAND:
                return self.on_demand
            case Lane.BLOCK:
                return self.blocks
            case Lane.FUTURES:
                return self.futures

    # In the order in which a stranger would doubt.

    def _differences(self, published: PublishedRound) -> Iterator[Difference]:
        facts, body = published.header.body.facts, published.body
        yield from self._signature(published.header)
        yield from self._chain(published.header)
        yield from self._rules_of(facts, body)
        yield from self._arrivals(facts, body.arrivals)
        lane, rules = self.lane(facts.lane), self._rules
        assert rules is not None, "rules are told with the first round"
        yield from lane.take(facts, body, rules, self._accepted)
        for name in ROOTS:
            root = lane.lists.root(name)
            yield from differing(facts.number, f"roots.{name}", getattr(facts.roots, name), root)
        self._matches += len(body.fills)
        yield from lane.clear_again(facts, rules)

    def _signature(self, header: SignedHeader) -> Iterator[Difference]:
        facts = header.body.facts
        yield from differing(facts.number, "facts.market", facts.market, self._market)
        signer = signer_of(header)
        yield from differing(facts.number, "header.signature", signer, self._market)
        for held in self._held.pop(facts.number, ()):
            yield from differing(facts.number, "header", header.body.id, held.body.id)

    def _chain(self, header: SignedHeader) -> Iterator[Difference]:
        facts, last = header.body.facts, self._last
        number = facts.number
        yield from differing(number, "facts.number", number, last.number + 1 if last else 1)
        yield from differing(number, "header.before", header.body.before, self._head)
        yield from differing(number, "facts.engine", facts.engine, ENGINE)
        begins = (
            ("journal_from", facts.journal_from, last.journal_to + 1 if last else 1),
            ("inbox_from", facts.inbox_from, last.inbox_to + 1 if last else 1),
            ("batch", facts.batch, self.lane(facts.lane).count + 1),
            ("journal_to", facts.journal_to, max(facts.journal_to, facts.journal_from)),
            ("inbox_to", facts.inbox_to, max(facts.inbox_to, facts.inbox_from - 1)),
            ("at", facts.at, max(facts.at, last.at if last else 0)),
        )
        for name, found, needed in begins:
            yield from differing(number, f"facts.{name}", found, needed)
        if last is not None:
            for name in ("domain", "market_id"):
                found, needed = getattr(facts, name), getattr(last, name)
                yield from differing(number, f"facts.{name}", found, needed)

    def _rules_of(self, facts: RoundFacts, body: RoundBody) -> Iterator[Difference]:
        if body.rules:
            found = keccak256(body.rules.encode())
            yield from differing(facts.number, "rules", found, facts.rules)
            try:
                self._rules = from_json(body.rules, MarketRules)
            except ValueError as error:
                yield Difference(facts.number, "rules", str(error), "rules that this program knows")
        rules = self._rules
        if rules is None:
            yield Difference(facts.number, "rules", "none", "told with the first round")
            return
        yield from differing(facts.number, "facts.rules", facts.rules, keccak256(to_json(rules)))
        for name, found_, needed in (
            ("domain", facts.domain, rules.domain),
            ("market", facts.market, rules.matcher),
            ("market_id", facts.market_id, rules.market_id),
            ("inclusion_s", facts.inclusion_s, rules.inclusion_s),
        ):
            yield from differing(facts.number, f"facts.{name}", found_, needed)

    def _arrivals(self, facts: RoundFacts, arrivals: Sequence[Arrival]) -> Iterator[Difference]:
        wanted = list(range(facts.inbox_from, facts.inbox_to + 1))
        found = [each.inbox for each in arrivals]
        yield from differing(facts.number, "arrivals", found, wanted)
        place = facts.journal_from
        for each in arrivals:
            if not place <= each.journal <= facts.journal_to:
                span = f"{place} to {facts.journal_to}"
                field = f"arrivals {each.inbox}.journal"
                yield Difference(facts.number, field, str(each.journal), span)
            place = each.journal + 1
            self._orders += 1
            lane = LANES.get(each.kind)
            if lane is not None and not each.refused:
                self._accepted.add(each.order)
                self.lane(lane).entered.add(each.order)
            for receipt in self._receipts.pop(each.inbox, ()):
                yield from _of_receipt(facts, each, receipt)
                self._found += 1
        for inbox, waiting in sorted(self._receipts.items()):
            first = min(each.body.received_at for each in waiting)
            if facts.at > first + INBOX_PATIENCE_MS:
                field = "receipt"
                needed = f"inbox position {inbox}, acknowledged at {first} ms"
                yield Difference(facts.number, field, f"positions up to {facts.inbox_to}", needed)


def signer_of(header: SignedHeader) -> Address | None:
    """Who signed a header."""
    document = document_of(header.body, header.nonce, header.expiry)
    return recover(document.digest(header.body.facts.domain), header.signature)


def _of_receipt(facts: RoundFacts, found: Arrival, receipt: SignedReceipt) -> Iterator[Difference]:
    number, said = facts.number, receipt.body
    yield from differing(number, f"arrivals {found.inbox}.order", found.order, said.order)
    if is_ahead(said, facts.at):  # whoever dates ahead puts off what would convict it
        needed = f"at most {facts.at} ms, when it had been read, and {AHEAD_S_MAX} s"
        yield Difference(number, "receipt.received_at", f"{said.received_at} ms", needed)
