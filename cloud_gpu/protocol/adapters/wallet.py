"""A person's own calls: accounts, money, keys, tables and machines, each waited for. Blocking.

On a trio loop, call it in a worker thread. What parties do by themselves goes through `EvmChain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.bindings import lease_book, payment_token
from cloud_gpu.protocol.adapters.evm_abi import Interface, interface
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_calls import calldata
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, octets
from cloud_gpu.protocol.adapters.wallet_futures import WalletFutures
from cloud_gpu.protocol.adapters.wallet_group_buys import WalletGroupBuys
from cloud_gpu.protocol.calls import ReleaseLease
from cloud_gpu.protocol.deployment import LEASE_BOOK, Deployment
from cloud_gpu.protocol.errors import FundsTooSmall, TransactionReverted
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import KeyRole, Signer
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, MachineKey
from cloud_gpu.protocol.ports import AccountView, MachineView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.signing import Domain, Signed, TypedData
from cloud_gpu.protocol.units import BasisPoints, TokenAmount, format_tokens
from cloud_gpu.protocol.values import ZERO_DIGEST, Address, Digest, Signature
from cloud_gpu.protocol.voucher import Voucher

_PERMIT_LIFE_S: Final = 3600


class DelegateProof(TypedData, frozen=True, kw_only=True):
    """What a key signs to become a delegate: nobody can register a key that is not theirs."""

    TYPE = "Delegate(address account,uint8 role,uint32 expiry)"
    account: Address
    role: KeyRole
    expiry: int


class Permit(TypedData, frozen=True, kw_only=True):
    """EIP-2612: an allowance given by signature."""

    TYPE = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
    owner: Address
    spender: Address
    value: TokenAmount
    nonce: int
    deadline: int


def prove_delegate(
    key: Signer, domain: Domain, *, account: Address, role: KeyRole, expiry: int
) -> Signature:
    """A key's own agreement to be `account`'s delegate until `expiry` (Unix seconds)."""
    proof = DelegateProof(account=account, role=role, expiry=expiry)
    return key.sign_digest(proof.digest(domain))


class Wallet:
    """One account's key and everything that it alone may do.

    Every method that sends returns when its transaction is in a block. They raise
    TransactionReverted with the contract's own error and numbers, FundsTooSmall where money is
    what lacks, and ChainUnavailable.
    """

    def __init__(
        self, rpc_url: str, deployment: Deployment, key: Signer, *, timeout_s: float = 120.0
    ) -> None:
        """Sends nothing yet; `timeout_s` bounds the wait for a block."""
        self.deployment, self.address = deployment, key.address
        self._key = key
        self._rpc = Rpc(rpc_url)
        self._sender = DirectSender(self._rpc, key, timeout_s=timeout_s)
        self.futures = WalletFutures(self._rpc, self._sender, deployment)
        self.group_buys = WalletGroupBuys(self._rpc, self._sender, deployment)

    def __enter__(self) -> Self:
        views.check(self._rpc, self.deployment)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections."""
        self._rpc.close()

    @property
    def gas_used(self) -> int:
        """Gas of everything this object sent."""
        return self._sender.gas_used

    # Account and money.

    def register_account(self) -> int:
        """The account's number; joins if it has none yet."""
        found = self.account().id
        if found:
            return found
        log = self._book(lease_book.register(), event="AccountRegistered")
        return int(log["id"])

    def deposit(self, amount: TokenAmount, to: Address | None = None) -> None:
        """Move tokens from the wallet into an account of the vault (default: one's own).

        One transaction where the token takes permits (EIP-2612), two where it wants approvals.
        """
        have = self.token_balance()
        if have < amount:
            raise FundsTooSmall(
                needed=amount.value,
                have=have.value,
                text=f"the wallet {self.address} holds {format_tokens(have)} tokens,"
                f" {format_tokens(amount)} are needed",
            )
        to = to or self.address
        permit = self._permit(amount)
        if permit is not None:
            self._book(lease_book.deposit_with_permit(to, amount.value, *permit))
            return
        self._token(payment_token.approve(self.deployment.lease_book, amount.value))
        self._book(lease_book.deposit(to, amount.value))

    def withdraw(self, amount: TokenAmount) -> None:
        """Move cash out of the vault to the wallet."""
        self._book(lease_book.withdraw(amount.value))

    def mint(self, amount: TokenAmount, to: Address | None = None) -> None:
        """Create tokens of a development network out of nothing."""
        self._token(payment_token.mint(to or self.address, amount.value))

    def transfer(self, to: Address, amount: TokenAmount) -> None:
        """Send tokens of the wallet."""
        self._token(payment_token.transfer(to, amount.value))

    def transfer_native(self, to: Address, wei: int) -> None:
        """Send native currency, for gas."""
        self._sender.send(to, b"", wei=wei)

    # Keys and orders.

    def set_delegate(self, delegate: Signer, role: KeyRole, expiry: int) -> None:
        """Let a key that is at hand sign in a role until `expiry` (Unix seconds)."""
        proof = prove_delegate(
            delegate, self.deployment.domain, account=self.address, role=role, expiry=expiry
        )
        self.set_proven_delegate(delegate.address, role, expiry, proof)

    def set_proven_delegate(
        self, signer: Address, role: KeyRole, expiry: int, proof: Signature
    ) -> None:
        """Like `set_delegate`, for a key that signed `prove_delegate` on another machine."""
        self._book(lease_book.set_delegate(signer, role, expiry, proof.raw))

    def revoke_delegate(self, signer: Address) -> None:
        """End a key, `windows.start` seconds from now."""
        self._book(lease_book.revoke_delegate(signer))

    def cancel_one(self, nonce: int) -> None:
        """Void one's bids with this nonce."""
        self._book(lease_book.cancel_one(nonce))

    def cancel_below(self, nonce: int) -> None:
        """Void one's bids with a lower nonce."""
        self._book(lease_book.cancel_below(nonce))

    # Tables.

    def register_product(
        self,
        *,
        gpu_class: GpuClass,
        slice_gpus: int,
        min_bond: BasisPoints,
        penalty: BasisPoints,
        notice: int = 0,
        region_group: str = "",
        flags: int = 0,
        sheet: Digest = ZERO_DIGEST,
    ) -> int:
        """The number of a new product; `sheet` is the digest of its published description."""
        row = lease_book.Product(
            gpu_class=gpu_class.encode("ascii").ljust(32, b"\0"),
            sheet_hash=sheet.raw,
            region_group=region_group.encode("ascii").ljust(16, b"\0"),
            slice_gpus=slice_gpus,
            min_bond_bps=min_bond.value,
            penalty_bps=penalty.value,
            notice=notice,
            flags=flags,
        )
        return int(self._book(lease_book.register_product(row), event="ProductRegistered")["id"])

    def register_market(self, fee: BasisPoints) -> int:
        """The number of a new market whose fees go to this account."""
        return int(
            self._book(lease_book.register_market(fee.value), event="MarketRegistered")["id"]
        )

    # Machines.

    def add_machine(self, index: int, bond: TokenAmount, product: int) -> None:
        """Put machine `index` up for rent, with a bond out of the vault (whole bond units)."""
        self._book(lease_book.add_machine(index, self._bond_units(bond), product))

    def add_bond(self, index: int, bond: TokenAmount) -> None:
        """Add to a machine's bond (whole bond units)."""
        self._book(lease_book.add_bond(index, self._bond_units(bond)))

    def pause(self, index: int) -> None:
        """Take a free machine off the market."""
        self._book(lease_book.pause(index))

    def unpause(self, index: int) -> None:
        """Put a paused machine back."""
        self._book(lease_book.unpause(index))

    def retire(self, index: int) -> None:
        """Start a machine's removal."""
        self._book(lease_book.retire(index))

    def finish_retire(self, index: int) -> None:
        """Take a retiring machine's bond back, `windows.retire` seconds after."""
        self._book(lease_book.finish_retire(index))

    def cancel_asks(self, index: int, next_seq: int) -> None:
        """Void one's asks of a machine for a lower lease number."""
        self._book(lease_book.cancel_asks(index, next_seq))

    def give_notice(self, lease: LeaseKey) -> None:
        """Tell the buyer of an active lease that this provider will leave."""
        self._book(lease_book.give_notice(lease.provider, lease.index, lease.seq))

    def release(
        self,
        lease: LeaseKey,
        voucher: Signed[Voucher] | None = None,
        reason: LeaseEndReason = LeaseEndReason.RELEASED,
    ) -> None:
        """Give a lease up and have the machine back now; what it costs is in the contract."""
        call = ReleaseLease(lease=lease, voucher=voucher, reason=reason)
        self._sender.send(self.deployment.lease_book, calldata(call))

    # Views.

    def account(self, address: Address | None = None) -> AccountView:
        """An account's word (default: one's own)."""
        return views.account(self._rpc, self.deployment, address or self.address)

    def machine(self, key: MachineKey) -> MachineView:
        """A machine's words."""
        return views.machine(self._rpc, self.deployment, key)

    def products(self) -> tuple[Product, ...]:
        """LeaseBook's table."""
        return views.products(self._rpc, self.deployment)

    def token_balance(self, address: Address | None = None) -> TokenAmount:
        """Tokens outside the vault (default: one's own)."""
        return views.token_balance(self._rpc, self.deployment, address or self.address)

    def native_balance(self, address: Address | None = None) -> int:
        """Wei (default: one's own)."""
        return views.native_balance(self._rpc, address or self.address)

    def chain_time(self) -> int:
        """The newest block's time, Unix seconds."""
        return views.chain_time(self._rpc)

    # Sending.

    def _book(self, call: Call[Any], *, event: str | None = None) -> Mapping[str, Any]:
        receipt = self._sender.send(self.deployment.lease_book, call.calldata)
        return _logged(interface(LEASE_BOOK), receipt, event) if event else {}

    def _token(self, call: Call[Any]) -> None:
        self._sender.send(self.deployment.token, call.calldata)

    def _bond_units(self, bond: TokenAmount) -> int:
        unit = self.deployment.bond_unit.value
        units, rest = divmod(bond.value, unit)
        if rest:
            raise ValueError(
                f"a bond is a multiple of {format_tokens(unit)} tokens, found {format_tokens(bond)}"
            )
        return units

    def _permit(self, amount: TokenAmount) -> tuple[int, int, bytes, bytes] | None:
        """deadline, v, r, s; None for a token without permits under the usual domain."""
        address = self.deployment.token
        named, counted = payment_token.name(), payment_token.nonces(self.address)
        separated = payment_token.domain_separator()
        name, nonce, separator = self._rpc.batch(
            [views.request(address, view) for view in (named, counted, separated)]
        )
        if not all(isinstance(found, str) for found in (name, nonce, separator)):
            return None
        domain = Domain(
            name=named.answer(octets(name)),
            chain_id=self.deployment.chain_id,
            verifying_contract=address,
        )
        if domain.separator != octets(separator):
            return None
        permit = Permit(
            owner=self.address,
            spender=self.deployment.lease_book,
            value=amount,
            nonce=counted.answer(octets(nonce)),
            deadline=self.chain_time() + _PERMIT_LIFE_S,
        )
        signature = self._key.sign_digest(permit.digest(domain)).raw
        return permit.deadline, signature[64], signature[:32], signature[32:64]


def _logged(contract: Interface, receipt: Mapping[str, Any], event: str) -> Mapping[str, Any]:
    for found in receipt["logs"]:
        read = contract.log([octets(topic) for topic in found["topics"]], octets(found["data"]))
        if read is not None and read[0] == event:
            return read[1]
    raise TransactionReverted("NoLog", f"the transaction went through without its {event} log")
