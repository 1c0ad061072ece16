"""An account's contracts of futures: funding, nominating, and handing a side on.

Blocking, ports only. Each contract is read from the chain first, so that what is refused is
refused with its reason, and nobody's word decides what is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import Rejected, RejectReason
from cloud_gpu.protocol.futures import Assignment, HeldContract
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.ports import MachineView
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.utc import format_utc
from cloud_gpu.protocol.values import Digest
from cloud_gpu.spending import free_nonce
from cloud_gpu.vault import VaultAccount, product_of, refused, require_cash

_LIST = "cloud-gpu future positions"


class FuturesCalls(Protocol):
    """The contract Futures, called by the account; each call is waited for."""

    def contract(self, number: int) -> HeldContract | None: ...

    def count(self) -> int:
        """How many ever opened; their numbers are 1 to that."""

    def close_order(self, order: Digest) -> None: ...

    def fund(self, number: int) -> None: ...

    def nominate(self, number: int, indexes: tuple[int, ...]) -> None: ...

    def assign(self, assignment: Signed[Assignment]) -> None: ...


class ContractAccount(VaultAccount, Protocol):
    """An account that holds contracts."""

    @property
    def futures(self) -> FuturesCalls: ...

    def machine(self, key: MachineKey) -> MachineView: ...

    def cancel_asks(self, index: int, next_seq: int) -> None:
        """Void whatever was asked for a machine's leases below this number."""


class FutureContracts:
    """What one account may do about contracts before their window."""

    def __init__(
        self,
        account: ContractAccount,
        signer: Signer,
        deployment: Deployment,
        draw: Callable[[], int],
    ) -> None:
        self._account, self._signer, self._deployment = account, signer, deployment
        self._draw = draw

    def get(self, number: int) -> HeldContract:
        """A contract as the chain has it. Raises `Rejected`: ended, or never opened."""
        found = self._account.futures.contract(number)
        if found is not None:
            return found
        count = self._account.futures.count()
        if number > count:
            raise refused(
                RejectReason.UNKNOWN_ORDER,
                "contract",
                str(number),
                f"1 to {count}, which have opened so far" if count else "one: none has opened yet",
                _LIST,
            )
        raise refused(
            RejectReason.WRONG_STATE,
            "contract",
            f"{number}, which was delivered or ended",
            "one that waits for its window",
            _LIST,
        )

    def price(self, contract: HeldContract) -> TokenAmount:
        """What its long locks when it funds."""
        return contract.price(product_of(self._account, contract.series.product).slice_gpus)

    def deadline(self, contract: HeldContract) -> int:
        """Until when it is funded, nominated for and assigned, Unix seconds."""
        return contract.series.deadline(self._deployment.futures_rules)

    # Keeping it.

    def may_fund(self, number: int) -> TokenAmount:
        """What funding would lock. Raises `Rejected` (not its long, funded, too late),
        `FundsTooSmall`.
        """
        found = self._own(number, is_buy=True)
        if found.is_funded:
            raise _done(number, "which is funded")
        price = self.price(found)
        require_cash(self._account, price, f"the whole price of contract {number}")
        return price

    def fund(self, number: int) -> None:
        """Lock a contract's whole price. Raises as `may_fund`."""
        self.may_fund(number)
        self._account.futures.fund(number)

    def may_nominate(self, number: int, indexes: Sequence[int]) -> HeldContract:
        """The contract. Raises `Rejected` (not its short, too late, too many machines)."""
        found = self._own(number, is_buy=False)
        if not 1 <= len(indexes) <= found.units or len(set(indexes)) < len(indexes):
            raise refused(
                RejectReason.WRONG_COUNT,
                "machines",
                ", ".join(map(str, indexes)) or "none",
                f"1 to {found.units} different machines of product {found.series.product}",
                f"{_LIST} suggests which",
            )
        return found

    def nominate(self, number: int, indexes: Sequence[int]) -> None:
        """Name the machines that will be delivered, in place of any before. Raises as
        `may_nominate`.

        What their nodes asked before they knew is voided on chain, a transaction a machine: a lease
        that came of it could run into the window. One that opens in between stops this with
        `TransactionReverted`; the same again goes on.
        """
        self.may_nominate(number, indexes)
        self._account.futures.nominate(number, tuple(indexes))
        for index in indexes:
            found = self._account.machine(MachineKey(provider=self._account.address, index=index))
            self._account.cancel_asks(index, found.next_seq + 1)

    # Handing it on.

    def may_join(self, number: int, *, is_buy: bool, pays: TokenAmount) -> HeldContract:
        """A contract whose side this account can take over. Raises `Rejected`, `FundsTooSmall`."""
        found = self.get(number)
        if self._account.address in (found.long, found.short):
            raise refused(
                RejectReason.SELF_DEALING,
                "contract",
                f"{number}, of which this account is a side",
                "a contract of two others",
            )
        self._require_before_deadline(found)
        self._require_unsettled(found, is_buy=is_buy)
        margin = found.long_margin if is_buy else found.short_margin
        require_cash(self._account, margin + pays, "the margin and what is paid beside it")
        return found

    def join(
        self,
        number: int,
        *,
        is_buy: bool,
        pays: TokenAmount,
        receives: TokenAmount,
        stands_s: int,
        taken: Collection[int] = frozenset(),
    ) -> Signed[Assignment]:
        """Sign that this account takes over a side for `stands_s` seconds; who holds it sends it.

        It posts the side's margin, and pays or receives so much beside it. Raises as `may_join`.
        """
        found = self.may_join(number, is_buy=is_buy, pays=pays)
        said = Assignment(
            contract_id=number,
            is_buy=is_buy,
            leaver=found.long if is_buy else found.short,
            joiner=self._account.address,
            leaver_pays=receives,
            joiner_pays=pays,
            expiry=self._account.chain_time() + stands_s,
            nonce=free_nonce(self._account.account(), self._draw(), taken),
        )
        return sign(said, self._deployment.futures_domain, self._signer)

    def may_assign(self, assignment: Signed[Assignment]) -> HeldContract:
        """The contract that this account can leave so. Raises `Rejected`, `FundsTooSmall`."""
        said = assignment.payload
        found = self._own(said.contract_id, is_buy=said.is_buy)
        if said.leaver != self._account.address:
            raise _not_ours(f"leaver {said.leaver}", self._account)
        if (at := self._account.chain_time()) > said.expiry:
            raise refused(
                RejectReason.EXPIRED,
                "expiry",
                format_utc(said.expiry),
                f"later than {format_utc(at)}",
                "Let the joiner sign again: cloud-gpu future join",
            )
        self._require_unsettled(found, is_buy=said.is_buy)
        require_cash(self._account, said.leaver_pays, "what is paid to the joiner")
        return found

    def assign(self, assignment: Signed[Assignment]) -> None:
        """Leave a contract to who signed; the margin comes back. Raises as `may_assign`."""
        self.may_assign(assignment)
        self._account.futures.assign(assignment)

    # What must hold.

    def _own(self, number: int, *, is_buy: bool) -> HeldContract:
        found = self.get(number)
        side, holder = ("long", found.long) if is_buy else ("short", found.short)
        if holder != self._account.address:
            raise _not_ours(f"{side} {holder}", self._account)
        self._require_before_deadline(found)
        return found

    def _require_before_deadline(self, contract: HeldContract) -> None:
        at, deadline = self._account.chain_time(), self.deadline(contract)
        if at > deadline:
            raise refused(
                RejectReason.EXPIRED,
                "contract",
                f"{contract.id}, whose deadline was {format_utc(deadline)}",
                f"one whose deadline is after {format_utc(at)}",
                f"{_LIST} says what follows",
            )

    def _require_unsettled(self, contract: HeldContract, *, is_buy: bool) -> None:
        if contract.is_funded if is_buy else contract.is_nominated:
            step = "funded: its long" if is_buy else "nominated for: its short"
            raise _done(contract.id, f"which is {step} stays")


def _done(number: int, what: str) -> Rejected:
    return refused(
        RejectReason.WRONG_STATE,
        "contract",
        f"{number}, {what}",
        "one that still waits for this step",
        _LIST,
    )


def _not_ours(found: str, account: VaultAccount) -> Rejected:
    return refused(
        RejectReason.KEY_NOT_AUTHORISED,
        "contract",
        found,
        f"{account.address}, this wallet",
        "Use the wallet that holds this side: CLOUD_GPU_KEYSTORE or CLOUD_GPU_CONTEXT.",
    )
