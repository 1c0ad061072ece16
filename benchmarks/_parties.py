"""Buyers, providers and a market on a chain: their orders, and the calls of a lease's life."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from benchmarks._chain import Chain
from cloud_gpu.protocol.adapters.bindings import lease_book, payment_token
from cloud_gpu.protocol.adapters.wallet import prove_delegate
from cloud_gpu.protocol.calls import Begin, CloseBatch, Closing, MatchedOrders, OpenBatch
from cloud_gpu.protocol.identity import KeyRole, LocalKey
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import ZERO_DIGEST, Address, Digest
from cloud_gpu.protocol.voucher import Accept, Final, Ready, Voucher

TOKEN = 10**6
PRICE = Price(3_600_000)
"""3.60 tokens an hour: 1,000 base units a GPU-second."""
DURATION = 3_600
CAP = 3_600_000
FEE = BasisPoints(250)
BOND = 100
"""Tokens."""
NO_AUDITS = BasisPoints(0)
RUNTIME = Digest(b"\x11" * 32)
_DAY = 86_400
_FOREVER = 4_000_000_000


@dataclass(frozen=True)
class Party:
    """An account, and the key that signs for it day by day."""

    wallet: LocalKey
    daily: LocalKey


@dataclass(frozen=True)
class Machine:
    """One machine of a provider."""

    provider: Party
    index: int


@dataclass
class Market:
    """Everybody that trades on one chain."""

    chain: Chain
    flags: int = 0
    """Of products and orders."""
    audit_bps: BasisPoints = NO_AUDITS

    @cached_property
    def matcher(self) -> LocalKey:
        """Posts what matches; the market's account."""
        return self.member("matcher", 1)

    @cached_property
    def market_id(self) -> int:
        """Of the market whose fee leases pay."""
        self.chain.send(self.matcher, lease_book.register_market(FEE.value))
        return self.chain.ask(lease_book.counts()).markets

    @cached_property
    def product(self) -> int:
        """One GPU, a tenth of the cap as bond and as penalty."""
        row = lease_book.Product(
            gpu_class=b"A100".ljust(32, b"\0"),
            sheet_hash=ZERO_DIGEST.raw,
            region_group=bytes(16),
            slice_gpus=1,
            min_bond_bps=1_000,
            penalty_bps=1_000,
            notice=60,
            flags=self.flags,
        )
        self.chain.send(self.matcher, lease_book.register_product(row))
        return self.chain.ask(lease_book.counts()).products

    def member(self, name: str, tokens: int = 10_000) -> LocalKey:
        """An account with this many tokens in the vault."""
        key, amount = self.chain.key(name), tokens * TOKEN
        self.chain.send(key, lease_book.register())
        self.chain.send(key, payment_token.mint(key.address, amount))
        self.chain.send(key, payment_token.approve(self.chain.deployment.lease_book, amount))
        self.chain.send(key, lease_book.deposit(key.address, amount))
        return key

    def party(self, name: str, role: KeyRole, *, own_key: bool) -> Party:
        """`own_key`: another key than the wallet's signs day by day."""
        wallet = self.member(name)
        if not own_key:
            return Party(wallet, wallet)
        daily = self.chain.key(f"{name} daily")
        domain = self.chain.deployment.domain
        proof = prove_delegate(daily, domain, account=wallet.address, role=role, expiry=_FOREVER)
        self.chain.send(wallet, lease_book.set_delegate(daily.address, role, _FOREVER, proof.raw))
        return Party(wallet, daily)

    def machine(self, provider: Party, index: int) -> Machine:
        """Put up for rent."""
        self.chain.send(provider.wallet, lease_book.add_machine(index, BOND, self.product))
        return Machine(provider, index)

    # Orders.

    def ask(
        self, machine: Machine, *, flags: int | None = None, matcher: Address | None = None
    ) -> Signed[Ask]:
        """For the machine's next lease; `matcher`: another one, a module."""
        provider = machine.provider.wallet.address
        found = self.chain.ask(lease_book.machine_of(provider, machine.index))
        ask = Ask(
            provider=provider,
            index=machine.index,
            seq=found.next_seq,
            product=self.product,
            min_price_per_hour=PRICE,
            min_duration=60,
            max_duration=_DAY,
            start_by=self.chain.time() + 3_600,
            matcher=matcher or self.matcher.address,
            max_fee_bps=FEE,
            flags=self.flags if flags is None else flags,
        )
        return sign(ask, self.chain.deployment.domain, machine.provider.daily)

    def bid(
        self,
        buyer: Party,
        nonce: int,
        *,
        count: int = 1,
        duration: int = DURATION,
        flags: int | None = None,
        audit_bps: BasisPoints | None = None,
    ) -> Signed[Bid]:
        """A buyer's bid is signed by its wallet."""
        start_by = self.chain.time() + 3_600
        bid = Bid(
            buyer=buyer.wallet.address,
            product=self.product,
            count=count,
            max_price_per_hour=PRICE,
            duration=duration,
            start_by=start_by,
            open_from=start_by,
            nonce=nonce,
            matcher=self.matcher.address,
            max_fee_bps=FEE,
            audit_bps=self.audit_bps if audit_bps is None else audit_bps,
            flags=self.flags if flags is None else flags,
            terms=ZERO_DIGEST,
        )
        return sign(bid, self.chain.deployment.domain, buyer.wallet)

    def opening(self, pairs: list[tuple[Signed[Ask], Signed[Bid]]]) -> OpenBatch:
        """Of one call of the matcher, at one price."""
        matches = tuple(MatchedOrders(ask=ask, bid=bid) for ask, bid in pairs)
        return OpenBatch(
            product=self.product, price=PRICE, market_id=self.market_id, matches=matches
        )

    # A lease's life.

    def beginning(self, machine: Machine, buyer: Party, lease: LeaseKey) -> Begin:
        """At the chain's time."""
        ready = Ready(
            provider=lease.provider, index=lease.index, seq=lease.seq, runtime_hash=RUNTIME
        )
        signed = sign(ready, self.chain.deployment.domain, machine.provider.daily)
        return Begin(ready=signed, accept=self.accept(buyer, lease))

    def accept(self, buyer: Party, lease: LeaseKey) -> Signed[Accept]:
        """That the lease starts now."""
        body = Accept(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            started_at=self.chain.time(),
        )
        return sign(body, self.chain.deployment.domain, buyer.daily)

    def voucher(self, buyer: Party, lease: LeaseKey, amount: int) -> Signed[Voucher]:
        """A cumulative debt of this many base units."""
        body = Voucher(
            provider=lease.provider, index=lease.index, seq=lease.seq, amount=TokenAmount(amount)
        )
        return sign(body, self.chain.deployment.domain, buyer.daily)

    def final(self, signer: LocalKey, lease: LeaseKey, amount: int) -> Signed[Final]:
        """That this amount is the last."""
        body = Final(
            provider=lease.provider, index=lease.index, seq=lease.seq, amount=TokenAmount(amount)
        )
        return sign(body, self.chain.deployment.domain, signer)

    def closing(self, machine: Machine, buyer: Party, lease: LeaseKey, amount: int) -> Closing:
        """At the end of its time."""
        return Closing(
            voucher=self.voucher(buyer, lease, amount),
            final=self.final(machine.provider.daily, lease, amount),
        )

    def closings(self, each: list[Closing]) -> CloseBatch:
        """Of one call."""
        return CloseBatch(closings=tuple(each))
