"""What a market answers about group buys: campaigns, pledges, their leases, and what it tells whom.

Everybody checks it against the chain; the market's word moves no money.
"""

from __future__ import annotations

from enum import StrEnum

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.group_buy import Campaign
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.units import ZERO_TOKENS, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value


class CampaignState(StrEnum):
    """How far a campaign has come."""

    GATHERING = "gathering"
    """Fewer slices are pledged than its goal."""
    REACHED = "reached"
    """Enough are; it waits for its window, for machines, or for the chain."""
    OPENED = "opened"
    """Its leases are open."""
    FAILED = "failed"
    """Its deadline passed; pledges are on their way back."""
    REFUNDED = "refunded"
    """It failed, and nobody's money is locked any more."""
    REFUSED = "refused"
    """This market does not keep it."""


class PledgeState(StrEnum):
    """What became of a pledge."""

    WAITING = "waiting"
    """Durable at the market; not on the chain yet."""
    LOCKED = "locked"
    SERVED = "served"
    """Leases opened for some or all of its slices; what it pledged beyond came back."""
    REFUNDED = "refunded"
    """All of it came back."""
    REFUSED = "refused"
    """The market or the chain did not take it; nothing was locked."""


class PledgeReport(Value, frozen=True, kw_only=True):
    """How far a pledge has come that was handed in here. Locked: `place` names it on the chain."""

    pledge: Digest
    """Its struct hash."""
    campaign: Digest
    state: PledgeState
    rejection: Rejection | None = None
    place: int | None = None


class LockedPledge(Value, frozen=True, kw_only=True):
    """A pledge as the chain tells of it."""

    place: int
    buyer: Address
    slices: int
    amount: TokenAmount
    """What it locked."""
    state: PledgeState = PledgeState.LOCKED
    served: int = 0
    """Of its slices."""
    refunded: TokenAmount = ZERO_TOKENS


class GroupLease(Value, frozen=True, kw_only=True):
    """A lease that a campaign opened."""

    lease: LeaseKey
    buyer: Address
    advert: SignedAdvert | None = None
    """The ask behind it, with its node's addresses; None: this market never heard it."""


class CampaignReport(Value, frozen=True, kw_only=True):
    """A campaign and how far it has come."""

    id: Digest
    number: int
    """Its place among this market's campaigns, ascending."""
    campaign: Campaign
    providers: tuple[Address, ...] = ()
    """Who alone may serve it; empty: anybody."""
    state: CampaignState
    listed_at: int
    """Unix seconds."""
    pledges: int
    slices: int
    """Pledged in all, also after it closed."""
    missing_slices: int
    """Until its goal."""
    machines: int
    """That could serve it now."""
    missing_machines: int
    """Until its goal; 0 once it closed."""
    leases: int = 0
    rejection: Rejection | None = None
    """Why its leases did not open when the market tried last."""


class CampaignPage(Value, frozen=True, kw_only=True):
    """A group buy, its pledges by place, and its price beside the spot price."""

    report: CampaignReport
    pledges: tuple[LockedPledge, ...]
    spot_per_hour: Price | None = None
    """The cheapest ask on offer for its product now; None: there is none."""
    of_spot_bps: int | None = None
    """The campaign's price in basis points of that; below 10,000 it is the better one."""


class NoticeKind(StrEnum):
    """What a notice tells."""

    LISTED = "listed"
    """To its organiser: pledges are taken."""
    PLEDGED = "pledged"
    """To the buyer: `amount` is locked."""
    HALF = "half"
    """Half of the goal is pledged."""
    REACHED = "reached"
    DEADLINE_NEAR = "deadline-near"
    """It closes soon and no lease is open."""
    LEASES_OPENED = "leases-opened"
    """To the buyer: begin them within the start window."""
    FAILED = "failed"
    """`amount` of the account's can be taken back; the market does it."""
    REFUNDED = "refunded"
    """To the buyer: `amount` came back."""
    UNDONE = "undone"
    """A block vanished, and with it what the notice of kind `undone` told."""


class CampaignNotice(Value, frozen=True, kw_only=True):
    """Something that a campaign's organiser or member should know."""

    number: int
    """Its place among all notices of this market, ascending: the cursor."""
    at: int
    """Unix seconds."""
    campaign: Digest
    account: Address
    kind: NoticeKind
    slices: int
    """Pledged then."""
    goal: int
    amount: TokenAmount = ZERO_TOKENS
    leases: tuple[LeaseKey, ...] = ()
    place: int | None = None
    """Of the pledge concerned."""
    undone: NoticeKind | None = None
