"""Builds proofs from published rounds: which rows to show so that a stranger sees the fault.

Whatever is built is checked before it is handed out, so a proof that comes from here holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.rounds import Lane, PublishedRound, SignedHeader
from cloud_gpu.protocol.ties import EntryBatch
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import ZERO_DIGEST, Address, Digest
from market.audit.proof_claims import check_proof
from market.audit.proofs import CLAIMS, Claim, Exhibit, Proof, ProofFails
from market.audit.showing import Showing, entered_exhibits, place_exhibit
from market.lanes.round_lists import RoundLists
from market.rules import MarketRules

Build = Callable[[], Proof]


class Prover:
    """The published rounds up to one of them."""

    def __init__(self, market: Address) -> None:
        self._market = market
        self._lists = {lane: RoundLists() for lane in Lane}
        self._batches: dict[tuple[Lane, Instant], tuple[SignedHeader, Sequence[EntryBatch]]] = {}
        self._headers: list[SignedHeader] = []
        self._rules = ""

    def take(self, published: PublishedRound) -> None:
        """The next round. Raises ProofFails when its lists do not follow from those before."""
        header, body = published.header, published.body
        lane = header.body.facts.lane
        self._rules = body.rules or self._rules
        try:
            self._lists[lane].apply(body)
        except KeyError as error:
            raise ProofFails(f"the rounds contradict each other: no row {error}") from error
        entries = lane.entries
        self._batches |= {(entries, each.batch): (header, body.batches) for each in body.batches}
        self._headers.append(header)

    @property
    def number(self) -> int:
        """Of the last round; 0: none yet."""
        return self._headers[-1].body.facts.number if self._headers else 0

    def prove(self, order: Digest) -> Proof:
        """The first claim about an order that the last round shows. Raises ProofFails: none."""
        builds: list[Build] = [partial(self._of_tie, order)]
        if self.number:
            claims = CLAIMS[self._newest.body.facts.lane]
            builds += [partial(self._of_clearing, claim, order) for claim in claims]
        for found in self._holding(builds):
            return found
        raise ProofFails(f"round {self.number} shows no fault against order {order}")

    def prove_unread(self, receipt: SignedReceipt) -> Proof:
        """That the last round shows a receipt's order missing. Raises ProofFails: it does not."""
        for found in self._holding([partial(self._of_receipt, receipt)]):
            return found
        raise ProofFails(f"round {self.number} shows no fault against this receipt")

    def prove_fork(self, held: SignedHeader) -> Proof:
        """That the market signed another header of the same round. Raises ProofFails."""
        builds = [
            partial(Proof, claim=Claim.FORK, order=ZERO_DIGEST, headers=(held, header))
            for header in self._headers
            if header.body.facts.number == held.body.facts.number
        ]
        for found in self._holding(builds):
            return found
        raise ProofFails("the rounds hold this very header, or none of its number")

    @property
    def _newest(self) -> SignedHeader:
        if not self._headers:
            raise ProofFails("there is no round")
        return self._headers[-1]

    def _holding(self, builds: Iterable[Build]) -> Iterator[Proof]:
        for build in builds:
            try:
                proof = build()
                check_proof(proof, self._market)
            except ProofFails:  # an honest market: the usual end of a try
                continue
            yield proof

    def _of_receipt(self, receipt: SignedReceipt) -> Proof:
        header = self._newest
        facts = header.body.facts
        entries = self._lists[facts.lane].entries("arrivals")
        place = receipt.body.inbox - facts.inbox_from
        shown: tuple[Exhibit, ...] = ()
        if entries and place >= 0:
            shown = (place_exhibit("arrivals", entries, min(place, len(entries) - 1)),)
        return Proof(
            claim=Claim.UNREAD,
            order=receipt.body.order,
            headers=(header,),
            exhibits=shown,
            receipt=receipt,
        )

    def _of_clearing(self, claim: Claim, order: Digest) -> Proof:
        header = self._newest
        rules = from_json(self._rules, MarketRules)
        show = Showing(self._lists[header.body.facts.lane], header.body.facts, rules)
        match claim:
            case Claim.TWICE:
                show.twice(order)
            case Claim.LIMIT:
                show.limit(order)
            case _:
                show.service(order)
        return Proof(
            claim=claim,
            order=order,
            headers=(header,),
            rules=self._rules,
            exhibits=show.exhibits,
        )

    def _of_tie(self, order: Digest) -> Proof:
        header = self._newest
        facts = header.body.facts
        show = Showing(self._lists[facts.lane], facts, None)
        batch, subject = show.ranked(order)
        entries = facts.lane.entries
        if (entries, batch) not in self._batches:
            raise ProofFails(f"no round published batch {batch}")
        at, batches = self._batches[entries, batch]
        lists = RoundLists()
        lists.batches = tuple(batches)
        place = [each.batch for each in batches].index(batch)
        sealed = place_exhibit("batches", lists.entries("batches"), place, header=1)
        entered = entered_exhibits(batches[place].entered, subject)
        return Proof(
            claim=Claim.TIE,
            order=order,
            headers=(header, at),
            exhibits=(*show.exhibits, sealed, *entered),
        )
