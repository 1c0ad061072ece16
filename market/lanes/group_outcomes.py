"""What the chain made of the market's group buys: pledges locked, leases opened, money back."""

from __future__ import annotations

import re
from typing import Final

from cloud_gpu.protocol.calls import ChainCall, CloseCampaign, LockPledge
from cloud_gpu.protocol.chain_events import (
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    LeaseOpened,
    TransactionFailed,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.future_events import FutureEvent
from cloud_gpu.protocol.group_events import GroupEvent, PledgeLocked
from cloud_gpu.protocol.group_reports import GroupLease, PledgeState
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from market.lanes.floor import Floor
from market.lanes.group_lane import GroupLane
from market.lanes.group_pledging import Pledging

_ASK_REFUSED: Final = re.compile(r"GroupBuy_AskRefused\(index=(\d+),")


class GroupOutcomes:
    """Applies chain events to group buys, after the ledger took them in."""

    def __init__(self, floor: Floor, lane: GroupLane, pledges: Pledging) -> None:
        self._floor, self._lane, self._book = floor, lane, floor.groups
        self._pledges = pledges

    def apply(self, event: ChainEvent) -> None:
        """Take one fact in; campaigns that were never told of are no error."""
        match event:
            case ChainAdvanced():
                self._lane.end_block()
            case ChainReorganised():
                self._lane.end_block()
                self._rewound()
            case TransactionFailed():
                self._failed(event.call, event.error)
            case LeaseOpened():
                self._opened(event)
            case _ if isinstance(event, GroupEvent):
                self._lane.begin_block()
                self._lane.look_at(event.campaign)
                if isinstance(event, PledgeLocked):
                    self._locked(event)
            case _ if isinstance(event, FutureEvent):
                if (
                    contract := self._floor.ledger.futures.contracts.get(event.contract)
                ) is not None:
                    self._lane.supply_changed(contract.series.product)
            case _:
                pass
        machine = getattr(event, "machine", None) or getattr(event, "lease", None)
        if machine is not None:
            self._supply_changed(machine)

    def _supply_changed(self, of: MachineKey | LeaseKey) -> None:
        row = self._floor.ledger.machines.get(of.machine if isinstance(of, LeaseKey) else of)
        if row is not None:
            self._lane.supply_changed(row.product)

    def _locked(self, event: PledgeLocked) -> None:
        """The log names no nonce: the oldest equal pledge on its way is the one."""
        for each in self._book.pledges_of(event.campaign):
            said = each.pledge.payload
            if each.is_waiting and (said.buyer, said.slices) == (event.buyer, event.slices):
                self._floor.ledger.void(said.buyer, said.nonce)
                self._pledges.move(each, PledgeState.LOCKED, place=event.place)
                return

    def _opened(self, event: LeaseOpened) -> None:
        row = self._floor.ledger.groups.row(event.bid)
        if row.closed is None:
            return  # some bid's lease, not a campaign's
        key = event.terms.key
        ask = self._book.asks.of(key.machine)
        advert = ask.advert if ask is not None and ask.ask.payload.lease == key else None
        self._supply_changed(key)
        lease = GroupLease(lease=key, buyer=event.terms.buyer, advert=advert)
        self._floor.ledger.groups.opened(event.bid, lease)

    def _failed(self, call: ChainCall, error: str) -> None:
        if isinstance(call, LockPledge):
            pledge = self._book.pledge(call.pledge.payload.id)
            if pledge is not None and pledge.is_waiting:
                self._pledges.move(pledge, PledgeState.REFUSED, rejection=_not_locked(error))
        elif isinstance(call, CloseCampaign):
            for each in list(self._book.campaigns()):
                if each.closing is not None and each.closing.call == call:
                    found = _ASK_REFUSED.match(error)
                    place = int(found.group(1)) if found is not None else None
                    self._lane.give_up(each, error, place)

    def _rewound(self) -> None:
        """Blocks vanished: pledges in them are on their way again."""
        for campaign in self._book.campaigns():
            places = {each.place for each in self._floor.ledger.groups.row(campaign.id).pledges}
            for each in self._book.pledges_of(campaign.id):
                if each.report.state is PledgeState.LOCKED and each.report.place not in places:
                    self._pledges.move(each, PledgeState.WAITING)
        self._lane.look_at_all()


def _not_locked(error: str) -> Rejection:
    return Rejection(
        reason=RejectReason.WRONG_STATE,
        field="pledge",
        found=error[:500],
        needed="a pledge that GroupBuy locks",
        next="Mend what it names, and sign another pledge.",
    )
