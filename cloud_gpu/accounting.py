"""Who had what before and after, and why: pure bookkeeping over chain reads and chain events.

`Books` is one look at every balance; `LeaseLife` one lease from open to end; `explain` ties the
difference of two looks to the leases between them, and says what no lease explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.chain_events import (
    ChainEvent,
    LeaseClosed,
    LeaseOpened,
    LeaseSettled,
    LeaseStarted,
    LeaseStopped,
    MachineAdded,
    MarketRegistered,
    PenaltyPaid,
    ProductRegistered,
)
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.settlement import settle
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one account has, base units."""

    wallet: int
    """Tokens outside the contract."""
    cash: int
    """In the vault, free to leave."""
    bond: int
    escrow: int
    """Locked for its leases as buyer and not paid yet."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.wallet + self.cash + self.bond + self.escrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Every balance at one block, base units."""

    block: int
    holdings: Mapping[Address, Holding]
    """Of every account that LeaseBook knows."""
    held: int
    """Tokens that LeaseBook's address holds, as the token says."""

    @property
    def liabilities(self) -> int:
        """What LeaseBook owes: cash, bonds and what is locked in leases."""
        return sum(h.cash + h.bond + h.escrow for h in self.holdings.values())

    @property
    def difference(self) -> int:
        """Held less owed: 0, or the contract is broken."""
        return self.held - self.liabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLife:
    """One lease as the chain tells it; times in Unix seconds, None: did not happen."""

    key: LeaseKey
    buyer: Address
    gpu_class: GpuClass
    gpus: int
    price: Price
    cap: TokenAmount
    duration: int
    market_id: int
    opened_at: int
    started_at: int | None = None
    closed_at: int | None = None
    paid: TokenAmount = field(default_factory=lambda: TokenAmount(0))
    """To the provider's side, the market's fee included."""
    fee: TokenAmount = field(default_factory=lambda: TokenAmount(0))
    penalty: TokenAmount = field(default_factory=lambda: TokenAmount(0))
    """From the machine's bond to the buyer."""
    reason: LeaseEndReason | None = None

    @property
    def refund(self) -> TokenAmount:
        """What came back of the cap; 0 while the lease is open."""
        return self.cap - self.paid if self.reason is not None else TokenAmount(0)


class _Ledger:
    """Follows leases through the events that concern them."""

    def __init__(self) -> None:
        self.lives: dict[LeaseKey, LeaseLife] = {}
        self.products: dict[int, ProductRegistered] = {}
        self.machines: dict[MachineKey, int] = {}
        self.markets: dict[int, MarketRegistered] = {}

    def apply(self, event: ChainEvent) -> None:
        match event:
            case ProductRegistered():
                self.products[event.product] = event
            case MachineAdded():
                self.machines[event.machine] = event.product
            case MarketRegistered():
                self.markets[event.market_id] = event
            case LeaseOpened(terms=terms):
                self.lives[terms.key] = self._opened(terms)
            case LeaseStarted():
                self._change(event.lease, started_at=event.started_at)
            case LeaseSettled():
                self._paid(event.lease, event.paid, fee_free=False)
            case PenaltyPaid():
                self._change(event.lease, penalty=event.amount)
            case LeaseClosed():
                no_show = event.reason is LeaseEndReason.BUYER_NO_SHOW
                self._paid(event.lease, event.paid, fee_free=no_show)
                self._change(event.lease, reason=event.reason, closed_at=event.at)
            case LeaseStopped() | _:
                pass  # the cap's rest returns at once; `refund` is told when the lease ends

    def _opened(self, terms: LeaseTerms) -> LeaseLife:
        product = self.products[self.machines[terms.key.machine]]
        return LeaseLife(
            key=terms.key,
            buyer=terms.buyer,
            gpu_class=product.gpu_class,
            gpus=product.slice_gpus,
            price=_price_of(terms.cap, product.slice_gpus * terms.duration),
            cap=terms.cap,
            duration=terms.duration,
            market_id=terms.market_id,
            opened_at=terms.opened_at,
        )

    def _paid(self, lease: LeaseKey, paid: TokenAmount, *, fee_free: bool) -> None:
        life = self.lives[lease]
        fee = life.fee
        market = self.markets.get(life.market_id)
        if market is not None and not fee_free:
            split = settle(life.cap, life.paid, paid, paid, market.fee, close=False)
            fee = fee + split.market
        self._change(lease, paid=paid, fee=fee)

    def _change(self, lease: LeaseKey, **changes: object) -> None:
        self.lives[lease] = replace(self.lives[lease], **changes)  # type: ignore[arg-type]


def _price_of(cap: TokenAmount, gpu_seconds: int) -> Price:
    """The price whose floor(price * GPU-seconds / 3600) is the cap: one tick fits, the next."""
    scaled = cap.value * _SECONDS_PER_HOUR
    return Price(-(-scaled // (gpu_seconds * limits.PRICE_TICK)) * limits.PRICE_TICK)


def lease_lives(events: Iterable[ChainEvent]) -> tuple[LeaseLife, ...]:
    """Every lease of a deployment, from all its events since the first block, oldest first."""
    ledger = _Ledger()
    for event in events:
        ledger.apply(event)
    return tuple(ledger.lives.values())


def market_accounts(events: Iterable[ChainEvent]) -> dict[int, Address]:
    """Market id -> the account that its fees go to."""
    return {e.market_id: e.account for e in events if isinstance(e, MarketRegistered)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One account over a span of time, base units; `why` sums to the change."""

    account: Address
    start: int
    end: int
    why: tuple[tuple[str, int], ...]
    """(reason, signed amount), zeros left out."""

    @property
    def difference(self) -> int:
        """Gained (or lost)."""
        return self.end - self.start

    @property
    def unexplained(self) -> int:
        """What no lease accounts for: 0 unless somebody moved tokens otherwise."""
        return self.difference - sum(amount for _, amount in self.why)


def explain(
    before: Books, after: Books, lives: Iterable[LeaseLife], markets: Mapping[int, Address]
) -> tuple[Change, ...]:
    """What the leases that ended between two looks did to each account."""
    why: dict[Address, dict[str, int]] = {account: {} for account in after.holdings}

    def add(account: Address, reason: str, amount: int) -> None:
        found = why.setdefault(account, {})
        found[reason] = found.get(reason, 0) + amount

    for life in lives:
        provider = life.key.provider
        add(life.buyer, "paid for leases", -life.paid.value)
        add(provider, "earned from leases", life.paid.value - life.fee.value)
        if life.fee:
            add(markets[life.market_id], "fees", life.fee.value)
        add(life.buyer, "compensated for a lease that failed", life.penalty.value)
        add(provider, "penalty from the bond", -life.penalty.value)
    return tuple(
        Change(
            account=account,
            start=before.holdings[account].total if account in before.holdings else 0,
            end=holding.total,
            why=tuple((reason, amount) for reason, amount in why[account].items() if amount),
        )
        for account, holding in after.holdings.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GasUse:
    """Gas of one kind of call to LeaseBook."""

    step: str
    """The contract's function."""
    transactions: int
    gas: int
    """In all."""
