"""LeaseBook's semantics in Python: the same calls, the same skips, the same money.

For simulations and for tests without a chain. The arithmetic is `protocol.settlement`, which the
contract is held to by vectors; the order of the checks is the contract's. Times are Unix seconds,
amounts base units. Nothing here checks a signature's curve twice: `recover` is the real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cloud_gpu.protocol.chain_events import (
    AccountRegistered,
    CashChanged,
    ChainEvent,
    DelegationChanged,
    LeaseClosed,
    LeaseOpened,
    MachineAdded,
    MarketRegistered,
    PenaltyPaid,
    ProductRegistered,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.identity import Delegation, Delegations, KeyRole
from cloud_gpu.protocol.lease import (
    LeaseEndReason,
    LeaseFlags,
    LeaseKey,
    LeaseTerms,
    MachineKey,
    MachineStatus,
)
from cloud_gpu.protocol.ports import AccountView, MachineView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.signing import TypedData, recover
from cloud_gpu.protocol.units import BasisPoints, TokenAmount, share_down
from cloud_gpu.protocol.values import Address, Digest, Signature
from cloud_gpu.testing.simulated_audits import AuditRows, HeldRow

RUNNING = (MachineStatus.ACTIVE, MachineStatus.STOPPED)


class Revert(Exception):
    """The contract refused a call; the text is its error's name."""


@dataclass(slots=True)
class AccountRow:
    """An account's word."""

    id: int
    cash: int = 0
    nonce_base: int = 0
    nonce_bits: int = 0

    def use(self, nonce: int) -> bool:
        """Take a nonce of the 128-wide window; False: it is used, cancelled or too far ahead."""
        ahead = nonce - self.nonce_base
        if ahead < 0 or ahead > 65_535:
            return False
        if ahead > 127:
            self.nonce_bits >>= ahead - 127
            self.nonce_base += ahead - 127
            ahead = 127
        if self.nonce_bits >> ahead & 1:
            return False
        self.nonce_bits |= 1 << ahead
        return True

    def peek(self, nonce: int) -> bool:
        """Whether `use` would succeed."""
        return AccountRow(0, 0, self.nonce_base, self.nonce_bits).use(nonce)


@dataclass(slots=True)
class LeaseRow:
    """A running lease."""

    buyer: Address
    cap: int
    market_id: int
    duration: int
    start: int
    """Start deadline while Funded, the start afterwards."""
    paid: int = 0
    is_ready: bool = False
    flags: int = 0
    notice_at: int = 0
    """0: none was given."""

    @property
    def end(self) -> int:
        """Unix seconds."""
        return self.start + self.duration


@dataclass(slots=True)
class MachineRow:
    """A machine's words."""

    product: int
    bond: int
    status: MachineStatus = MachineStatus.FREE
    seq: int = 0
    locked: int = 0
    lease: LeaseRow | None = None

    @property
    def free_bond(self) -> int:
        """Base units that penalties may take."""
        return max(0, self.bond - self.locked)


@dataclass(slots=True)
class SimulatedBook:
    """The state of LeaseBook, and what every call does to it. `now` is the block's time."""

    deployment: Deployment
    now: int = 0
    accounts: dict[Address, AccountRow] = field(default_factory=dict)
    machines: dict[MachineKey, MachineRow] = field(default_factory=dict)
    products: dict[int, Product] = field(default_factory=dict)
    markets: dict[int, tuple[Address, BasisPoints]] = field(default_factory=dict)
    keys: Delegations = field(default_factory=Delegations)
    audits: AuditRows = field(default_factory=AuditRows)
    deposited: int = 0
    """Everything that came in, less what went out: the contract's token balance."""
    transaction: Digest = field(default_factory=lambda: Digest(bytes(32)))
    log: list[ChainEvent] = field(default_factory=list)

    def copy(self) -> SimulatedBook:
        """A book that changes by itself; rows of tables never change, so they are shared."""
        return replace(
            self,
            accounts={key: replace(row) for key, row in self.accounts.items()},
            machines={
                key: replace(row, lease=replace(row.lease) if row.lease else None)
                for key, row in self.machines.items()
            },
            audits=self.audits.copy(),
            log=list(self.log),
        )

    # The owner's own calls.

    def register(self, account: Address, cash: int) -> None:
        """Register and deposit."""
        if account in self.accounts:
            raise Revert("LeaseBook_AlreadyRegistered")
        row = AccountRow(id=len(self.accounts) + 1, cash=cash)
        self.accounts[account] = row
        self.deposited += cash
        self.log.append(AccountRegistered(account=account, id=row.id))
        self.log.append(CashChanged(account=account, amount=TokenAmount(cash), increase=True))

    def withdraw(self, account: Address, amount: int) -> None:
        """Cash leaves to its owner."""
        row = self._account(account)
        if row.cash < amount:
            raise Revert("LeaseBook_CashTooLow")
        row.cash -= amount
        self.deposited -= amount
        self.log.append(CashChanged(account=account, amount=TokenAmount(amount), increase=False))

    def delegate(self, account: Address, signer: Address, role: KeyRole, expiry: int) -> None:
        """A key may sign for the account."""
        self._account(account)
        delegation = Delegation(account=account, role=role, expiry=expiry)
        self.keys.record(signer, delegation)
        self.log.append(DelegationChanged(signer=signer, delegation=delegation))

    def register_product(self, product: Product) -> None:
        """A row of the table; ids count from 1."""
        assert product.id == len(self.products) + 1, product.id
        self.products[product.id] = product
        self.log.append(
            ProductRegistered(
                product=product.id,
                gpu_class=product.gpu_class,
                slice_gpus=product.slice_gpus,
                region_group=product.region_group,
                min_bond=product.min_bond,
                notice=product.notice,
                penalty=product.penalty,
                flags=product.flags,
            )
        )

    def register_market(self, account: Address, fee: BasisPoints) -> int:
        """A row of the table; the id."""
        self._account(account)
        number = len(self.markets) + 1
        self.markets[number] = account, fee
        self.log.append(MarketRegistered(market_id=number, account=account, fee=fee))
        return number

    def add_machine(self, machine: MachineKey, bond: int, product: int) -> None:
        """A machine with its bond, whole bond units, out of the provider's cash."""
        row = self._account(machine.provider)
        if product not in self.products:
            raise Revert("LeaseBook_UnknownProduct")
        if machine in self.machines:
            raise Revert("LeaseBook_WrongStatus")
        if bond == 0 or bond % self.deployment.bond_unit.value:
            raise Revert("LeaseBook_BondTooLow")
        if row.cash < bond:
            raise Revert("LeaseBook_CashTooLow")
        row.cash -= bond
        self.machines[machine] = MachineRow(product=product, bond=bond)
        self.log.append(MachineAdded(machine=machine, product=product, bond=TokenAmount(bond)))

    # Views.

    def account_view(self, account: Address) -> AccountView:
        """As `ports.Chain.account`."""
        row = self.accounts.get(account, AccountRow(id=0))
        return AccountView(
            id=row.id,
            cash=TokenAmount(row.cash),
            nonce_base=row.nonce_base,
            nonce_bits=row.nonce_bits,
        )

    def machine_view(self, key: MachineKey) -> MachineView:
        """As `ports.Chain.machine`."""
        row = self.machines.get(key) or MachineRow(0, 0, MachineStatus.NONE)
        lease = row.lease
        return MachineView(
            status=row.status,
            product=row.product,
            bond=TokenAmount(row.bond),
            locked=TokenAmount(row.locked),
            seq=row.seq,
            next_seq=row.seq + 1,
            cap=TokenAmount(lease.cap if lease else 0),
            paid=TokenAmount(lease.paid if lease else 0),
            buyer_id=self.accounts[lease.buyer].id if lease else 0,
            start=lease.start if lease else 0,
            duration=lease.duration if lease else 0,
            market_id=lease.market_id if lease else 0,
        )

    @property
    def owed(self) -> int:
        """What the book owes: Σ cash + Σ bonds + Σ live (cap - paid) + held pay + open batches."""
        live = sum(m.lease.cap - m.lease.paid for m in self.machines.values() if m.lease)
        bonds = sum(machine.bond for machine in self.machines.values())
        cash = sum(row.cash for row in self.accounts.values())
        return cash + bonds + live + self.audits.money

    # What several calls share.

    def _account(self, account: Address) -> AccountRow:
        row = self.accounts.get(account)
        if row is None:
            raise Revert("LeaseBook_NotRegistered")
        return row

    def lease_in(self, key: LeaseKey, *needed: MachineStatus) -> tuple[MachineRow, LeaseRow]:
        """The machine and the lease named, if it is there in one of these states."""
        machine = self.machines.get(key.machine)
        if machine is None or machine.seq != key.seq:
            raise Revert("LeaseBook_WrongLease")
        if machine.status not in needed or machine.lease is None:
            raise Revert("LeaseBook_WrongStatus")
        return machine, machine.lease

    def is_signed_by(
        self, payload: TypedData, signature: Signature, account: Address, role: KeyRole, at: int
    ) -> bool:
        """Whether the account, or its key of the role at that time, signed."""
        signer = recover(payload.digest(self.deployment.domain), signature)
        return signer is not None and self.speaks_for(account, signer, role, at)

    def speaks_for(self, account: Address, key: Address, role: KeyRole, at: int) -> bool:
        """Whether it is the account's own key, or one of the role at that time."""
        return key == account or self.keys.may_sign(account, key, role, at)

    def ceiling(self, lease: LeaseRow) -> int:
        """What has accrued."""
        return accrued(TokenAmount(lease.cap), self.now - lease.start, lease.duration).value

    def pay(self, key: LeaseKey, lease: LeaseRow, paid: int) -> None:
        """Pay up to `paid` in all: to the provider and the market, or into the lease's slot."""
        delta = paid - lease.paid
        if delta <= 0:
            return
        if lease.flags & LeaseFlags.VERIFIED:
            held = self.audits.of(key)
            assert held is not None, f"{key} runs and has no slot"
            held.amount += delta
        else:
            self.share(key.provider, lease.market_id, delta)
        lease.paid = paid

    def share(self, provider: Address, market_id: int, amount: int) -> int:
        """Credit the provider, the market's fee out of it; returns the fee."""
        fee = 0
        if market_id:
            account, rate = self.markets[market_id]
            fee = share_down(TokenAmount(amount), rate).value
            self.accounts[account].cash += fee
        self.accounts[provider].cash += amount - fee
        return fee

    def free(self, key: LeaseKey, paid: int, reason: LeaseEndReason) -> None:
        """End the lease: the rest is the buyer's, the machine free."""
        machine = self.machines[key.machine]
        lease = machine.lease
        assert lease is not None, key
        self.accounts[lease.buyer].cash += lease.cap - paid
        if lease.flags & LeaseFlags.VERIFIED:
            self.accounts[lease.buyer].cash += self.audits.end(key, self.now)
        machine.lease, machine.status = None, MachineStatus.FREE
        self.log.append(LeaseClosed(lease=key, reason=reason, paid=TokenAmount(paid), at=self.now))

    def penalise(self, key: LeaseKey, amount: int) -> None:
        """Take from the free bond for the buyer; the change of a whole unit is the provider's."""
        machine = self.machines[key.machine]
        assert machine.lease is not None, key
        amount = min(amount, machine.free_bond)
        if amount == 0:
            return
        unit = self.deployment.bond_unit.value
        whole = -(-amount // unit) * unit
        machine.bond -= whole
        self.accounts[machine.lease.buyer].cash += amount
        self.accounts[key.provider].cash += whole - amount
        self.log.append(PenaltyPaid(lease=key, amount=TokenAmount(amount), at=self.now))

    def slash(
        self, key: MachineKey, buyer: Address, refund: int, fine: int, bounty: int, audits: Address
    ) -> tuple[int, int, int]:
        """Take from the free bond: a refund to a buyer, then a fine; what it was.

        The bounty goes to an audit account, out of the fine and at most a tenth; the rest burns.
        """
        machine, unit = self.machines[key], self.deployment.bond_unit.value
        free = machine.free_bond // unit * unit
        refund = min(refund, free)
        fine = min(fine, free - refund)
        bounty = min(bounty, fine // 10)
        whole = -(-(refund + fine) // unit) * unit
        machine.bond -= whole
        self.accounts[buyer].cash += refund
        self.accounts[key.provider].cash += whole - refund - fine
        self.deposited -= fine - bounty
        if bounty:
            self.accounts[audits].cash += bounty
        return refund, fine, bounty

    def fund(
        self,
        key: LeaseKey,
        buyer: Address,
        cap: int,
        market_id: int,
        duration: int,
        bid: Digest,
        flags: int = 0,
    ) -> None:
        """Lock the buyer's money and open the lease."""
        machine, account = self.machines[key.machine], self.accounts[buyer]
        account.cash -= cap
        deadline = self.now + self.deployment.windows.start
        machine.status, machine.seq = MachineStatus.FUNDED, key.seq
        machine.lease = LeaseRow(
            buyer=buyer,
            cap=cap,
            market_id=market_id,
            duration=duration,
            start=deadline,
            flags=flags,
        )
        terms = LeaseTerms(
            key=key,
            buyer=buyer,
            cap=TokenAmount(cap),
            duration=duration,
            start_deadline=deadline,
            market_id=market_id,
            opened_at=self.now,
            flags=flags,
        )
        self.log.append(
            LeaseOpened(terms=terms, bid=bid, at=self.now, transaction=self.transaction)
        )

    def hold(self, key: LeaseKey, buyer: Address, market_id: int, rate: BasisPoints) -> None:
        """A verified lease was funded: its slot, with the audit share out of the buyer's cash."""
        machine = self.machines[key.machine]
        assert machine.lease is not None, key
        audit = share_down(TokenAmount(machine.lease.cap), rate).value
        self.accounts[buyer].cash -= audit
        self.audits.put(
            key,
            HeldRow(seq=key.seq, buyer=buyer, market_id=market_id, audit_bps=rate, audit=audit),
        )
