"""A provider, a buyer and a market on a deployed LeaseBook, and the calls of their leases."""

from dataclasses import dataclass

from cloud_gpu.protocol.calls import (
    Begin,
    CloseBatch,
    Closing,
    MatchedOrders,
    OpenBatch,
    PostReady,
    SettleBatch,
)
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import KeyRole, LocalKey
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from cloud_gpu.protocol.voucher import Accept, Final, Ready, Voucher
from tests.support.anvil import Deployed

PRICE = Price(3_600_000)
"""3.60 tokens an hour: 1,000 base units a GPU-second."""
FEE = BasisPoints(250)
BOND_TOKENS = 50
NO_AUDITS = BasisPoints(0)
RUNTIME = Digest(b"\x11" * 32)


@dataclass(frozen=True)
class Trading:
    """Everything that a lease needs: machine 0 of `provider` is free."""

    deployed: Deployed
    provider: LocalKey
    node: LocalKey
    buyer: LocalKey
    session: LocalKey
    matcher: LocalKey
    product: int
    market_id: int
    since: int
    """Chain time when trading began, Unix seconds: orders made twice are the same."""
    flags: int = 0
    """Of the product and of both orders."""
    audit_bps: BasisPoints = NO_AUDITS

    @property
    def machine(self) -> MachineKey:
        return MachineKey(provider=self.provider.address, index=0)

    def lease(self, seq: int = 1, index: int = 0) -> LeaseKey:
        return LeaseKey(provider=self.provider.address, index=index, seq=seq)

    def ask(self, seq: int = 1, index: int = 0) -> Signed[Ask]:
        ask = Ask(
            provider=self.provider.address,
            index=index,
            seq=seq,
            product=self.product,
            min_price_per_hour=PRICE,
            min_duration=10,
            max_duration=86_400,
            start_by=self.since + 3_600,
            matcher=self.matcher.address,
            max_fee_bps=FEE,
            flags=self.flags,
        )
        return sign(ask, self.deployed.deployment.domain, self.node)

    def bid(
        self, nonce: int = 0, duration: int = 600, signer: LocalKey | None = None
    ) -> Signed[Bid]:
        bid = Bid(
            buyer=self.buyer.address,
            product=self.product,
            count=1,
            max_price_per_hour=PRICE,
            duration=duration,
            start_by=self.since + 3_600,
            open_from=self.since + 3_600,
            nonce=nonce,
            matcher=self.matcher.address,
            max_fee_bps=FEE,
            audit_bps=self.audit_bps,
            flags=self.flags,
            terms=ZERO_DIGEST,
        )
        return sign(bid, self.deployed.deployment.domain, signer or self.buyer)

    def opening(self, *pairs: tuple[Signed[Ask], Signed[Bid]]) -> OpenBatch:
        matches = tuple(MatchedOrders(ask=ask, bid=bid) for ask, bid in pairs)
        return OpenBatch(
            product=self.product, price=PRICE, market_id=self.market_id, matches=matches
        )

    def cap(self, duration: int = 600) -> TokenAmount:
        return cost_down(PRICE, self.bid(duration=duration).payload.quantity)

    def ready(self, lease: LeaseKey) -> Signed[Ready]:
        ready = Ready(
            provider=lease.provider, index=lease.index, seq=lease.seq, runtime_hash=RUNTIME
        )
        return sign(ready, self.deployed.deployment.domain, self.node)

    def posting(self, lease: LeaseKey) -> PostReady:
        return PostReady(ready=self.ready(lease))

    def beginning(self, lease: LeaseKey, started_at: int) -> Begin:
        accept = Accept(
            provider=lease.provider, index=lease.index, seq=lease.seq, started_at=started_at
        )
        signed = sign(accept, self.deployed.deployment.domain, self.session)
        return Begin(ready=self.ready(lease), accept=signed)

    def voucher(
        self, lease: LeaseKey, amount: int, signer: LocalKey | None = None
    ) -> Signed[Voucher]:
        voucher = Voucher(
            provider=lease.provider, index=lease.index, seq=lease.seq, amount=TokenAmount(amount)
        )
        return sign(voucher, self.deployed.deployment.domain, signer or self.session)

    def final(self, lease: LeaseKey, amount: int, signer: LocalKey) -> Signed[Final]:
        final = Final(
            provider=lease.provider, index=lease.index, seq=lease.seq, amount=TokenAmount(amount)
        )
        return sign(final, self.deployed.deployment.domain, signer)

    def settling(self, *vouchers: Signed[Voucher]) -> SettleBatch:
        return SettleBatch(vouchers=vouchers)

    def closing(self, lease: LeaseKey, amount: int, *, early: bool) -> CloseBatch:
        agreed = Closing(
            voucher=self.voucher(lease, amount),
            final=self.final(lease, amount, self.node),
            buyer_final=self.final(lease, amount, self.session) if early else None,
        )
        return CloseBatch(closings=(agreed,))


def trading_on(
    deployed: Deployed,
    machines: int = 1,
    *,
    flags: int = 0,
    notice_s: int = 0,
    audit_bps: BasisPoints = NO_AUDITS,
) -> Trading:
    """Register everybody and put machines up for rent."""
    provider = deployed.member("provider", max(1_000, BOND_TOKENS * machines))
    buyer = deployed.member("buyer")
    matcher = deployed.member("matcher", tokens=0)
    node, session = deployed.key("node"), deployed.key("session")
    expiry = deployed.anvil.time() + 30 * 86_400
    with deployed.wallet(provider) as wallet:
        product = wallet.register_product(
            gpu_class=GpuClass("A100-SXM4-80GB"),
            slice_gpus=1,
            min_bond=BasisPoints(1_000),
            penalty=BasisPoints(1_000),
            notice=notice_s,
            flags=flags,
        )
        for index in range(machines):
            bond = TokenAmount(BOND_TOKENS * deployed.deployment.bond_unit.value)
            wallet.add_machine(index, bond, product)
        wallet.set_delegate(node, KeyRole.NODE, expiry)
    with deployed.wallet(buyer) as wallet:
        wallet.set_delegate(session, KeyRole.SESSION, expiry)
    with deployed.wallet(matcher) as wallet:
        market_id = wallet.register_market(FEE)
    return Trading(
        deployed=deployed,
        provider=provider,
        node=node,
        buyer=buyer,
        session=session,
        matcher=matcher,
        product=product,
        market_id=market_id,
        since=deployed.anvil.time(),
        flags=flags,
        audit_bps=audit_bps,
    )
