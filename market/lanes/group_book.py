"""Group buys that this market keeps: campaigns, pledges handed in, asks that may serve them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cloud_gpu.protocol.calls import CloseCampaign, LockPledge
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.group_buy import CampaignOffer, Pledge
from cloud_gpu.protocol.group_reports import CampaignState, PledgeReport, PledgeState
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Instant, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from market.books.book import Nonce
from market.lanes.group_asks import GroupAsk, GroupAsks
from market.lanes.group_notices import Notices

OVER = (CampaignState.OPENED, CampaignState.REFUNDED)
"""Nothing is left to do, unless a block vanishes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """A campaign's leases, whose transaction is on its way; their machines are held."""

    call: CloseCampaign
    asks: tuple[GroupAsk, ...]
    posted_at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCampaign:
    """A campaign that this market answers for."""

    id: Digest
    offer: CampaignOffer
    number: int
    listed_at: int
    state: CampaignState = CampaignState.GATHERING
    closing: Closing | None = None
    failures: int = 0
    """How often its closing failed."""
    not_before: Instant = 0
    """No new closing earlier, after a failure."""
    rejection: Rejection | None = None
    """Why the last one failed."""
    looked_at: Instant = 0
    """When it was looked at last, by our clock."""
    seen_at: int = 0
    """The same by the later of our clock and the chain's, Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPledge:
    """A pledge that was handed in here."""

    pledge: Signed[Pledge]
    inbox: int
    amount: TokenAmount
    """What it locks."""
    call: LockPledge
    report: PledgeReport

    @property
    def id(self) -> Digest:
        """Its struct hash."""
        return self.report.pledge

    @property
    def is_waiting(self) -> bool:
        """Not on the chain yet."""
        return self.report.state is PledgeState.WAITING


class GroupBook:
    """Changes only by the calls below; equal calls, equal book."""

    def __init__(self) -> None:
        self.asks = GroupAsks()
        self.notices = Notices()
        self._campaigns: dict[Digest, KeptCampaign] = {}
        self._pledges: dict[Digest, SentPledge] = {}
        self._of: dict[Digest, dict[Digest, None]] = {}
        self._waiting: dict[Digest, None] = {}

    # Campaigns.

    def campaign(self, campaign: Digest) -> KeptCampaign | None:
        """One that was not forgotten yet."""
        return self._campaigns.get(campaign)

    def campaigns(self) -> Iterator[KeptCampaign]:
        """All, by number."""
        return iter(sorted(self._campaigns.values(), key=lambda each: each.number))

    def put(self, campaign: KeptCampaign) -> None:
        """A new one, or one that changed."""
        self._campaigns[campaign.id] = campaign

    def drop(self, campaign: Digest) -> None:
        """Forget one, with its pledges and notices."""
        del self._campaigns[campaign]
        for pledge in self._of.pop(campaign, {}):
            del self._pledges[pledge]
            self._waiting.pop(pledge, None)
        self.notices.drop(campaign)

    # Pledges.

    def pledge(self, pledge: Digest) -> SentPledge | None:
        """One that was not forgotten yet."""
        return self._pledges.get(pledge)

    def pledges_of(self, campaign: Digest) -> list[SentPledge]:
        """Those handed in for a campaign, in the order in which they came."""
        return [self._pledges[key] for key in self._of.get(campaign, {})]

    def waiting(self) -> list[SentPledge]:
        """Those on their way to the chain, in the order in which they came."""
        return sorted((self._pledges[key] for key in self._waiting), key=lambda each: each.inbox)

    def put_pledge(self, pledge: SentPledge) -> None:
        """A new one, or one that changed."""
        self._pledges[pledge.id] = pledge
        self._of.setdefault(pledge.report.campaign, {})[pledge.id] = None
        if pledge.is_waiting:
            self._waiting[pledge.id] = None
        else:
            self._waiting.pop(pledge.id, None)

    def locking(self) -> dict[Address, int]:
        """What pledges on their way will lock of each account's cash, base units."""
        sums: dict[Address, int] = {}
        for each in self.waiting():
            buyer = each.pledge.payload.buyer
            sums[buyer] = sums.get(buyer, 0) + each.amount.value
        return sums

    def nonces_of(self, account: Address) -> set[Nonce]:
        """Those of its pledges on their way."""
        own = (each.pledge.payload for each in self.waiting())
        return {(each.buyer, each.nonce) for each in own if each.buyer == account}

    # The whole.

    def rows(self) -> list[object]:
        """Everything in it in one fixed order, for a digest of the state."""
        campaigns: list[object] = [
            [
                each.id,
                each.number,
                each.listed_at,
                each.state,
                each.failures,
                each.not_before,
                each.rejection,
                each.looked_at,
                each.seen_at,
                [each.closing.posted_at, [ask.id for ask in each.closing.asks]]
                if each.closing is not None
                else [],
            ]
            for each in self.campaigns()
        ]
        pledges: list[object] = [
            [each.inbox, each.report] for _, each in sorted(self._pledges.items())
        ]
        return [campaigns, pledges, self.asks.rows(), self.notices.rows()]
