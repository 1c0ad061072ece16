"""Group buys as the chain tells of them: pledges locked, campaigns closed, leases opened.

Part of the ledger: what a block changed is taken back with it. GroupBuy's logs name a campaign by
its id alone, so rows are kept of campaigns, too, whose terms nobody told this market.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cloud_gpu.protocol.group_events import (
    CampaignClosed,
    GroupEvent,
    PledgeLocked,
    PledgeRefunded,
)
from cloud_gpu.protocol.group_reports import GroupLease, LockedPledge, PledgeState
from cloud_gpu.protocol.values import Digest, Value
from market.undo import UndoLog

KEPT_S: Final = 24 * 3600
"""How long a row stays when none of its pledges is locked any more."""


class CampaignRow(Value, frozen=True, kw_only=True):
    """One campaign on the chain."""

    pledges: tuple[LockedPledge, ...] = ()
    """By place."""
    closed: int | None = None
    """With how many leases; None: it is open."""
    leases: tuple[GroupLease, ...] = ()
    """Those that were told of, in the order of the pledges."""
    changed_at: int = 0
    """Unix seconds."""

    @property
    def slices(self) -> int:
        """Pledged in all, also after it closed."""
        return sum(each.slices for each in self.pledges)

    @property
    def locked(self) -> tuple[LockedPledge, ...]:
        """Pledges whose money is neither spent nor back."""
        return tuple(each for each in self.pledges if each.state is PledgeState.LOCKED)


EMPTY_ROW: Final = CampaignRow()


class GroupPledges:
    """Campaigns by id."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self.campaigns: dict[Digest, CampaignRow] = {}

    def tables(self) -> Iterator[tuple[str, Mapping[Any, object]]]:
        """For a digest of the state."""
        yield "group_buys", MappingProxyType(self.campaigns)

    def row(self, campaign: Digest) -> CampaignRow:
        """A campaign's row; an empty one where nobody pledged yet."""
        return self.campaigns.get(campaign, EMPTY_ROW)

    def apply(self, event: GroupEvent) -> None:
        """Take one fact in."""
        before = self.campaigns.get(event.campaign, EMPTY_ROW)
        self._undo.set(self.campaigns, event.campaign, row_after(before, event))

    def opened(self, campaign: Digest, lease: GroupLease) -> None:
        """A closed campaign's lease opened, in the block whose events are coming in."""
        before = self.campaigns[campaign]
        after = msgspec.structs.replace(before, leases=(*before.leases, lease))
        self._undo.set(self.campaigns, campaign, after)

    def forget(self, at: int) -> None:
        """Drop rows that nothing can concern any more."""
        over = [
            key
            for key, row in self.campaigns.items()
            if row.changed_at < at - KEPT_S and not row.locked
        ]
        for key in over:
            self._undo.remove(self.campaigns, key)


def row_after(row: CampaignRow, event: GroupEvent) -> CampaignRow:
    """A campaign's row after a fact about it."""
    match event:
        case PledgeLocked():
            pledge = LockedPledge(
                place=event.place, buyer=event.buyer, slices=event.slices, amount=event.amount
            )
            pledges = (*row.pledges, pledge)
            return msgspec.structs.replace(row, pledges=pledges, changed_at=event.at)
        case CampaignClosed(leases=leases):
            return msgspec.structs.replace(
                row, pledges=_served(row.pledges, leases), closed=leases, changed_at=event.at
            )
        case PledgeRefunded():
            pledges = tuple(
                _refunded(each, event) if each.place == event.place else each
                for each in row.pledges
            )
            return msgspec.structs.replace(row, pledges=pledges, changed_at=event.at)


def _served(pledges: tuple[LockedPledge, ...], leases: int) -> tuple[LockedPledge, ...]:
    """Leases go to the pledges in their order; those beyond wait for their refund's own log."""
    found = []
    for each in pledges:
        served = min(each.slices, leases)
        leases -= served
        state = PledgeState.SERVED if served else each.state
        found.append(msgspec.structs.replace(each, served=served, state=state))
    return tuple(found)


def _refunded(pledge: LockedPledge, event: PledgeRefunded) -> LockedPledge:
    state = pledge.state if pledge.served else PledgeState.REFUNDED
    return msgspec.structs.replace(pledge, refunded=event.amount, state=state)
