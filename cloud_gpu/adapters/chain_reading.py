"""Reads a whole deployment off its chain: every balance at one block, all events, gas by step.

For balance sheets of small chains (a devnet): it asks for every account, lease and block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloud_gpu.accounting import BURN, AuditPayees, BatchKey, Books, GasUse, Holding
from cloud_gpu.protocol.adapters.bindings import lease_book, payment_token, verification
from cloud_gpu.protocol.adapters.evm_abi import Interface, interface
from cloud_gpu.protocol.adapters.evm_bound import AnswerT, Call
from cloud_gpu.protocol.adapters.evm_events import Log, LogDecoder
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, octets, quantity, whole
from cloud_gpu.protocol.adapters.evm_views import ask_all
from cloud_gpu.protocol.audit import Results
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchFinalised,
    ChainEvent,
    LeaseOpened,
    MachineAdded,
)
from cloud_gpu.protocol.deployment import LEASE_BOOK, VERIFICATION, Deployment
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.signing import Domain, recover
from cloud_gpu.protocol.values import Address, Digest, Signature


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
        self._interfaces: dict[Address, Interface] = {deployment.lease_book: interface(LEASE_BOOK)}
        if not deployment.verification.is_zero:
            self._interfaces[deployment.verification] = interface(VERIFICATION)

    def newest_block(self) -> int:
        """Its number."""
        return whole(self._rpc.call("eth_blockNumber"))

    def books(self, block: int) -> Books:
        """Every balance at a block. Raises ChainUnavailable."""
        accounts = self._accounts(block)
        cash = self._read(block, [lease_book.account_of(account) for account in accounts])
        owners = (*accounts, self._deployment.lease_book, BURN)
        wallets = ask_all(
            self._rpc,
            self._deployment.token,
            [payment_token.balance_of(owner) for owner in owners],
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
                    cash=found.cash,
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

    def audit_payees(self, last: int) -> AuditPayees:
        """Who got the audit share of each batch that ended with results, and gets its bounties.

        Logs do not say the former: it follows from whose signature `finalize` carried. A batch
        that another contract finalised is left out. Bounties follow from the batch's number.
        """
        told = self._told(last)
        ended = [(x, e) for x, e in told if isinstance(e, BatchFinalised) and e.audits]
        hashes = [str(log.transaction) for log, _ in ended]
        sent = self._rpc.all([("eth_getTransactionByHash", (name,)) for name in hashes])
        verifiers = self._verifiers(last)
        accounts = {verifier.signer: verifier.audits for verifier in verifiers}
        module = str(self._deployment.verification).lower()
        domain = self._deployment.verification_domain
        shares = {}
        for (_, event), transaction in zip(ended, sent, strict=True):
            if (transaction["to"] or "").lower() == module:
                key = event.lease, event.batch_no
                shares[key] = accounts[_signers(octets(transaction["input"]), domain)[key]]
        committed = [event for _, event in told if isinstance(event, BatchCommitted)]
        bounties = {
            (event.lease, event.batch_no): verifiers[number % len(verifiers)].audits
            for number, event in enumerate(committed)
        }
        return AuditPayees(shares=shares, bounties=bounties)

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
        registered = self._read(block, [lease_book.counts()])[0].accounts
        numbers = range(1, registered + 1)
        found = self._read(block, [lease_book.address_of(number) for number in numbers])
        audits = [verifier.audits for verifier in self._verifiers(block)]
        return list(dict.fromkeys((*found, *audits)))

    def _verifiers(self, block: int) -> Sequence[verification.Verifier]:
        if self._deployment.verification.is_zero:
            return ()
        return self._read_audits(block, [verification.verifiers()])[0]

    def _locked(self, block: int) -> _Locked:
        events, locked = self.events(block), _Locked()
        for key, machine, row in self._machines(block, events):
            locked.bond[key.provider] += machine.bond * self._deployment.bond_unit.value
            locked.bond_locked[key.provider] += machine.locked
            if row.status:
                locked.escrow[row.buyer] += row.cap - row.paid
        opened = [e.terms for e in events if isinstance(e, LeaseOpened) and e.terms.is_verified]
        buyers = {terms.key: terms.buyer for terms in opened}
        held = self._read(block, [lease_book.held_of(*_place(lease)) for lease in buyers])
        for (lease, buyer), pay in zip(buyers.items(), held, strict=True):
            locked.held_pay[lease.provider] += pay.amount
            locked.escrow[buyer] += pay.audit
        committed = [(e.lease, e.batch_no) for e in events if isinstance(e, BatchCommitted)]
        views = [verification.batch_of(*_place(lease), number) for lease, number in committed]
        for (lease, _), batch in zip(committed, self._read_audits(block, views), strict=True):
            locked.held_pay[lease.provider] += batch.left
            locked.escrow[buyers[lease]] += batch.audit
        return locked

    def _machines(
        self, block: int, events: Iterable[ChainEvent]
    ) -> list[tuple[MachineKey, lease_book.Machine, lease_book.Lease]]:
        """Each machine with its row and its newest lease's."""
        keys = list(dict.fromkeys(e.machine for e in events if isinstance(e, MachineAdded)))
        rows = self._read(block, [lease_book.machine_of(k.provider, k.index) for k in keys])
        named = [(k.provider, k.index, row.seq) for k, row in zip(keys, rows, strict=True)]
        leases = self._read(block, [lease_book.lease_of(*lease) for lease in named])
        return list(zip(keys, rows, leases, strict=True))

    def _read(self, block: int, views: Sequence[Call[AnswerT]]) -> list[AnswerT]:
        return ask_all(self._rpc, self._deployment.lease_book, views, at=quantity(block))

    def _read_audits(self, block: int, views: Sequence[Call[AnswerT]]) -> list[AnswerT]:
        return ask_all(self._rpc, self._deployment.verification, views, at=quantity(block))

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


def _place(lease: LeaseKey) -> tuple[Address, int, int]:
    return lease.provider, lease.index, lease.seq


def _signers(calldata: bytes, domain: Domain) -> dict[BatchKey, Address]:
    """Whose signature a call of `finalize` carried for each batch, one that the contract took."""
    (endings,) = interface(VERIFICATION).arguments_of("finalize", calldata)
    found = {}
    for ending in map(verification.Ending.of, endings):
        said = ending.results
        results = Results(
            provider=said.provider,
            index=said.index,
            seq=said.seq,
            batch_no=said.batch_no,
            incomparable=said.incomparable,
        )
        signer = recover(results.digest(domain), Signature(ending.signature))
        lease = LeaseKey(provider=said.provider, index=said.index, seq=said.seq)
        if signer is not None:  # none: it ended at the hard cap
            found[lease, said.batch_no] = signer
    return found
