"""What a market has told, held against what its journal says: its published rounds and its reports.

A market that runs may be behind its journal, never ahead. Rows are written in order: whatever was
reported before the newest published round must be there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import PublishRound
from cloud_gpu.protocol.errors import StorageFailed
from cloud_gpu.protocol.future_reports import ContractReport, FutureReport
from cloud_gpu.protocol.group_reports import CampaignReport, PledgeReport
from cloud_gpu.protocol.lease import LeaseReport
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.rounds import PublishedRound, RoundHeader, SignedHeader
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest, keccak256
from market.audit.auditing import signer_of

Subject: TypeAlias = tuple[str, str]
"""What a report is about: its kind, like "bid" or "campaign", and its id."""
Report: TypeAlias = (
    BidReport
    | LeaseReport
    | AuctionReport
    | FutureReport
    | ContractReport
    | CampaignReport
    | PledgeReport
)

_SHOWN = 200
"""Letters of a value that differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRounds:
    """The rounds that a database holds."""

    newest: int = 0
    """The last number; 0: none."""
    rounds: Callable[[], Iterator[bytes]] = lambda: iter(())
    """`PublishedRound`s as JSON, in order."""
    head_at: Callable[[int], Digest] = lambda _: ZERO_DIGEST
    """Of the journal at an entry."""
    held: Sequence[SignedHeader] = ()
    """Headers that somebody kept, and that must be among them."""


def subject_of(report: Report) -> Subject:
    """Whom a report is about."""
    match report:
        case BidReport(bid=bid):
            return "bid", str(bid)
        case FutureReport(order=order):
            return "future", str(order)
        case ContractReport(contract=contract):
            return "contract", str(contract.id)
        case AuctionReport(window=window):
            return "auction", str(window)
        case CampaignReport(id=campaign):
            return "campaign", str(campaign)
        case PledgeReport(pledge=pledge):
            return "pledge", str(pledge)
        case _:
            return "lease", str(report.terms.key)


class RoundsTold:
    """Takes the journal's rounds in, one by one."""

    def __init__(self, stored: StoredRounds) -> None:
        self._stored, self._rows = stored, stored.rounds()
        self._held = {each.body.facts.number: each.body.id for each in stored.held}
        self._before, self.count = ZERO_DIGEST, 0

    def take(self, effect: PublishRound) -> None:
        """The journal's next round. Raises StorageFailed where it was not published so."""
        facts = effect.facts
        self.count = facts.number
        head = self._stored.head_at(facts.journal_to)
        header = RoundHeader(facts=facts, before=self._before, journal_head=head)
        self._before = header.id
        held = self._held.pop(facts.number, None)
        if held not in (None, header.id):
            raise _differs(facts.number, "header", f"the one held is {held}", str(header.id))
        if facts.number > self._stored.newest:
            return
        found = from_json(next(self._rows, b"null"), PublishedRound | None)
        if found is None or found.header.body.facts.number != facts.number:
            raise _differs(facts.number, "table of rounds", "nothing", "this round: it was deleted")
        for name, here, there in (
            ("facts", found.header.body.facts, facts),
            ("body", found.body, effect.body),
        ):
            if here != there:
                field, was, wanted = first_differing(to_json(here), to_json(there))
                raise _differs(facts.number, f"{name}.{field}", was, wanted)
        for name, was_, wanted_ in (
            ("header.before", found.header.body.before, header.before),
            ("header.journal_head", found.header.body.journal_head, header.journal_head),
            ("header.signature", signer_of(found.header), facts.market),
        ):
            if was_ != wanted_:
                raise _differs(facts.number, name, str(was_), str(wanted_))

    def end(self, entries: int) -> None:
        """Where the journal ends. Raises StorageFailed when rounds were published behind it."""
        newest = max([self._stored.newest, *self._held])
        if newest > self.count:
            raise StorageFailed(
                f"round {newest}: the market published it, and its journal ends after round"
                f" {self.count} with entry {entries}: the journal was cut. Restore it from a copy"
            )


class ReportsTold:
    """Takes the journal's reports in, one by one."""

    def __init__(self, told: Mapping[Subject, bytes], *, has_rounds: bool) -> None:
        """`told` has each report that the market told last."""
        self._told, self.unproven = told, dict(told)
        self._last: dict[Subject, Digest] = {}
        self._is_sealed = not has_rounds

    def take(self, report: Report) -> None:
        """The journal's next report."""
        subject, body = subject_of(report), to_json(report)
        if not self._is_sealed:
            self._last[subject] = keccak256(body)
        elif self.unproven.get(subject) == body:
            del self.unproven[subject]

    def seal(self, number: int) -> None:
        """The newest published round: all that was reported before it must be told.

        Raises StorageFailed for a report that is not.
        """
        for subject, needed in self._last.items():
            told = self._told.get(subject)
            if told is None:
                where = f"round {number}, {' '.join(subject)}"
                raise StorageFailed(
                    f"{where}: the journal says it, the market tells nothing: a row was deleted"
                )
            if keccak256(told) == needed:
                self.unproven.pop(subject, None)
        self._last.clear()
        self._is_sealed = True


def first_differing(found: bytes, needed: bytes) -> tuple[str, str, str]:
    """The first field that differs between two values as JSON, and both its values."""
    wanted = json.loads(needed)
    try:
        told = dict(json.loads(found))
    except (ValueError, TypeError):
        return "report", "what is no report", needed.decode()[:_SHOWN]
    for name in sorted(wanted.keys() | told.keys()):
        here, there = (json.dumps(each.get(name))[:_SHOWN] for each in (told, wanted))
        if here != there:
            return name, here, there
    return "report", "other bytes for the same values", needed.decode()[:_SHOWN]


def _differs(number: int, field: str, found: str, needed: str) -> StorageFailed:
    return StorageFailed(
        f"round {number}, {field}: the market published {found}, the journal says {needed}"
    )
