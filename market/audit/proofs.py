"""Proofs that a market broke its own rule, of constant size, for people who have nothing else.

A proof shows rows of a published round with paths to the roots that the market signed. What it
claims is computed again from these rows alone (`proof_claims`); here they are checked and read.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.merkle import Path, Tree, leads_to
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.rounds import (
    Arrival,
    Condition,
    Fill,
    Lane,
    Placed,
    PlacedAsk,
    PlacedBid,
    RoundFacts,
    SealedBatch,
    SignedHeader,
    Taken,
    Unmatched,
)
from cloud_gpu.protocol.values import Address, Digest, Value, keccak256
from market.audit.auditing import signer_of
from market.audit.rebuilding import conditions_of, resting_ask, resting_bid
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import Conditions
from market.lanes.round_lists import ROOTS
from market.rules import MarketRules

ENTERED: Final = "entered"
"""The list behind a `SealedBatch`, beside those behind a header's roots."""

EMPTY_ROOT: Final = Tree([]).root

_KINDS: Final[dict[str, Any]] = {
    "orders": Placed,
    "asks": PlacedAsk,
    "conditions": Condition,
    "fills": Fill,
    "unmatched": Unmatched,
    "batches": SealedBatch,
    "arrivals": Arrival,
}


class Claim(StrEnum):
    """What a proof says that the market did."""

    ENVY = "envy"
    """It gave a bid nothing, and what fits it to a bid that stands behind, or to nobody."""
    SKIPPED = "skipped"
    """It gave a bid a worse machine than one that fitted it and was open to it."""
    TWICE = "twice"
    """It gave one machine, or one buyer's one wish, twice."""
    UNREAD = "unread"
    """It gave a receipt for an order, and another stands in its place, or none after long, or it
    dated the receipt after it had read the order."""
    LIMIT = "limit"
    """It matched at another price than the ask's (in lane B: none between the ask's and the
    bid's), or outside a limit that somebody signed."""
    TIE = "tie"
    """It ranked an order by another tie key than the one drawn for it."""
    FORK = "fork"
    """It signed two histories."""


CLAIMS: Final = {
    Lane.ON_DEMAND: (Claim.LIMIT, Claim.TWICE, Claim.ENVY, Claim.SKIPPED),
    Lane.BLOCK: (Claim.LIMIT, Claim.TWICE),
    Lane.FUTURES: (),
}
"""What can be claimed of a lane's clearings, apart from ranks, receipts and histories."""


class Exhibit(Value, frozen=True, kw_only=True):
    """A row of a list, and where it stands there."""

    header: int = 0
    """Of the proof's headers."""
    list: str
    entry: str
    """Canonical JSON; of `ENTERED` a digest."""
    path: Path


class Proof(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A claim and all that shows it."""

    claim: Claim
    order: Digest
    """Whom it concerns: a bid or an ask; of FORK zero."""
    headers: tuple[SignedHeader, ...]
    rules: str = ""
    exhibits: tuple[Exhibit, ...] = ()
    receipt: SignedReceipt | None = None


class ProofFails(Exception):
    """The proof does not show what it claims; the text says why."""


class Shown:
    """The exhibits of a proof, checked and read. Raises ProofFails where one is not as signed."""

    def __init__(self, proof: Proof, market: Address) -> None:
        self.proof = proof
        if not 1 <= len(proof.headers) <= 2:
            raise ProofFails(f"it has {len(proof.headers)} headers, needed 1 or 2")
        for header in proof.headers:
            facts = header.body.facts
            if facts.market != market or signer_of(header) != market:
                raise ProofFails(f"the header of round {facts.number} is not signed by {market}")
            if (facts.domain, facts.market_id) != (self.facts.domain, self.facts.market_id):
                raise ProofFails("its headers are of two deployments")
        self.rows: list[tuple[Exhibit, Any]] = [(each, _read(each)) for each in proof.exhibits]
        for each, row in self.rows:
            if not leads_to(self._root_of(each), _octets(each, row), each.path):
                raise ProofFails(
                    f"the entry of {each.list} at place {each.path.place} does not lead to the root"
                    " that the market signed"
                )

    def _root_of(self, exhibit: Exhibit) -> Digest:
        if not 0 <= exhibit.header < len(self.proof.headers):
            raise ProofFails(f"it has no header {exhibit.header}")
        if exhibit.list == ENTERED:
            batch: SealedBatch = self.one("batches", SealedBatch, "the batch that it entered in")
            return batch.entered
        root: Digest = getattr(self.proof.headers[exhibit.header].body.facts.roots, exhibit.list)
        return root

    @property
    def facts(self) -> RoundFacts:
        """Of the first header."""
        return self.proof.headers[0].body.facts

    @cached_property
    def rules(self) -> MarketRules:
        """The market's, in that round."""
        if keccak256(self.proof.rules.encode()) != self.facts.rules:
            raise ProofFails("its rules are not those whose hash the market signed")
        try:
            return from_json(self.proof.rules, MarketRules)
        except ValueError as error:
            raise ProofFails(f"its rules cannot be read: {error}") from error

    @cached_property
    def given(self) -> Conditions:
        """As far as they are shown."""
        return conditions_of(self.facts, self.rules, self.all("conditions"))

    def all(self, name: str, header: int | None = 0) -> list[Any]:
        """The rows that are shown of a list; None: of either header's."""
        return [
            row for each, row in self.rows if each.list == name and header in (None, each.header)
        ]

    def one(self, name: str, kind: type[Any], what: str) -> Any:
        """The only row of its kind."""
        found = [row for row in self.all(name, None) if isinstance(row, kind)]
        if len(found) != 1:
            raise ProofFails(f"it shows {len(found)} rows for {what}, needed 1")
        return found[0]

    def bid_row(self, order: Digest) -> PlacedBid:
        """As it was published."""
        for row in self.all("orders"):
            if isinstance(row, PlacedBid) and row.key == str(order):
                return row
        raise ProofFails(f"it does not show bid {order}")

    def bid(self, order: Digest) -> RestingBid:
        """As the clearing saw it."""
        found = resting_bid(self.bid_row(order), self.rules.domain)
        if found is None or isinstance(found, Rejection):
            raise ProofFails(f"bid {order} is not signed by its buyer: claim {Claim.LIMIT}")
        return found

    def asks(self) -> list[RestingAsk]:
        """Those that are shown, as the clearing saw them, cheapest first."""
        found = []
        for row in self.all("asks"):
            ask = resting_ask(row, self.rules.domain)
            if isinstance(ask, Rejection):
                raise ProofFails(f"ask {row.key} is not signed by its provider: {ask}")
            found.append(ask)
        return sorted(found, key=lambda ask: (ask.rank, ask.machine))

    def taken(self, *, bid: Digest | None = None, ask: Digest | None = None) -> list[Taken]:
        """The fills that are shown of a bid, of an ask."""
        return [
            row
            for row in self.all("fills")
            if isinstance(row, Taken) and bid in (None, row.bid) and ask in (None, row.ask)
        ]

    def is_absent(self, name: str, key: str) -> bool:
        """Whether two neighbours, or the list's end, show that no row has this key."""
        root = getattr(self.facts.roots, name)
        if root == EMPTY_ROOT:
            return True
        places = {
            each.path.place: (each, row.key)
            for each, row in self.rows
            if each.list == name and each.header == 0
        }
        return stands_between(
            key, {place: (at, each.path.count) for place, (each, at) in places.items()}
        )


def stands_between(key: Any, places: dict[int, tuple[Any, int]]) -> bool:
    """Whether shown entries (key and the list's length, by place) leave `key` no place."""
    for place, (found, count) in places.items():
        if found < key:
            after = places.get(place + 1)
            if place + 1 == count or (after is not None and after[0] > key):
                return True
        elif found > key and place == 0:
            return True
    return False


def _read(exhibit: Exhibit) -> Any:
    try:
        if exhibit.list == ENTERED:
            return Digest.parse(exhibit.entry)
        if exhibit.list not in ROOTS:
            raise ValueError(f"there is no list {exhibit.list}")
        return from_json(exhibit.entry, _KINDS[exhibit.list])
    except ValueError as error:
        raise ProofFails(f"an entry of {exhibit.list} cannot be read: {error}") from error


def _octets(exhibit: Exhibit, row: Any) -> bytes:
    return bytes(row.raw) if exhibit.list == ENTERED else exhibit.entry.encode()
