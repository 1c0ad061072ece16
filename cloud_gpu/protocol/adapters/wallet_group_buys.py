"""An account's own calls of GroupBuy, each waited for, and what the contract holds. Blocking."""

from __future__ import annotations

from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.bindings import group_buy as bound
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.adapters.evm_group_buys import group_call
from cloud_gpu.protocol.adapters.evm_rpc import Rpc
from cloud_gpu.protocol.calls import LockPledge, RefundPledge
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.group_buy import Campaign, HeldCampaign, Pledge
from cloud_gpu.protocol.group_reports import LockedPledge
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest


class WalletGroupBuys:
    """What `Wallet` is to LeaseBook, for GroupBuy; raises as it does."""

    def __init__(self, rpc: Rpc, sender: DirectSender, deployment: Deployment) -> None:
        self._rpc, self._sender, self._address = rpc, sender, deployment.group_buy

    def held(self, campaign: Digest) -> HeldCampaign:
        """What is pledged to a campaign; one that nobody pledged to has nothing."""
        found = views.ask(self._rpc, self._address, bound.state_of(campaign.raw))
        return HeldCampaign(slices=found.slices, pledges=found.pledges, is_closed=found.closed)

    def pledges(self, campaign: Digest) -> tuple[LockedPledge, ...]:
        """Pledges that are locked now, by place."""
        places = range(self.held(campaign).pledges)
        asked = [bound.pledge_of(campaign.raw, place) for place in places]
        found = views.ask_all(self._rpc, self._address, asked)
        return tuple(
            LockedPledge(
                place=place, buyer=row.buyer, slices=row.slices, amount=TokenAmount(row.amount)
            )
            for place, row in zip(places, found, strict=True)
            if not row.buyer.is_zero
        )

    def lock(self, campaign: Campaign, pledge: Signed[Pledge]) -> None:
        """Lock a signed pledge."""
        call = group_call(LockPledge(campaign=campaign, pledge=pledge))
        self._sender.send(self._address, call.calldata)

    def refund(self, campaign: Campaign, place: int) -> None:
        """Return a pledge of a campaign that did not close in time."""
        call = group_call(RefundPledge(campaign=campaign, place=place))
        self._sender.send(self._address, call.calldata)
