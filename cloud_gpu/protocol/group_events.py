"""Past facts of GroupBuy on the chain; see `chain_events`, whose union they are part of.

What they move of accounts' cash is told besides, as `CashChanged`; a lease that a campaign opens
is told as `LeaseOpened`, with the campaign's id for its bid.
"""

from __future__ import annotations

from typing import TypeAlias

from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value


class _Event(Value, frozen=True, kw_only=True, tag=True):
    pass


class PledgeLocked(_Event, frozen=True, kw_only=True):
    """`amount` is locked for `slices` leases; `place` names the pledge in its campaign."""

    campaign: Digest
    buyer: Address
    place: int
    slices: int
    amount: TokenAmount
    at: int


class CampaignClosed(_Event, frozen=True, kw_only=True):
    """So many leases open, to the pledges in their order; their `LeaseOpened` follow."""

    campaign: Digest
    leases: int
    at: int


class PledgeRefunded(_Event, frozen=True, kw_only=True):
    """`amount` went back: the campaign failed, or closed without some or all of the slices."""

    campaign: Digest
    buyer: Address
    place: int
    amount: TokenAmount
    at: int


GroupEvent: TypeAlias = PledgeLocked | CampaignClosed | PledgeRefunded
