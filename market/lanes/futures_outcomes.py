"""What the chain made of the market's futures: contracts that opened, were refused, or vanished."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cloud_gpu.protocol.calls import ChainCall, OpenFutures
from cloud_gpu.protocol.chain_events import (
    BidsCancelled,
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    EntrySkipped,
    TransactionFailed,
)
from cloud_gpu.protocol.effects import ReportContract
from cloud_gpu.protocol.future_events import FutureEvent, FutureOpened, FutureOrderClosed
from cloud_gpu.protocol.future_reports import (
    ContractReport,
    ContractState,
    FutureContract,
    LastTrade,
)
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.values import Address
from market.books.futures_book import FutureOpening
from market.books.futures_positions import contract_after, suggested_machines
from market.lanes.floor import Floor
from market.lanes.futures_lane import FuturesLane
from market.lanes.leasing import reverted


class FutureOutcomes:
    """Applies chain events to lane C, after the ledger took them in."""

    def __init__(self, floor: Floor, lane: FuturesLane) -> None:
        self._floor, self._lane, self._book = floor, lane, floor.futures
        self._told: dict[int, ContractReport] = {}
        """Of live contracts; it follows from the ledger."""

    def apply(self, event: ChainEvent, before: FutureContract | None) -> None:
        """`before` is the contract concerned as it stood before the event."""
        match event:
            case ChainAdvanced():
                self._lane.forget()
                return
            case ChainReorganised():
                self._rewound()
            case EntrySkipped(call=OpenFutures() as call, position=position):
                self._skipped(call, position, event)
            case TransactionFailed():
                self._failed(event.call, event.error)
            case BidsCancelled(account=account):
                self._lane.void_spent(account)
            case FutureOrderClosed(trader=trader):
                self._lane.void_spent(trader)
            case FutureOpened():
                self._opened(event)
            case _:
                pass
        self._lane.has_news = True
        if isinstance(event, FutureEvent):
            self._tell(contract_after(before, event))
        self._suggest_again(event)

    def void_spent(self, account: Address) -> None:
        """See `FuturesLane.void_spent`."""
        self._lane.void_spent(account)

    def restated(self) -> list[ReportContract]:
        """What is told of live contracts."""
        contracts = self._floor.ledger.futures.contracts
        return [ReportContract(report=self._report(contracts[n])) for n in sorted(contracts)]

    def _opened(self, event: FutureOpened) -> None:
        opening = next((o for o in self._book.on_its_way(event.buy) if _is_of(o, event)), None)
        if opening is not None:
            self._book.put_opening(replace(opening, contract=event.contract))
            trade = LastTrade(price=opening.price, units=event.units, at=event.at)
            self._floor.ledger.futures.traded(event.series, trade)
        for key in (event.buy, event.sell):
            order = self._book.order(key)
            if order is not None:
                self._floor.ledger.void(*order.nonce)
                self._book.put(replace(order, openings=0))
                self._lane.follow(key)
        for account in (event.long, event.short):
            self._lane.void_spent(account)
        self._lane.listing.tell_trades(event.series)

    def _skipped(self, call: OpenFutures, position: int, event: EntrySkipped) -> None:
        if position >= len(call.pairs):
            return
        pair = call.pairs[position]
        for opening in self._book.on_its_way(pair.buy.payload.id):
            if opening.sell == pair.sell.payload.id and opening.call == call:
                self._lane.give_up(opening, event.rejection)

    def _failed(self, call: ChainCall, error: str) -> None:
        for opening in list(self._book.on_their_way()):
            if opening.call == call:
                self._lane.give_up(opening, reverted(error))

    def _rewound(self) -> None:
        """Blocks vanished: what opened in them is on its way again, or waits again."""
        for opening in list(self._book.openings()):
            fills = self._floor.ledger.futures.fills_of(opening.buy)
            if opening.is_settled and opening.contract not in {each.contract for each in fills}:
                self._book.put_opening(  # the transaction is expected to be mined once more
                    replace(opening, contract=None, posted_at=self._floor.now)
                )
        for order in list(self._book.orders()):
            self._lane.follow(order.id)
        self._lane.listing.tell_trades()
        live = self._floor.ledger.futures.contracts
        for number in sorted(self._told.keys() - live.keys()):
            gone = self._told[number].contract
            self._tell(msgspec.structs.replace(gone, state=ContractState.UNDONE))
        for number in sorted(live):
            self._tell(live[number])

    # What is told of contracts.

    def _tell(self, contract: FutureContract | None) -> None:
        if contract is not None:
            self._tell_report(self._report(contract))

    def _tell_report(self, report: ContractReport) -> None:
        number = report.contract.id
        if self._told.get(number) != report:
            self._floor.out.append(ReportContract(report=report))
        if number in self._floor.ledger.futures.contracts:
            self._told[number] = report
        else:
            self._told.pop(number, None)

    def _report(self, contract: FutureContract) -> ContractReport:
        is_open = contract.state is ContractState.OPEN
        suggested = self._suggested(contract.short).get(contract.id, ()) if is_open else ()
        deadline = contract.series.deadline(self._floor.rules.futures)
        return ContractReport(contract=contract, deadline=deadline, suggested=suggested)

    def _suggested(self, short: Address) -> dict[int, tuple[int, ...]]:
        ledger = self._floor.ledger
        return suggested_machines(short, ledger.futures, ledger.machines)

    def _suggest_again(self, event: ChainEvent) -> None:
        """A machine came or went, or a contract changed: other contracts may name other ones."""
        shorts = set[Address]()
        machine = getattr(event, "machine", None)
        if isinstance(machine, MachineKey):
            shorts.add(machine.provider)
        if isinstance(event, FutureEvent):
            contract = self._floor.ledger.futures.contracts.get(event.contract)
            shorts |= {contract.short} if contract is not None else set()
        for short in sorted(shorts):
            suggested = self._suggested(short)
            for number, machines in sorted(suggested.items()):
                told = self._told.get(number)
                if told is not None and told.contract.state is ContractState.OPEN:
                    self._tell_report(msgspec.structs.replace(told, suggested=machines))


def _is_of(opening: FutureOpening, event: FutureOpened) -> bool:
    """Whether the contract may be the one that the opening asked for."""
    told = event.sell, event.units, event.per_hour.value
    return (opening.sell, opening.units, opening.price.value) == told
