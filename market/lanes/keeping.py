"""The market as keeper: calls that anybody may make, made in time so that nobody else has to.

What is due follows from the ledger; each call is posted once, and again after a failure, ever more
seldom, until the chain says that it is done or no longer possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from cloud_gpu.protocol.calls import (
    ChainCall,
    DeliverFuture,
    LapseFuture,
    RefundPledge,
    SettleDefault,
    SettleUnit,
)
from cloud_gpu.protocol.chain_events import ChainAdvanced, ChainEvent, TransactionFailed
from cloud_gpu.protocol.effects import Transact
from cloud_gpu.protocol.future_reports import FutureContract, FutureStep, Reminder
from cloud_gpu.protocol.group_reports import CampaignState
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.units import Instant, instant
from market.books.futures_positions import reminders
from market.lanes.floor import Floor

_WAIT_MS_MAX: Final = 600_000
_DELIVERABLE: Final = (MachineStatus.FREE, MachineStatus.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One call to make from a time on, Unix seconds."""

    call: ChainCall
    since: int
    until: int | None = None
    """None: no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Posted:
    is_on_its_way: bool = True
    failures: int = 0
    not_before: Instant = 0


class Keeper:
    """Posts what is due on futures and group buys."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._posted: dict[ChainCall, _Posted] = {}
        self._next: Instant | None = None
        self._has_news = False

    @property
    def deadline(self) -> Instant | None:
        """When an errand falls due."""
        return self._next

    def apply(self, event: ChainEvent) -> None:
        """After the ledger took the event in."""
        if isinstance(event, TransactionFailed) and event.call in self._posted:
            failures = self._posted[event.call].failures + 1
            wait = min(self._floor.rules.round_ms << min(failures, 20), _WAIT_MS_MAX)
            self._posted[event.call] = _Posted(
                is_on_its_way=False, failures=failures, not_before=self._floor.now + wait
            )
            self._has_news = True
        elif isinstance(event, ChainAdvanced):
            self._has_news = True

    def plan(self) -> None:
        """Post what is due now."""
        floor = self._floor
        is_due = self._next is not None and floor.now >= self._next
        if not (self._has_news or is_due):
            return
        if not floor.is_ready:
            self._has_news, self._next = True, None
            return
        self._has_news, self._next = False, None
        known, self._posted = self._posted, {}
        for errand in errands(floor):
            if errand.since > floor.at:
                self._wake(instant(errand.since))
            elif errand.until is None or floor.at <= errand.until:
                self._posted[errand.call] = self._tried(errand.call, known.get(errand.call))

    def _tried(self, call: ChainCall, before: _Posted | None) -> _Posted:
        if before is not None and before.is_on_its_way:
            return before
        if before is not None and self._floor.now < before.not_before:
            self._wake(before.not_before)
            return before
        self._floor.out.append(Transact(call=call))
        return _Posted() if before is None else replace(before, is_on_its_way=True)

    def _wake(self, at: Instant) -> None:
        self._next = at if self._next is None else min(at, self._next)

    def calls(self) -> list[ChainCall]:
        """Those that the chain has not answered."""
        return [call for call, posted in self._posted.items() if posted.is_on_its_way]

    def rows(self) -> list[object]:
        """Everything in it in one fixed order, for a digest of the state."""
        posted: list[object] = [
            [call, each.is_on_its_way, each.failures, each.not_before]
            for call, each in self._posted.items()
        ]
        return [posted, self._next, self._has_news]


def errands(floor: Floor) -> Iterator[Errand]:
    """All that can be foreseen, in one order."""
    ledger, rules = floor.ledger, floor.rules
    if rules.futures_domain is not None:
        for number in sorted(ledger.futures.contracts):
            contract = ledger.futures.contracts[number]
            due = reminders(
                contract, rules.futures, start_window_s=rules.start_window_s, at=floor.at
            )
            for step in due:
                if step.account is None:
                    yield _future_errand(contract, step, floor)
    for campaign in floor.groups.campaigns():
        if campaign.state is not CampaignState.FAILED:
            continue
        terms = campaign.offer.campaign
        for pledge in ledger.groups.row(campaign.id).locked:
            call = RefundPledge(campaign=terms, place=pledge.place)
            yield Errand(call=call, since=terms.deadline + 1)


def _future_errand(contract: FutureContract, due: Reminder, floor: Floor) -> Errand:
    match due.step:
        case FutureStep.DELIVER:
            call: ChainCall = DeliverFuture(contract=contract.id, machines=contract.machines)
            since = _deliver_from(contract, due.since, floor)
            return Errand(call=call, since=since, until=due.until)
        case FutureStep.LAPSE:
            call = LapseFuture(contract=contract.id)
        case FutureStep.SETTLE_UNIT if due.lease is not None:
            call = SettleUnit(lease=due.lease)
        case FutureStep.SETTLE_DEFAULT:
            call = SettleDefault(contract=contract.id)
        case _:
            raise AssertionError(f"{due.step} is not for anybody to do")
    return Errand(call=call, since=due.since, until=due.until)


def _deliver_from(contract: FutureContract, since: int, floor: Floor) -> int:
    """When its machines are free; in the last quarter of the start window, come what may.

    A machine that is not free when its contract is delivered costs its short the margin.
    """
    rows = (
        floor.ledger.machines.get(MachineKey(provider=contract.short, index=index))
        for index in contract.machines
    )
    if all(row is not None and row.status in _DELIVERABLE for row in rows):
        return since
    return since + floor.rules.start_window_s * 3 // 4
