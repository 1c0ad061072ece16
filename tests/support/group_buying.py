"""A group buy on a deployed GroupBuy: its organiser, its members, and what each of them signs."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_gpu.protocol.adapters.evm_calls import calldata, destination
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.calls import Begin, ChainCall, CloseBatch, Closing, LockPledge, PostReady
from cloud_gpu.protocol.group_buy import Campaign, CampaignOffer, Pledge, SignedCampaign
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Signed, sign, state
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest
from cloud_gpu.protocol.voucher import Accept
from tests.support.trading import PRICE, Trading

DURATION_S = 600


@dataclass(frozen=True)
class GroupBuying:
    """One campaign for `goal` machines of the trading's provider, ten minutes each."""

    trading: Trading
    members: tuple[LocalKey, ...]
    offer: SignedCampaign

    @property
    def campaign(self) -> Campaign:
        return self.offer.body.campaign

    @property
    def id(self) -> Digest:
        return self.campaign.id_in(self.trading.deployed.deployment.group_buy_domain)

    @property
    def cost(self) -> TokenAmount:
        """Of a lease."""
        return self.campaign.cost(1)

    def pledge(self, member: LocalKey, slices: int = 1, *, nonce: int = 0) -> Signed[Pledge]:
        pledge = Pledge(
            buyer=member.address,
            campaign_id=self.id,
            max_amount=TokenAmount(self.cost.value * slices),
            slices=slices,
            nonce=nonce,
        )
        return sign(pledge, self.trading.deployed.deployment.group_buy_domain, member)

    def send(self, key: LocalKey, call: ChainCall) -> None:
        """By this key itself, and wait for the block."""
        deployed = self.trading.deployed
        sender = DirectSender(deployed.anvil.rpc, key)
        sender.send(destination(call, deployed.deployment), calldata(call))

    def lock(self, member: LocalKey) -> None:
        """The member pledges on chain, past any market."""
        self.send(member, LockPledge(campaign=self.campaign, pledge=self.pledge(member)))

    def cash(self, *keys: LocalKey) -> list[int]:
        """In the vault, base units."""
        found = []
        for key in keys:
            with self.trading.deployed.wallet(key) as wallet:
                found.append(wallet.account().cash.value)
        return found

    def run(self, lease: LeaseKey, member: LocalKey) -> None:
        """Node and member begin the lease."""
        t = self.trading
        accept = Accept(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            started_at=t.deployed.anvil.time(),
        )
        signed = sign(accept, t.deployed.deployment.domain, member)
        self.send(t.node, PostReady(ready=t.ready(lease)))
        self.send(t.node, Begin(ready=t.ready(lease), accept=signed))

    def settle(self, lease: LeaseKey, member: LocalKey) -> None:
        """Its time is over; the member's voucher pays all of it."""
        t, amount = self.trading, self.cost
        voucher = t.voucher(lease, amount.value, member)
        closing = Closing(voucher=voucher, final=t.final(lease, amount.value, t.node))
        self.send(t.node, CloseBatch(closings=(closing,)))


def group_buying(
    trading: Trading, *names: str, goal: int, within_s: int, organiser: LocalKey | None = None
) -> GroupBuying:
    """A campaign of the trading's buyer, which closes at the latest so many seconds from now."""
    deployed = trading.deployed
    signer, at = organiser or trading.buyer, deployed.anvil.time()
    campaign = Campaign(
        organiser=signer.address,
        product=trading.product,
        price_per_hour=PRICE,
        duration=DURATION_S,
        goal=goal,
        window_start=at,
        deadline=at + within_s,
        market_id=trading.market_id,
    )
    offer = state(
        CampaignOffer(campaign=campaign),
        deployed.deployment.domain,
        signer,
        nonce=1,
        expiry=at + 3_600,
    )
    return GroupBuying(trading, tuple(deployed.member(name) for name in names), offer)
