"""A second EVM: py-evm, written in Python from the yellow paper, where Anvil runs revm.

It takes the transactions that Anvil's blocks hold, in blocks of the same number, time and base fee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eth.chains.base import MiningChain
from eth.consensus.context import ConsensusContext
from eth.db.atomic import AtomicDB
from eth.db.chain import ChainDB
from eth.vm.chain_context import ChainContext
from eth.vm.forks.prague import PragueVM
from eth.vm.forks.prague.blocks import PragueBlockHeader

from cloud_gpu.protocol.adapters.evm_rpc import octets, whole
from cloud_gpu.protocol.values import Address

GENESIS_GAS = 30_000_000


@dataclass(frozen=True)
class Receipt:
    """What both EVMs must agree on about one transaction."""

    succeeded: bool
    gas_used: int
    logs: tuple[tuple[bytes, tuple[bytes, ...], bytes], ...]
    """Contract, topics, data."""


class SecondEvm:
    """One chain, at Prague from its first block on."""

    def __init__(self, chain_id: int, wei: Mapping[Address, int]) -> None:
        database = AtomicDB()
        kind = MiningChain.configure("Second", vm_configuration=((0, PragueVM),), chain_id=chain_id)
        funded: Any = {
            owner.raw: {"balance": amount, "nonce": 0, "code": b"", "storage": {}}
            for owner, amount in wei.items()
        }
        genesis: Any = {"difficulty": 0, "gas_limit": GENESIS_GAS, "timestamp": 0}
        chain = kind.from_genesis(database, genesis, funded)
        self._database, self._chain_id = ChainDB(database), chain_id
        self._root: bytes = chain.get_canonical_head().state_root

    def block(self, found: Mapping[str, Any], transactions: list[bytes]) -> list[Receipt]:
        """Run the transactions in a block like this one of Anvil's."""
        vm = self._vm(found)
        receipts = []
        for raw in transactions:
            transaction = vm.get_transaction_builder().decode(raw)
            receipt, computation = vm.apply_transaction(vm.get_header(), transaction)
            receipts.append(
                Receipt(
                    succeeded=computation.is_success,
                    gas_used=vm.finalize_gas_used(transaction, computation),
                    logs=tuple(
                        (log.address, tuple(t.to_bytes(32, "big") for t in log.topics), log.data)
                        for log in receipt.logs
                    ),
                )
            )
        vm.state.persist()
        self._root = vm.state.state_root
        return receipts

    def wei(self, owner: Address, found: Mapping[str, Any]) -> int:
        """An account's native currency after a block."""
        return int(self._vm(found).state.get_balance(_name(owner)))

    def word(self, contract: Address, slot: int, found: Mapping[str, Any]) -> int:
        """A contract's storage after a block."""
        return int(self._vm(found).state.get_storage(_name(contract), slot))

    def code(self, contract: Address, found: Mapping[str, Any]) -> bytes:
        """A contract's code after a block."""
        return bytes(self._vm(found).state.get_code(_name(contract)))

    def _vm(self, found: Mapping[str, Any]) -> PragueVM:
        fields: dict[str, Any] = {
            "difficulty": 0,
            "block_number": whole(found["number"]),
            "gas_limit": whole(found["gasLimit"]),
            "timestamp": whole(found["timestamp"]),
            "coinbase": octets(found["miner"]),
            "state_root": self._root,
            "base_fee_per_gas": whole(found["baseFeePerGas"]),
            "mix_hash": octets(found["mixHash"]),
        }
        context = ChainContext(self._chain_id)
        consensus = ConsensusContext(self._database.db)
        return PragueVM(PragueBlockHeader(**fields), self._database, context, consensus)


def _name(owner: Address) -> Any:
    """py-evm's addresses are bytes under a name of its own."""
    return owner.raw
