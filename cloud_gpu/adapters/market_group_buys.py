"""The market's routes of group buys, for who waits for each answer. Blocking."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.adapters.portal import PORTAL
from cloud_gpu.protocol.group_buy import Pledge, SignedCampaign
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignPage,
    CampaignReport,
    CampaignState,
    GroupLease,
    PledgeReport,
)
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.values import Address, Digest

_SHOWN_MAX = "500"
"""What a market answers at once at most."""


class MarketGroupBuys:
    """See `cloud_gpu.group_buyer.GroupMarket`."""

    def __init__(self, market: HttpMarket) -> None:
        self._market = market

    def describe(self) -> MarketView:
        """What the market says of itself."""
        return PORTAL.call(self._market.describe)

    def open(self, offer: SignedCampaign) -> SignedReceipt:
        """Have a campaign listed; twice is once."""
        return PORTAL.call(self._market.ask, "POST", "/v1/group-buys", SignedReceipt, body=offer)

    def campaigns(
        self, product: int | None, state: CampaignState | None
    ) -> Sequence[CampaignReport]:
        """Campaigns, of all products or one, in all states or one; oldest first."""
        filters = {"product": product, "state": state}
        query = {name: str(found) for name, found in filters.items() if found is not None}
        query["limit"] = _SHOWN_MAX
        return PORTAL.call(self._market.listed, "/v1/group-buys", CampaignReport, query=query)

    def campaign(self, campaign: Digest) -> CampaignPage:
        """A campaign with its pledges."""
        return PORTAL.call(self._market.ask, "GET", f"/v1/group-buys/{campaign}", CampaignPage)

    def leases(self, campaign: Digest, buyer: Address) -> Sequence[GroupLease]:
        """What a campaign opened for a buyer."""
        return PORTAL.call(self._market.group_leases, campaign, buyer)

    def pledge(self, pledge: Signed[Pledge]) -> SignedReceipt:
        """Have a pledge locked; twice is once."""
        path = f"/v1/group-buys/{pledge.payload.campaign_id}/pledges"
        return PORTAL.call(self._market.ask, "POST", path, SignedReceipt, body=pledge)

    def report(self, campaign: Digest, pledge: Digest) -> PledgeReport:
        """How far a pledge is."""
        path = f"/v1/group-buys/{campaign}/pledges/{pledge}"
        return PORTAL.call(self._market.ask, "GET", path, PledgeReport)

    def notices(self, account: Address, after: int) -> Sequence[CampaignNotice]:
        """What an account should know, after a notice's number."""
        query = {"account": str(account), "after": str(after), "limit": _SHOWN_MAX}
        return PORTAL.call(self._market.listed, "/v1/notices", CampaignNotice, query=query)
