"""One transaction at a time, waited for: how a person's wallet and a deployer send. Blocking.

Parties use the outbox instead. Here nothing is kept: whoever is interrupted asks the chain.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from cloud_gpu.protocol.adapters.evm_abi import Revert, decode_revert
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, RpcError, whole
from cloud_gpu.protocol.adapters.evm_sender import GAS_MAX, fees_of
from cloud_gpu.protocol.adapters.evm_transaction import Transaction
from cloud_gpu.protocol.adapters.patience import Patience
from cloud_gpu.protocol.errors import (
    ChainUnavailable,
    FundsTooSmall,
    GasTooSmall,
    TransactionReverted,
)
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.units import format_tokens
from cloud_gpu.protocol.values import Address

_NONCE_TRIES: Final = 10
_FIRST_POLL_S: Final = 0.005
_POLL_S_MAX: Final = 0.1
"""A devnet may mine at once, a public chain takes seconds."""


class DirectSender:
    """Sends with one key and waits for the receipt."""

    def __init__(self, rpc: Rpc, key: Signer, *, timeout_s: float = 120.0) -> None:
        self._rpc, self._key, self._timeout_s = rpc, key, timeout_s
        self.gas_used = 0
        """Gas of everything sent so far."""

    def send(self, to: Address | None, payload: bytes, *, wei: int = 0) -> Mapping[str, Any]:
        """The receipt of a transaction that went through.

        Raises TransactionReverted (the decoded custom error), FundsTooSmall (the vault, the
        wallet's tokens, or native currency for gas), ChainUnavailable (no answer, not mined in
        time: it may still be).
        """
        for _ in range(_NONCE_TRIES):
            transaction = self._prepared(to, payload, wei)
            signed = transaction.signed(self._key)
            try:
                self._rpc.call("eth_sendRawTransaction", "0x" + signed.raw.hex())
            except RpcError as error:
                if error.says("nonce too low", "underpriced"):
                    time.sleep(_POLL_S_MAX)  # another sender of this key was faster
                    continue
                if not error.says("already known", "already imported"):
                    raise explained(self._rpc, self._key.address, error) from error
            return self._receipt(str(signed.hash), transaction)
        raise ChainUnavailable(
            f"another program sends with {self._key.address} all the time; stop it, or try later"
        )

    def _prepared(self, to: Address | None, payload: bytes, wei: int) -> Transaction:
        request = {
            "from": str(self._key.address),
            "data": "0x" + payload.hex(),
            "value": hex(wei),
        } | ({"to": str(to)} if to else {})
        gas, count, block, tip, chain_id = self._rpc.batch(
            [
                ("eth_estimateGas", (request, "pending")),
                ("eth_getTransactionCount", (str(self._key.address), "pending")),
                ("eth_getBlockByNumber", ("latest", False)),
                ("eth_maxPriorityFeePerGas", ()),
                ("eth_chainId", ()),
            ]
        )
        for found in (gas, count, block, chain_id):
            if isinstance(found, RpcError):
                raise explained(self._rpc, self._key.address, found) from found
        return Transaction(
            chain_id=whole(chain_id),
            nonce=whole(count),
            to=to,
            payload=payload,
            gas=min(GAS_MAX, whole(gas) * 12 // 10),
            fees=fees_of(block, tip),
            wei=wei,
        )

    def _receipt(self, transaction_hash: str, transaction: Transaction) -> Mapping[str, Any]:
        give_up_at = time.monotonic() + self._timeout_s
        patience = Patience(_FIRST_POLL_S, _POLL_S_MAX)
        while time.monotonic() < give_up_at:
            receipt = self._rpc.call("eth_getTransactionReceipt", transaction_hash)
            if receipt is None:
                time.sleep(patience.longer())
                continue
            gas_used = whole(receipt["gasUsed"])
            self.gas_used += gas_used
            if whole(receipt["status"]) == 1:
                found: Mapping[str, Any] = receipt
                return found
            if gas_used == transaction.gas:
                raise TransactionReverted("OutOfGas", f"limit {transaction.gas}")
            raise why_reverted(self._rpc, self._key.address, transaction, receipt)
        raise ChainUnavailable(
            f"transaction {transaction_hash} was not mined in {self._timeout_s:.0f} s; it may still"
            " be: look at the chain before you send it again"
        )


def why_reverted(
    rpc: Rpc, sender: Address, transaction: Transaction, receipt: Mapping[str, Any]
) -> TransactionReverted | FundsTooSmall | ChainUnavailable:
    """The reason behind a failed receipt: it is run again in its block and in the one before."""
    request = {
        "from": str(sender),
        "data": "0x" + transaction.payload.hex(),
        "value": hex(transaction.wei),
    } | ({"to": str(transaction.to)} if transaction.to else {})
    block = whole(receipt["blockNumber"])
    for at in (block, block - 1):
        try:
            rpc.call("eth_call", request, hex(at))
        except RpcError as error:
            return explained(rpc, sender, error)
    return TransactionReverted("Reverted", "it lost a race against another transaction")


def explained(
    rpc: Rpc, sender: Address, error: RpcError
) -> TransactionReverted | FundsTooSmall | ChainUnavailable:
    """What a node's refusal of a transaction means."""
    if error.says("insufficient funds", "insufficient balance"):
        wei = whole(rpc.call("eth_getBalance", str(sender), "latest"))
        return GasTooSmall(
            needed=0,
            have=wei,
            text=f"{sender} holds {wei} wei, too little to pay for gas; send it native currency"
            f" ({error.message})",
        )
    if error.data is None and not error.says("revert"):
        return ChainUnavailable(f"the EVM node refused: {error}")
    return refusal(decode_revert(error.data, error.message))


def refusal(revert: Revert) -> TransactionReverted | FundsTooSmall:
    """The exception that a decoded revert is told as; amounts in base units."""
    found = revert.arguments
    if revert.name == "LeaseBook_CashTooLow":
        needed, have = int(found["need"]), int(found["have"])
        text = f"the vault holds {format_tokens(have)} tokens of yours, {format_tokens(needed)} are"
        return FundsTooSmall(needed, have, f"{text} needed; deposit more first")
    if revert.name == "ERC20InsufficientBalance":
        needed, have = int(found["needed"]), int(found["balance"])
        text = f"the wallet holds {format_tokens(have)} tokens, {format_tokens(needed)} are needed"
        return FundsTooSmall(needed, have, text)
    inside = ", ".join(f"{name} {value}" for name, value in found.items())
    return TransactionReverted(revert.name, inside)
