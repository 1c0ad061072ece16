"""Outcomes: what the chain made of the market's openings, and of everything else it watches."""

from __future__ import annotations

import msgspec

from cloud_gpu.protocol.calls import ChainCall, OpenBatch, OpenGang
from cloud_gpu.protocol.chain_events import (
    BidsCancelled,
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    DelegationChanged,
    EntrySkipped,
    LeaseClosed,
    LeaseOpened,
    ProductRegistered,
    TransactionFailed,
)
from cloud_gpu.protocol.effects import ListProduct, ReportLease
from cloud_gpu.protocol.future_events import (
    FutureAssigned,
    FutureEvent,
    FutureOpened,
    MachinesNominated,
)
from cloud_gpu.protocol.future_reports import FutureContract
from cloud_gpu.protocol.lease import LeaseKey, LeaseReport, LeaseState, MachineKey
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.values import Address
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import cap_of
from market.lanes.floor import Floor
from market.lanes.futures_outcomes import FutureOutcomes
from market.lanes.group_outcomes import GroupOutcomes
from market.lanes.keeping import Keeper
from market.lanes.leasing import BidStep, Opening, blame_for, reverted


class Outcomes:
    """Applies chain events to the floor."""

    def __init__(
        self, floor: Floor, futures: FutureOutcomes, groups: GroupOutcomes, keeper: Keeper
    ) -> None:
        self._floor, self._futures, self._groups, self._keeper = floor, futures, groups, keeper

    def apply(self, event: ChainEvent) -> None:
        """Take one fact in; facts about strangers are facts too."""
        floor = self._floor
        before = floor.ledger.leases.get(lease) if (lease := _lease_of(event)) else None
        known = _ask_behind(event, floor)
        contract = _contract_before(event, floor)
        floor.ledger.apply(event)
        self._futures.apply(event, contract)
        self._groups.apply(event)
        self._keeper.apply(event)
        match event:
            case ChainAdvanced():
                floor.shelf.expire(floor.now, floor.at)
                floor.answers.forget(floor.now)
                return
            case ChainReorganised():
                self._rewound()
            case EntrySkipped():
                self._skipped(event)
            case TransactionFailed():
                self._failed(event.call, event.error)
            case BidsCancelled():
                self._void_spent(event.account)
            case FutureOpened():
                self._void_spent(event.long)
                self._void_spent(event.short)
            case LeaseOpened():
                self._opened(event, known)
            case ProductRegistered():
                floor.out.append(ListProduct(product=floor.ledger.products[event.product]))
            case DelegationChanged():
                floor.shelf.sync_all(floor.at)
            case MachinesNominated() | FutureAssigned():
                self._withhold(event)
            case _:
                pass
        if lease is not None:
            self._report_lease(event, lease, before)
        if (machine := _machine_of(event)) is not None:
            floor.shelf.sync(machine, floor.at)
        floor.has_news = True

    def _opened(self, event: LeaseOpened, known: RestingAsk | None) -> None:
        floor = self._floor
        bid = floor.book.bid(event.bid)
        if bid is None:
            return
        floor.ledger.void(*bid.nonce)
        opening = floor.openings.of(bid.id)
        if opening is not None and event.terms.key in opening.leases:
            floor.book.release(event.terms.key.machine, bid.id)
            floor.openings.put(opening.settled())
            floor.answers.move(
                bid,
                BidStep.OPEN,
                price=opening.price,
                leases=opening.leases,  # one transaction made them all
                adverts=opening.adverts,
            )
        else:  # the buyer opened it with another ask: ours can no longer open
            if opening is not None:
                floor.drop_opening(opening)
            self._opened_elsewhere(bid, event, known)
        self._void_alternatives(bid)
        self._futures.void_spent(bid.nonce[0])

    def _opened_elsewhere(
        self, bid: RestingBid, event: LeaseOpened, known: RestingAsk | None
    ) -> None:
        """Of a gang the leases come one by one."""
        is_first = bid.state is not BidState.OPENED
        price, leases, adverts = None, [event.terms.key], [known.advert] if known else []
        if known is not None and cap_of(bid, known) == event.terms.cap:
            # The machine's node is where it was; its ask may be a newer one at another price.
            price = known.ask.payload.min_price_per_hour
        self._floor.answers.move(
            bid,
            BidStep.OPEN,
            price=price,
            leases=tuple(leases if is_first else [*bid.report.leases, *leases]),
            adverts=tuple(adverts if is_first else [*bid.report.adverts, *adverts]),
        )

    def _void_alternatives(self, opened: RestingBid) -> None:
        for bid in self._floor.book.alternatives(opened.nonce):
            if bid.state is BidState.PENDING:
                self._floor.answers.void(bid)

    def _void_spent(self, account: Address) -> None:
        for bid in self._floor.book.live_of(account):
            if bid.state is BidState.PENDING and self._floor.ledger.is_void(*bid.nonce):
                self._floor.answers.void(bid)

    def _withhold(self, event: MachinesNominated | FutureAssigned) -> None:
        floor = self._floor
        contract = floor.ledger.futures.contracts.get(event.contract)
        if contract is None:
            return
        for index in contract.machines:
            machine = MachineKey(provider=contract.short, index=index)
            floor.shelf.withhold(machine, floor.rules, floor.at)

    def _skipped(self, event: EntrySkipped) -> None:
        match event.call:
            case OpenBatch(matches=matches) if event.position < len(matches):
                bid, refused = matches[event.position].bid.payload.id, 0
            case OpenGang(bid=signed, asks=asks) if event.position < len(asks):
                bid, refused = signed.payload.id, event.position
            case _:
                return
        opening = self._floor.openings.of(bid)
        if opening is not None and not opening.is_settled and opening.call == event.call:
            blame = blame_for(event.rejection)
            self._floor.give_up(opening, event.rejection, blame, refused)

    def _failed(self, call: ChainCall, error: str) -> None:
        if isinstance(call, OpenBatch | OpenGang):
            for opening in self._floor.openings.in_call(call):
                self._floor.give_up(opening, reverted(error))

    def _rewound(self) -> None:
        """Blocks vanished: what opened in them is on its way again, or waits again."""
        floor = self._floor
        for bid in list(floor.book.bids()):
            if bid.state is not BidState.OPENED or floor.ledger.is_void(*bid.nonce):
                continue
            bid = floor.answers.move(bid, BidStep.UNDO)
            opening = floor.openings.of(bid.id)
            holders = {floor.book.holder(ask.machine) for ask in opening.asks} if opening else set()
            if opening is not None and holders <= {None, bid.id}:
                self._post_again(bid, opening)
            else:
                floor.openings.drop(bid.id)
        floor.out += [
            ReportLease(report=report) for _, report in sorted(floor.ledger.leases.items())
        ]
        floor.shelf.sync_all(floor.at)

    def _post_again(self, bid: RestingBid, opening: Opening) -> None:
        floor = self._floor
        for ask in opening.asks:
            floor.book.release(ask.machine, bid.id)
            floor.book.hold(ask.machine, bid.id)
        floor.openings.put(opening.posted_again(floor.now))
        floor.answers.move(bid, BidStep.MATCH, price=opening.price, adverts=opening.adverts)

    def _report_lease(self, event: ChainEvent, lease: LeaseKey, before: LeaseReport | None) -> None:
        report = self._floor.ledger.leases.get(lease)
        if isinstance(event, LeaseClosed) and before is not None:
            report = msgspec.structs.replace(
                before, state=LeaseState.CLOSED, paid=event.paid, reason=event.reason
            )
        if report is not None and report != before:
            self._floor.out.append(ReportLease(report=report))


def _contract_before(event: ChainEvent, floor: Floor) -> FutureContract | None:
    if not isinstance(event, FutureEvent):
        return None
    return floor.ledger.futures.contracts.get(event.contract)


def _ask_behind(event: ChainEvent, floor: Floor) -> RestingAsk | None:
    """The ask from which a lease opened, before the opening makes it a dead one."""
    if not isinstance(event, LeaseOpened):
        return None
    ask = floor.book.ask_of(event.terms.key.machine)
    return ask if ask is not None and ask.ask.payload.lease == event.terms.key else None


def _lease_of(event: ChainEvent) -> LeaseKey | None:
    if isinstance(event, LeaseOpened):
        return event.terms.key
    lease = getattr(event, "lease", None)
    return lease if isinstance(lease, LeaseKey) else None


def _machine_of(event: ChainEvent) -> MachineKey | None:
    lease = _lease_of(event)
    if lease is not None:
        return lease.machine
    machine = getattr(event, "machine", None)
    return machine if isinstance(machine, MachineKey) else None
