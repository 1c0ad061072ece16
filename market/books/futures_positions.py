"""Contracts of futures as the chain tells of them, and what follows: steps due, machines to name.

Part of the ledger: what a block changed is taken back with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.future_events import (
    FutureAssigned,
    FutureDelivered,
    FutureEnded,
    FutureEvent,
    FutureFunded,
    FutureOpened,
    FutureOrderClosed,
    MachinesNominated,
    UnitDelivered,
    UnitEnded,
    UnitSettled,
)
from cloud_gpu.protocol.future_reports import (
    ContractState,
    FutureContract,
    FutureStep,
    LastTrade,
    OrderFill,
    Reminder,
)
from cloud_gpu.protocol.futures import FuturesRules, Series
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.values import Address, Digest
from market.rows import MachineRow
from market.undo import UndoLog

SeriesKey = tuple[int, int, int]
"""Product, window start, window length."""

_KEPT_S: Final = 2 * 24 * 3600
"""After a window's start: by then every market has forgotten the orders for it."""
_CLOSED_S: Final = limits.ORDER_LIFE_S_MAX + _KEPT_S
"""After a closing: every order that a market could have taken by then is over. For one that was
signed further ahead and is handed in later, Futures itself remembers the closing."""


class FuturePositions:
    """Live contracts by number, and what each series last cost here."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self.contracts: dict[int, FutureContract] = {}
        """One that ended is gone."""
        self.trades: dict[SeriesKey, LastTrade] = {}
        self._fills: dict[Digest, tuple[int, tuple[OrderFill, ...]]] = {}
        """Of each order: when its window starts, and its contracts."""
        self._closed: dict[tuple[Digest, Address], int] = {}
        """Since when, Unix seconds; the oldest first, but for what a reorganisation put back."""

    def tables(self) -> Iterator[tuple[str, Mapping[Any, object]]]:
        """For a digest of the state."""
        yield "futures", MappingProxyType(self.contracts)
        yield "trades", MappingProxyType(self.trades)
        yield "order_fills", MappingProxyType(self._fills)
        yield "orders_closed", MappingProxyType(self._closed)

    def of(self, account: Address) -> list[FutureContract]:
        """The contracts in which an account is a side, by number."""
        found = (self.contracts[number] for number in sorted(self.contracts))
        return [each for each in found if account in (each.long, each.short)]

    def fills_of(self, order: Digest) -> tuple[OrderFill, ...]:
        """The contracts that came of an order, oldest first; they may be over."""
        return self._fills[order][1] if order in self._fills else ()

    def is_closed(self, order: Digest, trader: Address) -> bool:
        """Whether its trader ended an order for good."""
        return (order, trader) in self._closed

    def promised_from(self, machine: MachineKey) -> int | None:
        """When the next window starts that a machine was named for, Unix seconds; None: for none.

        It counts until the contract was delivered or ended.
        """
        starts = (
            each.series.window_start
            for each in self.contracts.values()
            if each.state is ContractState.OPEN
            and each.short == machine.provider
            and machine.index in each.machines
        )
        return min(starts, default=None)

    def traded(self, series: Series, trade: LastTrade) -> None:
        """A contract that this market matched opened, in the block whose events are coming in."""
        self._undo.set(self.trades, series.key, trade)

    def apply(self, event: FutureEvent) -> None:
        """Take one fact in; a contract that was never heard of is no error."""
        if isinstance(event, FutureOpened):
            self._undo.set(self.contracts, event.contract, _opened(event))
            for order in (event.buy, event.sell):
                self._fill(order, event)
            return
        found = self.contracts.get(event.contract)
        if found is None:
            return
        changed = _after(found, event)
        if changed.state in (ContractState.OPEN, ContractState.DELIVERED):
            self._undo.set(self.contracts, event.contract, changed)
        else:
            self._undo.remove(self.contracts, event.contract)

    def close(self, event: FutureOrderClosed) -> None:
        """An order ended, whether it was heard of or not; once more, it is the same closing."""
        key = event.order, event.trader
        if key not in self._closed:
            self._undo.set(self._closed, key, event.at)

    def forget(self, at: int) -> None:
        """Drop what became of orders for windows long begun, and closings that no order outlived.

        Anybody may close any hash, so closings are looked at from the oldest on, never all.
        """
        for key, _ in list(takewhile(lambda row: row[1] + _CLOSED_S < at, self._closed.items())):
            self._undo.remove(self._closed, key)
        for order in [o for o, (start, _) in self._fills.items() if start + _KEPT_S < at]:
            self._undo.remove(self._fills, order)

    def _fill(self, order: Digest, event: FutureOpened) -> None:
        fill = OrderFill(contract=event.contract, units=event.units, per_hour=event.per_hour)
        row = event.series.window_start, (*self.fills_of(order), fill)
        self._undo.set(self._fills, order, row)


def contract_after(before: FutureContract | None, event: FutureEvent) -> FutureContract | None:
    """A contract after a fact about it, ended or not; None: it was never heard of."""
    if isinstance(event, FutureOpened):
        return _opened(event)
    return None if before is None else _after(before, event)


def _opened(event: FutureOpened) -> FutureContract:
    return FutureContract(
        id=event.contract,
        long=event.long,
        short=event.short,
        series=event.series,
        per_hour=event.per_hour,
        units=event.units,
        long_margin=event.long_margin,
        short_margin=event.short_margin,
        buy=event.buy,
        sell=event.sell,
        opened_at=event.at,
    )


def _after(before: FutureContract, event: FutureEvent) -> FutureContract:
    match event:
        case FutureAssigned(is_buy=True, joiner=joiner):
            return msgspec.structs.replace(before, long=joiner)
        case FutureAssigned(joiner=joiner):
            return msgspec.structs.replace(before, short=joiner)
        case FutureFunded():
            return msgspec.structs.replace(before, is_funded=True)
        case MachinesNominated(indexes=indexes):
            return msgspec.structs.replace(before, machines=indexes)
        case UnitDelivered(lease=lease):
            return msgspec.structs.replace(before, leases=(*before.leases, lease))
        case FutureDelivered():
            state = ContractState.DELIVERED if before.leases else ContractState.SETTLED
            return msgspec.structs.replace(before, state=state)
        case UnitEnded(lease=lease):
            return msgspec.structs.replace(before, ended=(*before.ended, lease))
        case UnitSettled(lease=lease):
            left = tuple(each for each in before.leases if each != lease)
            ended = tuple(each for each in before.ended if each != lease)
            state = ContractState.DELIVERED if left else ContractState.SETTLED
            return msgspec.structs.replace(before, leases=left, ended=ended, state=state)
        case FutureEnded(end=end):
            return msgspec.structs.replace(before, state=ContractState(end.value))
        case _:  # a machine that could not be leased: its contract tells of it when it is over
            return before


def suggested_machines(
    short: Address, positions: FuturePositions, machines: Mapping[MachineKey, MachineRow]
) -> dict[int, tuple[int, ...]]:
    """What a short would name for each of its contracts, by the contract's number.

    What it named stands. The others, by number, get machines of the product that no other window
    needs, by index; fewer than the units: there are no more.
    """
    own = [each for each in positions.of(short) if each.short == short]
    found = {each.id: each.machines for each in own if each.machines}
    for contract in (each for each in own if not each.machines):
        taken = {
            index
            for other in own
            if other.series.touches(contract.series)
            for index in found.get(other.id, ())
        }
        free = sorted(
            key.index
            for key, row in machines.items()
            if key.provider == short
            and row.product == contract.series.product
            and not row.is_leaving
            and key.index not in taken
        )
        found[contract.id] = tuple(free[: contract.units])
    return found


def reminders(
    contract: FutureContract, rules: FuturesRules, *, start_window_s: int, at: int
) -> tuple[Reminder, ...]:
    """What can be done about a contract at `at` (Unix seconds) or later, soonest end first."""
    if contract.state is not ContractState.OPEN:
        return tuple(
            Reminder(
                contract=contract.id,
                step=FutureStep.SETTLE_UNIT,
                account=None,
                since=contract.series.window_start,
                until=None,
                lease=lease,
            )
            for lease in contract.ended
        )
    series, deadline = contract.series, contract.series.deadline(rules)
    closes = series.window_start + start_window_s
    is_ready = contract.is_funded and bool(contract.machines)
    due: list[Reminder] = []

    def add(step: FutureStep, account: Address | None, since: int, until: int | None) -> None:
        if until is None or at <= until:
            due.append(
                Reminder(contract=contract.id, step=step, account=account, since=since, until=until)
            )

    if not contract.is_funded:
        add(FutureStep.FUND, contract.long, contract.opened_at, deadline)
    if not contract.machines:
        add(FutureStep.NOMINATE, contract.short, contract.opened_at, deadline)
    if is_ready:
        add(FutureStep.DELIVER, None, series.window_start, closes)
        add(FutureStep.LAPSE, None, closes + 1, None)
    else:
        add(FutureStep.SETTLE_DEFAULT, None, deadline + 1, None)
    return tuple(due)
