"""A chain of one's own with the contracts on it, and the shortest way to send and to read."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud_gpu.adapters.processes import Child
from cloud_gpu.adapters.toolchain import anvil_url, find_anvil
from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.deployer import deploy
from cloud_gpu.protocol.adapters.evm_abi import decode_revert
from cloud_gpu.protocol.adapters.evm_bound import AnswerT, Call
from cloud_gpu.protocol.adapters.evm_calls import calldata, destination
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, RpcError, whole
from cloud_gpu.protocol.adapters.evm_transaction import Fees, Transaction
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.deployment import (
    LEASE_BOOK,
    PAYMENT_TOKEN,
    VERIFICATION,
    Deployment,
    DeploymentTerms,
)
from cloud_gpu.protocol.futures import FUTURES
from cloud_gpu.protocol.group_buy import GROUP_BUY
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.values import Address, keccak256

ETHER = 10**18
GAS = 2**24
FEES = Fees(most=10**11, tip=1)
_START_S = 20


class Refused(Exception):
    """The contract refused; `name` is its error."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True)
class Receipt:
    """What a transaction that went through left."""

    gas: int
    logs: tuple[Mapping[str, Any], ...]


@dataclass
class Chain:
    """Anvil with a deployment. Blocks come with transactions; keys are made from names."""

    rpc: Rpc
    deployment: Deployment
    _counts: dict[Address, int] = field(default_factory=dict)
    _keys: dict[Address, LocalKey] = field(default_factory=dict)

    def key(self, name: str) -> LocalKey:
        """The same key for the same name, with native currency."""
        made = named_key(name)
        if made.address not in self._counts:
            self.rpc.call("anvil_setBalance", str(made.address), hex(1000 * ETHER))
            self._counts[made.address], self._keys[made.address] = 0, made
        return made

    def owner(self, address: Address) -> LocalKey:
        """The key behind an address that `key` gave."""
        return self._keys[address]

    def send(
        self, key: LocalKey, call: Call[Any] | ChainCall, *, to: Address | None = None
    ) -> Receipt:
        """One transaction in a block of its own. Raises Refused."""
        payload, place = self._parts(call)
        count = self._counts[key.address]
        transaction = Transaction(
            chain_id=self.deployment.chain_id,
            nonce=count,
            to=to or place,
            payload=payload,
            gas=GAS,
            fees=FEES,
        )
        signed = transaction.signed(key)
        name = self.rpc.call("eth_sendRawTransaction", "0x" + signed.raw.hex())
        self._counts[key.address] = count + 1
        receipt = self._mined(name)
        if whole(receipt["status"]) != 1:
            block = whole(receipt["blockNumber"])
            raise self._refused(key, transaction, block)
        return Receipt(gas=whole(receipt["gasUsed"]), logs=tuple(receipt["logs"]))

    def ask(self, call: Call[AnswerT]) -> AnswerT:
        """What a view answers now."""
        return views.ask(self.rpc, self._place(call), call)

    def pass_time(self, seconds: int) -> None:
        """The chain's clock."""
        self.rpc.call("evm_increaseTime", seconds)
        self.mine()

    def mine(self, blocks: int = 1) -> None:
        """Empty blocks."""
        self.rpc.call("anvil_mine", hex(blocks))

    def time(self) -> int:
        """The newest block's, Unix seconds."""
        return whole(self.rpc.call("eth_getBlockByNumber", "latest", False)["timestamp"])

    def height(self) -> int:
        """The newest block's number."""
        return whole(self.rpc.call("eth_blockNumber"))

    def _mined(self, name: str) -> Mapping[str, Any]:
        give_up_at = time.monotonic() + _START_S
        while time.monotonic() < give_up_at:
            receipt: Mapping[str, Any] | None = self.rpc.call("eth_getTransactionReceipt", name)
            if receipt is not None:
                return receipt
            time.sleep(0.001)
        raise RuntimeError(f"transaction {name} was not mined in {_START_S} s")

    def _parts(self, call: Call[Any] | ChainCall) -> tuple[bytes, Address]:
        if isinstance(call, Call):
            return call.calldata, self._place(call)
        return calldata(call), destination(call, self.deployment)

    def _place(self, call: Call[Any]) -> Address:
        places = {
            LEASE_BOOK: self.deployment.lease_book,
            PAYMENT_TOKEN: self.deployment.token,
            VERIFICATION: self.deployment.verification,
            FUTURES: self.deployment.futures,
            GROUP_BUY: self.deployment.group_buy,
        }
        return places[call.contract]

    def _refused(self, key: LocalKey, transaction: Transaction, block: int) -> Refused:
        request = {
            "from": str(key.address),
            "to": str(transaction.to),
            "data": "0x" + transaction.payload.hex(),
            "gas": hex(GAS),
        }
        for at in (block, block - 1):
            try:
                self.rpc.call("eth_call", request, hex(at))
            except RpcError as error:
                revert = decode_revert(error.data, error.message)
                return Refused(revert.name, str(revert))
        return Refused("Unknown", "it passes when it is run again")


def named_key(name: str) -> LocalKey:
    """A key that everybody can compute: for chains that only we use."""
    return LocalKey(keccak256(b"cloud-gpu benchmarks: " + name.encode()).raw)


@contextmanager
def running_chain(terms: DeploymentTerms, *options: str) -> Iterator[Chain]:
    """Start Anvil, deploy, and end it."""
    with _anvil(*options) as url, Rpc(url) as rpc:
        deployer = named_key("deployer")
        rpc.call("anvil_setBalance", str(deployer.address), hex(1000 * ETHER))
        yield Chain(rpc, deploy(url, deployer, terms))


@contextmanager
def _anvil(*options: str) -> Iterator[str]:
    command = [str(find_anvil()), "--host", "127.0.0.1", "--port", "0", *options]
    with tempfile.TemporaryDirectory() as folder:
        anvil = Child("anvil", command, Path(folder), os.environ)
        try:
            yield anvil.wait_for(anvil_url, _START_S)
        finally:
            anvil.end(_START_S)
