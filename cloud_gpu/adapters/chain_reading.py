"""Reads a whole deployment off its chain: every balance at one block, all events, gas by step.

For balance sheets of small chains (a devnet): it asks for every account, lease and block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from eth_abi.abi import decode as abi_decode

from cloud_gpu.accounting import BURN, BatchKey, Books, GasUse, Holding
from cloud_gpu.protocol.adapters.evm_abi import (
    Interface,
    lease_book,
    payment_token,
    verification,
)
from cloud_gpu.protocol.adapters.evm_events import Log, LogDecoder
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, octets, quantity, whole
from cloud_gpu.protocol.adapters.evm_views import read_all
from cloud_gpu.protocol.audit import Results
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchFinalised,
    ChainEvent,
    LeaseOpened,
    MachineAdded,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.signing import Domain, recover
from cloud_gpu.protocol.values import Address, Digest, Signature

# Places in the contracts' rows, as Rows.sol and Audits.sol order them.
_SEQ, _BOND, _LOCKED = 2, 4, 5
_STATUS, _BUYER, _CAP, _PAID = 0, 1, 2, 3
_HELD_AMOUNT, _HELD_AUDIT = 0, 1
_BATCH_LEFT, _BATCH_AUDIT = 5, 6
_VERIFIER_SIGNER, _VERIFIER_AUDITS = 0, 2

_RESULTS: Final = ("address", "uint32", "uint24", "uint16", "uint128")
_FINALISE_HEAD: Final = (*_RESULTS, "uint256", "bytes")
"""What `finalize` takes: the results, where the openings lie (they are not read), a signature."""


@dataclass(frozen=True)
class _Locked:
    """What LeaseBook owes beside cash, base units by account."""

    bond: Counter[Address] = field(default_factory=Counter)
    bond_locked: Counter[Address] = field(default_factory=Counter)
    escrow: Counter[Address] = field(default_factory=Counter)
    held_pay: Counter[Address] = field(default_factory=Counter)


class ChainReader:
    """One deployment through one EVM node."""

    def __init__(self, rpc: Rpc, deployment: Deployment) -> None:
        self._rpc = rpc
        self._deployment = deployment
        self._interfaces: dict[Address, Interface] = {deployment.lease_book: lease_book()}
        if not deployment.verification.is_zero:
            self._interfaces[deployment.verification] = verification()

    def newest_block(self) -> int:
        """Its number."""
        return whole(self._rpc.call("eth_blockNumber"))

    def books(self, block: int) -> Books:
        """Every balance at a block. Raises ChainUnavailable."""
        accounts = self._accounts(block)
        cash = self._read(block, [("accountOf", (account,)) for account in accounts])
        wallets = read_all(
            self._rpc,
            payment_token(),
            self._deployment.token,
            [("balanceOf", (o,)) for o in (*accounts, self._deployment.lease_book, BURN)],
            at=quantity(block),
        )
        *of_accounts, held, burnt = wallets
        locked = self._locked(block)
        return Books(
            block=block,
            held=held,
            burnt=burnt,
            holdings={
                account: Holding(
                    wallet=wallet,
                    cash=found[0],
                    bond=locked.bond[account],
                    escrow=locked.escrow[account],
                    held_pay=locked.held_pay[account],
                    bond_locked=locked.bond_locked[account],
                )
                for account, wallet, found in zip(accounts, of_accounts, cash, strict=True)
            },
        )

    def events(self, last: int) -> tuple[ChainEvent, ...]:
        """All that the deployment's contracts logged up to a block, in order."""
        return tuple(event for _, event in self._told(last))

    def audit_accounts(self, last: int) -> dict[BatchKey, Address]:
        """Which account got the audit share of each batch that ended with results.

        Logs do not say it: it follows from whose signature `finalize` carried. A batch that another
        contract finalised is left out.
        """
        ended = [
            (log, event)
            for log, event in self._told(last)
            if isinstance(event, BatchFinalised) and event.audits
        ]
        hashes = [str(log.transaction) for log, _ in ended]
        sent = self._rpc.all([("eth_getTransactionByHash", (name,)) for name in hashes])
        accounts = {
            _address(row[_VERIFIER_SIGNER]): _address(row[_VERIFIER_AUDITS])
            for row in self._verifiers(last)
        }
        module = str(self._deployment.verification).lower()
        domain = self._deployment.verification_domain
        found = {}
        for (_, event), transaction in zip(ended, sent, strict=True):
            if (transaction["to"] or "").lower() == module:
                signer = _signer(octets(transaction["input"]), domain)
                found[event.lease, event.batch_no] = accounts[signer]
        return found

    def gas(self, first: int, last: int) -> tuple[GasUse, ...]:
        """What calls of the contracts in these blocks burnt, by function, the dearest first."""
        numbers = [quantity(number) for number in range(first, last + 1)]
        blocks = self._rpc.all([("eth_getBlockByNumber", (number, True)) for number in numbers])
        receipts = self._rpc.all([("eth_getBlockReceipts", (number,)) for number in numbers])
        called = {str(address).lower(): found for address, found in self._interfaces.items()}
        used: dict[tuple[str, str], list[int]] = {}
        for block, of_block in zip(blocks, receipts, strict=True):
            for sent, receipt in zip(block["transactions"], of_block, strict=True):
                interface = called.get((sent["to"] or "").lower())
                if interface is None:
                    continue
                step = interface.function_of(octets(sent["input"])) or "unknown"
                used.setdefault((interface.name, step), []).append(whole(receipt["gasUsed"]))
        uses = [
            GasUse(contract=contract, step=step, transactions=len(gas), gas=sum(gas))
            for (contract, step), gas in used.items()
        ]
        return tuple(sorted(uses, key=lambda use: (-use.gas, use.contract, use.step)))

    def _accounts(self, block: int) -> list[Address]:
        """All registered ones; audits may also be paid to one that never registered."""
        registered, _products, _markets = self._read(block, [("counts", ())])[0]
        numbers = range(1, registered + 1)
        found = self._read(block, [("addressOf", (number,)) for number in numbers])
        audits = [verifier[_VERIFIER_AUDITS] for verifier in self._verifiers(block)]
        return list(dict.fromkeys(_address(account) for account in (*found, *audits)))

    def _verifiers(self, block: int) -> list[Any]:
        if self._deployment.verification.is_zero:
            return []
        rows: list[Any] = self._read_audits(block, [("verifiers", ())])[0]
        return rows

    def _locked(self, block: int) -> _Locked:
        events, locked = self.events(block), _Locked()
        for key, machine, lease in self._machines(block, events):
            locked.bond[key.provider] += machine[_BOND] * self._deployment.bond_unit.value
            locked.bond_locked[key.provider] += machine[_LOCKED]
            if lease[_STATUS]:
                locked.escrow[_address(lease[_BUYER])] += lease[_CAP] - lease[_PAID]
        opened = [e.terms for e in events if isinstance(e, LeaseOpened) and e.terms.is_verified]
        buyers = {terms.key: terms.buyer for terms in opened}
        held = self._read(block, [("heldOf", _place(lease)) for lease in buyers])
        for (lease, buyer), row in zip(buyers.items(), held, strict=True):
            locked.held_pay[lease.provider] += row[_HELD_AMOUNT]
            locked.escrow[buyer] += row[_HELD_AUDIT]
        committed = [(e.lease, e.batch_no) for e in events if isinstance(e, BatchCommitted)]
        places = [("batchOf", (*_place(lease), batch_no)) for lease, batch_no in committed]
        batches = self._read_audits(block, places)
        for (lease, _), row in zip(committed, batches, strict=True):
            locked.held_pay[lease.provider] += row[_BATCH_LEFT]
            locked.escrow[buyers[lease]] += row[_BATCH_AUDIT]
        return locked

    def _machines(
        self, block: int, events: Iterable[ChainEvent]
    ) -> list[tuple[MachineKey, Any, Any]]:
        """Each machine with its row and its newest lease's."""
        keys = list(dict.fromkeys(e.machine for e in events if isinstance(e, MachineAdded)))
        rows = self._read(block, [("machineOf", (k.provider, k.index)) for k in keys])
        named = [(k.provider, k.index, row[_SEQ]) for k, row in zip(keys, rows, strict=True)]
        leases = self._read(block, [("leaseOf", lease) for lease in named])
        return list(zip(keys, rows, leases, strict=True))

    def _read(self, block: int, questions: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        book = self._deployment.lease_book
        return read_all(self._rpc, lease_book(), book, questions, at=quantity(block))

    def _read_audits(self, block: int, questions: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        module = self._deployment.verification
        return read_all(self._rpc, verification(), module, questions, at=quantity(block))

    def _told(self, last: int) -> list[tuple[Log, ChainEvent]]:
        """The logs up to a block that concern a party, decoded."""
        logs = [_log(found) for found in self._logs(last)]
        times = self._times(sorted({log.block for log in logs}))
        decoder = LogDecoder(self._deployment, lambda _: None)
        decoded = [(log, decoder.decode(log, times[log.block])) for log in logs]
        return [(log, event) for log, event in decoded if event is not None]

    def _logs(self, last: int) -> list[dict[str, Any]]:
        wanted = {
            "address": [str(address) for address in self._deployment.contracts],
            "fromBlock": quantity(self._deployment.first_block),
            "toBlock": quantity(last),
        }
        found: list[dict[str, Any]] = self._rpc.call("eth_getLogs", wanted)
        return found

    def _times(self, blocks: Sequence[int]) -> dict[int, int]:
        found = self._rpc.all([("eth_getBlockByNumber", (quantity(b), False)) for b in blocks])
        return {b: whole(block["timestamp"]) for b, block in zip(blocks, found, strict=True)}


def _log(found: dict[str, Any]) -> Log:
    return Log(
        block=whole(found["blockNumber"]),
        block_hash=Digest(octets(found["blockHash"])),
        index=whole(found["logIndex"]),
        transaction=Digest(octets(found["transactionHash"])),
        topics=tuple(octets(topic) for topic in found["topics"]),
        payload=octets(found["data"]),
    )


def _address(found: str) -> Address:
    return Address(bytes.fromhex(found[2:]))


def _place(lease: LeaseKey) -> tuple[Address, int, int]:
    return lease.provider, lease.index, lease.seq


def _signer(calldata: bytes, domain: Domain) -> Address:
    """Whose signature a call of `finalize` carried, one that the contract took."""
    provider, index, seq, batch_no, incomparable, _openings, signature = abi_decode(
        _FINALISE_HEAD, calldata[4:]
    )
    results = Results(
        provider=_address(provider),
        index=index,
        seq=seq,
        batch_no=batch_no,
        incomparable=incomparable,
    )
    signer = recover(results.digest(domain), Signature(signature))
    assert signer is not None, f"the contract took a signature that is none: {results}"
    return signer
