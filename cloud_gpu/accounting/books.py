"""Every balance at one block, and the difference of two looks explained by the leases between them.

Pay of a verified lease is its provider's from the voucher on, and held: the audit decides whether
it stays so. The audit share is its buyer's until it is paid to a verifier's account.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cloud_gpu.accounting.lives import BatchKey, LeaseLife
from cloud_gpu.protocol.deployment import LEASE_BOOK
from cloud_gpu.protocol.values import Address

BURN: Final = Address(bytes.fromhex("dead".rjust(40, "0")))
"""Where LeaseBook sends fines and forfeited pay; nobody has its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPayees:
    """Which accounts batches paid for their audits."""

    shares: Mapping[BatchKey, Address] = field(default_factory=dict)
    """Of batches that ended with results: who got the audit share."""
    bounties: Mapping[BatchKey, Address] = field(default_factory=dict)
    """Of every batch: who gets the bounty of its convictions."""


NO_AUDITS: Final = AuditPayees()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one account has, base units."""

    wallet: int
    """Tokens outside the contract."""
    cash: int
    """In the vault, free to leave."""
    bond: int
    escrow: int
    """Locked for its leases as buyer and not paid yet, audit shares included."""
    held_pay: int = 0
    """Paid for its verified leases as provider, and held until their audits end."""
    bond_locked: int = 0
    """Of the bond: what backs batches."""

    @property
    def in_book(self) -> int:
        """What LeaseBook owes it."""
        return self.cash + self.bond + self.escrow + self.held_pay

    @property
    def total(self) -> int:
        """All of it."""
        return self.wallet + self.in_book


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Every balance at one block, base units."""

    block: int
    holdings: Mapping[Address, Holding]
    """Of every account that LeaseBook knows, and of those that audits are paid to."""
    held: int
    """Tokens that LeaseBook's address holds, as the token says."""
    burnt: int = 0
    """Tokens at `BURN`: out of the world."""

    @property
    def liabilities(self) -> int:
        """What LeaseBook owes: cash, bonds, what is locked in leases and what is held."""
        return sum(holding.in_book for holding in self.holdings.values())

    @property
    def difference(self) -> int:
        """Held less owed: 0, or the contract is broken."""
        return self.held - self.liabilities


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
    before: Books,
    after: Books,
    lives: Iterable[LeaseLife],
    markets: Mapping[int, Address],
    audits: AuditPayees = NO_AUDITS,
) -> tuple[Change, ...]:
    """What the leases between two looks did to each account; their changes sum to 0.

    `lives` are of leases opened after the first look; `audits` says which accounts got each batch's
    audit share and bounties. `BURN` is among the accounts where something was burnt.
    """
    why: dict[Address, dict[str, int]] = {}
    for life in lives:
        for account, reason, amount in (*_paid(life, markets), *_audited(life, audits)):
            if amount:
                found = why.setdefault(account, {})
                found[reason] = found.get(reason, 0) + amount
    starts, ends = _totals(before), _totals(after)
    if starts[BURN] == ends[BURN] and BURN not in why:
        del ends[BURN]
    return tuple(
        Change(
            account=account,
            start=starts.get(account, 0),
            end=end,
            why=tuple(
                (reason, amount) for reason, amount in why.get(account, {}).items() if amount
            ),
        )
        for account, end in ends.items()
    )


def _totals(books: Books) -> dict[Address, int]:
    return {account: h.total for account, h in books.holdings.items()} | {BURN: books.burnt}


def _paid(life: LeaseLife, markets: Mapping[int, Address]) -> Iterator[tuple[Address, str, int]]:
    provider = life.key.provider
    yield life.buyer, "paid for leases", -life.paid.value
    yield provider, "earned from leases", life.paid_out.value - life.fee.value
    if life.fee:
        yield markets[life.market_id], "fees", life.fee.value
    yield life.buyer, "compensated for a lease that failed", life.penalty.value
    yield provider, "penalty from the bond", -life.penalty.value


def _audited(life: LeaseLife, audits: AuditPayees) -> Iterator[tuple[Address, str, int]]:
    """What a verified lease adds. What is convicted, returned or forfeited was never earned."""
    provider = life.key.provider
    yield provider, "pay still held", life.held.value
    yield life.buyer, "held pay returned: nothing committed", life.returned.value
    yield life.buyer, "refund for convicted work", life.convicted.value
    yield provider, "refund for convicted work, from the bond", -life.convicted_from_bond.value
    yield life.buyer, "refund for inconclusive audits", life.inconclusive.value
    yield provider, "fine", -life.fines.value
    yield BURN, "fines", life.fines.value - sum(batch.bounties.value for batch in life.batches)
    yield BURN, "forfeited pay", life.forfeited.value
    yield life.buyer, "audit share", -life.audit_share.value
    for batch in life.batches:
        if batch.key in audits.shares:
            yield audits.shares[batch.key], "audit share", batch.audits.value
        if batch.key in audits.bounties:
            yield audits.bounties[batch.key], "bounty", batch.bounties.value


@dataclass(frozen=True, slots=True, kw_only=True)
class GasUse:
    """Gas of one kind of call."""

    step: str
    """The contract's function."""
    transactions: int
    gas: int
    """In all."""
    contract: str = LEASE_BOOK
    """Its name."""
