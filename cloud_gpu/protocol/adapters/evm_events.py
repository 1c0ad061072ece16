"""The contracts' logs as chain events: pure, but for the two tables that logs refer to.

A lease names its buyer by number, a revocation its key alone; both were logged before, in the
same order on every branch of the chain, so a reorganisation needs no undoing here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cloud_gpu.protocol import chain_events as events
from cloud_gpu.protocol.adapters.evm_abi import futures, group_buy, lease_book, verification
from cloud_gpu.protocol.adapters.evm_audits import audit_event
from cloud_gpu.protocol.adapters.evm_futures import future_event
from cloud_gpu.protocol.adapters.evm_group_buys import group_event
from cloud_gpu.protocol.adapters.evm_skips import rejection_of
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import Delegation, KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address, Digest

TABLE_EVENTS = ("AccountRegistered", "DelegateSet", "DelegateRevoked")
"""What must be read from the beginning before any later log is understood."""


class Log(msgspec.Struct, frozen=True):
    """One log as the node gave it."""

    block: int
    block_hash: Digest
    index: int
    """Its place in the block."""
    transaction: Digest
    topics: tuple[bytes, ...]
    payload: bytes


class LeaseWord(msgspec.Struct, frozen=True):
    """The machine word of `LeaseOpened`, unpacked; layout as in LeaseWord.sol."""

    cap: int
    paid: int
    market_id: int
    buyer_id: int
    start: int
    duration: int
    seq: int
    bond: int
    status: int
    flags: int

    @classmethod
    def unpack(cls, word: int) -> LeaseWord:
        """From the 256-bit word."""
        fields = []
        for bits in (48, 48, 16, 32, 32, 24, 24, 24, 4, 4):
            fields.append(word & ((1 << bits) - 1))
            word >>= bits
        return cls(*fields)


class LogDecoder:
    """Turns logs, fed in chain order, into events.

    `ours` tells which of our own calls a transaction carried, or None.
    """

    def __init__(self, deployment: Deployment, ours: Callable[[Digest], ChainCall | None]) -> None:
        self._unit = deployment.bond_unit.value
        self._ours = ours
        self._accounts: dict[int, Address] = {}
        self._delegations: dict[Address, Delegation] = {}

    def decode(self, log: Log, at: int) -> events.ChainEvent | None:
        """The event of a log in a block of time `at`; None for logs that concern no party.

        Raises ChainUnavailable when an earlier log must be missing.
        """
        found = lease_book().log(log.topics, log.payload)
        if found is None:
            return self._of_modules(log, at)
        name, a = found
        match name:
            case "LeaseOpened":
                return self._opened(a, log, at)
            case "LeaseClosed":
                return _closed(a, at)
            case "EntrySkipped":
                return self._skipped(a, log)
            case "AccountRegistered" | "DelegateSet" | "DelegateRevoked":
                return self._key_event(name, a)
            case _:
                pass
        if "seq" in a:
            return _lease_event(name, a, at)
        if "machineKey" in a:
            return _machine_event(name, a, self._unit)
        return _account_event(name, a)

    def _opened(self, a: dict[str, Any], log: Log, at: int) -> events.ChainEvent:
        word = LeaseWord.unpack(a["word"])
        buyer = self._accounts.get(word.buyer_id)
        if buyer is None:
            raise _log_missing(f"the registration of account {word.buyer_id}")
        machine = _machine(a)
        terms = LeaseTerms(
            key=LeaseKey(provider=machine.provider, index=machine.index, seq=word.seq),
            buyer=buyer,
            cap=TokenAmount(word.cap),
            duration=word.duration,
            start_deadline=word.start,
            market_id=word.market_id,
            opened_at=at,
            flags=word.flags,
        )
        return events.LeaseOpened(
            terms=terms, bid=Digest(a["bidHash"]), at=at, transaction=log.transaction
        )

    def _of_modules(self, log: Log, at: int) -> events.ChainEvent | None:
        found = verification().log(log.topics, log.payload)
        if found is not None:
            return audit_event(*found, log.block, at)
        found = futures().log(log.topics, log.payload)
        if found is not None:
            name, a = found
            return self._skipped(a, log) if name == "PairSkipped" else future_event(name, a, at)
        found = group_buy().log(log.topics, log.payload)
        return group_event(*found, at) if found is not None else None

    def _skipped(self, a: dict[str, Any], log: Log) -> events.ChainEvent | None:
        call = self._ours(log.transaction)
        if call is None:  # somebody else's batch
            return None
        return events.EntrySkipped(
            call=call, position=a["index"], rejection=rejection_of(a["code"])
        )

    def _key_event(self, name: str, a: dict[str, Any]) -> events.ChainEvent:
        account = a["account"]
        if name == "AccountRegistered":
            self._accounts[a["id"]] = account
            return events.AccountRegistered(account=account, id=a["id"])
        signer = a["signer"]
        if name == "DelegateSet":
            delegation = Delegation(account=account, role=KeyRole(a["role"]), expiry=a["expiry"])
        else:
            held = self._delegations.get(signer)
            if held is None:
                raise _log_missing(f"the delegation of {signer}")
            delegation = msgspec.structs.replace(held, revoked_at=a["effectiveAt"])
        self._delegations[signer] = delegation
        return events.DelegationChanged(signer=signer, delegation=delegation)


def _account_event(name: str, a: dict[str, Any]) -> events.ChainEvent | None:
    match name:
        case "Deposited" | "Withdrawn" | "ModuleGave" | "ModuleTook":
            return events.CashChanged(
                account=a["account"],
                amount=TokenAmount(a["amount"]),
                increase=name in ("Deposited", "ModuleGave"),
            )
        case "NonceCancelled":
            return events.BidsCancelled(account=a["account"], nonce=a["nonce"], below=False)
        case "NoncesCancelled":
            return events.BidsCancelled(account=a["account"], nonce=a["nonceBase"], below=True)
        case "ProductRegistered":
            gpu_class, _sheet, region, gpus, min_bond, penalty, notice, flags = a["product"]
            return events.ProductRegistered(
                product=a["id"],
                gpu_class=GpuClass(ascii_of(gpu_class)),
                slice_gpus=gpus,
                region_group=ascii_of(region),
                min_bond=BasisPoints(min_bond),
                notice=notice,
                penalty=BasisPoints(penalty),
                flags=flags,
            )
        case "MarketRegistered":
            return events.MarketRegistered(
                market_id=a["id"], account=a["account"], fee=BasisPoints(a["feeBps"])
            )
        case _:  # Paused: openings that it stops come back as failed transactions
            return None


def _machine_event(name: str, a: dict[str, Any], unit: int) -> events.ChainEvent | None:
    machine = _machine(a)
    match name:
        case "MachineAdded":
            bond = TokenAmount(a["bond"] * unit)
            return events.MachineAdded(machine=machine, product=a["product"], bond=bond)
        case "BondAdded":
            return events.BondAdded(machine=machine, added=TokenAmount(a["added"] * unit))
        case "MachinePaused":
            return events.MachinePaused(machine=machine, paused=a["paused"])
        case "MachineRetiring":
            return events.MachineRetiring(machine=machine)
        case "MachineRetired":
            return events.MachineRetired(machine=machine)
        case "OrdersCancelled":
            return events.AsksCancelled(machine=machine, seq=a["nextSeq"])
        case _:  # BondSlashed: told with the conviction
            return None


def _closed(a: dict[str, Any], at: int) -> events.ChainEvent:
    """Layout as `endingOf` in Lifecycle.sol."""
    word, machine = a["ending"], _machine(a)
    seq, reason = word >> 48 & 0xFF_FFFF, LeaseEndReason(word >> 72)
    lease = LeaseKey(provider=machine.provider, index=machine.index, seq=seq)
    paid = TokenAmount(word & 0xFFFF_FFFF_FFFF)
    return events.LeaseClosed(lease=lease, reason=reason, paid=paid, at=at)


def _lease_event(name: str, a: dict[str, Any], at: int) -> events.ChainEvent | None:
    machine = _machine(a)
    lease = LeaseKey(provider=machine.provider, index=machine.index, seq=a["seq"])
    match name:
        case "LeaseReady":
            return events.LeaseReady(lease=lease, at=at)
        case "LeaseStarted":
            return events.LeaseStarted(lease=lease, started_at=a["startedAt"], at=at)
        case "LeaseSettled":
            return events.LeaseSettled(lease=lease, paid=TokenAmount(a["paid"]), at=at)
        case "LeaseStopped":
            return events.LeaseStopped(lease=lease, ceiling=TokenAmount(a["ceiling"]), at=at)
        case "NoticeGiven":
            releasable_at: int = a["releasableAt"]
            return events.NoticeGiven(lease=lease, releasable_at=releasable_at, at=at)
        case "PenaltyPaid":
            return events.PenaltyPaid(lease=lease, amount=TokenAmount(a["amount"]), at=at)
        case "HeldReturned":
            return events.HeldReturned(lease=lease, amount=TokenAmount(a["amount"]), at=at)
        case _:
            return None


def _log_missing(what: str) -> ChainUnavailable:
    return ChainUnavailable(
        f"{what} was never logged. Does the deployment's first_block come after its first"
        " transaction, or does this node not keep old logs?"
    )


def _machine(a: dict[str, Any]) -> MachineKey:
    return MachineKey.from_word(a["machineKey"])


def ascii_of(padded: bytes) -> str:
    """The text in a fixed-width word."""
    return padded.rstrip(b"\0").decode("ascii", errors="replace")
