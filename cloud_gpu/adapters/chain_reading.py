"""Reads a whole deployment off its chain: every balance at one block, all events, gas by step.

For balance sheets of small chains (a devnet): it asks for every account and every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloud_gpu.accounting import Books, GasUse, Holding
from cloud_gpu.protocol.adapters.evm_abi import lease_book, payment_token
from cloud_gpu.protocol.adapters.evm_events import Log, LogDecoder
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, octets, quantity, whole
from cloud_gpu.protocol.adapters.evm_views import read_all
from cloud_gpu.protocol.chain_events import ChainEvent, MachineAdded
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.values import Address, Digest

# Places in the contract's rows, as Rows.sol orders them.
_SEQ, _BOND = 2, 4
_STATUS, _BUYER, _CAP, _PAID = 0, 1, 2, 3


class ChainReader:
    """One deployment through one EVM node."""

    def __init__(self, rpc: Rpc, deployment: Deployment) -> None:
        self._rpc = rpc
        self._deployment = deployment
        self._book = lease_book()

    def newest_block(self) -> int:
        """Its number."""
        return whole(self._rpc.call("eth_blockNumber"))

    def books(self, block: int) -> Books:
        """Every balance at a block. Raises ChainUnavailable."""
        counts = self._read(block, [("counts", ())])[0]
        accounts = [
            _address(found)
            for found in self._read(
                block, [("addressOf", (number,)) for number in range(1, counts[0] + 1)]
            )
        ]
        cash = self._read(block, [("accountOf", (account,)) for account in accounts])
        wallets = read_all(
            self._rpc,
            payment_token(),
            self._deployment.token,
            [("balanceOf", (owner,)) for owner in (*accounts, self._deployment.lease_book)],
            at=quantity(block),
        )
        bond: dict[Address, int] = dict.fromkeys(accounts, 0)
        escrow: dict[Address, int] = dict.fromkeys(accounts, 0)
        for key, machine, lease in self._machines(block):
            bond[key.provider] += machine[_BOND] * self._deployment.bond_unit.value
            if lease[_STATUS]:
                escrow[_address(lease[_BUYER])] += lease[_CAP] - lease[_PAID]
        return Books(
            block=block,
            held=wallets[-1],
            holdings={
                account: Holding(
                    wallet=wallet, cash=found[0], bond=bond[account], escrow=escrow[account]
                )
                for account, wallet, found in zip(accounts, wallets[:-1], cash, strict=True)
            },
        )

    def events(self, last: int) -> tuple[ChainEvent, ...]:
        """All that LeaseBook logged up to a block, in order."""
        logs = [_log(found) for found in self._logs(last)]
        times = self._times(sorted({log.block for log in logs}))
        decoder = LogDecoder(self._deployment, lambda _: None)
        decoded = (decoder.decode(log, times[log.block]) for log in logs)
        return tuple(event for event in decoded if event is not None)

    def gas(self, first: int, last: int) -> tuple[GasUse, ...]:
        """What calls of LeaseBook in these blocks burnt, by function, the dearest first."""
        numbers = [quantity(number) for number in range(first, last + 1)]
        blocks = self._rpc.all([("eth_getBlockByNumber", (number, True)) for number in numbers])
        receipts = self._rpc.all([("eth_getBlockReceipts", (number,)) for number in numbers])
        book = str(self._deployment.lease_book).lower()
        used: dict[str, list[int]] = {}
        for block, of_block in zip(blocks, receipts, strict=True):
            for sent, receipt in zip(block["transactions"], of_block, strict=True):
                if (sent["to"] or "").lower() != book:
                    continue
                step = self._book.function_of(octets(sent["input"])) or "unknown"
                used.setdefault(step, []).append(whole(receipt["gasUsed"]))
        uses = [GasUse(step=s, transactions=len(g), gas=sum(g)) for s, g in used.items()]
        return tuple(sorted(uses, key=lambda use: (-use.gas, use.step)))

    def _machines(self, block: int) -> list[tuple[MachineKey, Any, Any]]:
        """Each machine with its row and its newest lease's."""
        keys = list(
            dict.fromkeys(e.machine for e in self.events(block) if isinstance(e, MachineAdded))
        )
        rows = self._read(block, [("machineOf", (k.provider, k.index)) for k in keys])
        named = [(k.provider, k.index, row[_SEQ]) for k, row in zip(keys, rows, strict=True)]
        leases = self._read(block, [("leaseOf", lease) for lease in named])
        return list(zip(keys, rows, leases, strict=True))

    def _read(self, block: int, questions: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        book = self._deployment.lease_book
        return read_all(self._rpc, self._book, book, questions, at=quantity(block))

    def _logs(self, last: int) -> list[dict[str, Any]]:
        wanted = {
            "address": str(self._deployment.lease_book),
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
