"""What LeaseBook and its token hold now, read by calls at the newest block. Blocking."""

from __future__ import annotations

from typing import Any

from cloud_gpu.protocol.adapters.evm_abi import (
    Interface,
    decode_revert,
    lease_book,
    payment_token,
)
from cloud_gpu.protocol.adapters.evm_rpc import Request, Rpc, RpcError, octets, whole
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.ports import AccountView, MachineView
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest


def check(rpc: Rpc, deployment: Deployment) -> Digest:
    """The hash of the chain's first block, once the deployment was found on it.

    Raises ChainUnavailable: no answer, another chain, no LeaseBook there.
    """
    chain_id, code, first = rpc.all(
        [
            ("eth_chainId", ()),
            ("eth_getCode", (str(deployment.lease_book), "latest")),
            ("eth_getBlockByNumber", ("0x0", False)),
        ]
    )
    if whole(chain_id) != deployment.chain_id:
        raise ChainUnavailable(
            f"{rpc.shown} serves chain {whole(chain_id)}, the deployment is on chain"
            f" {deployment.chain_id}: correct `rpc` or `deployment`"
        )
    if not octets(code):
        raise ChainUnavailable(
            f"no LeaseBook at {deployment.lease_book} on the chain at {rpc.shown}: it was reset,"
            " or is another chain. Deploy again, or correct `rpc` or `deployment`"
        )
    return Digest(octets(first["hash"]))


def call_request(
    interface: Interface, to: Address, function: str, *arguments: Any, at: str = "latest"
) -> Request:
    """The request that reads a view function."""
    data = "0x" + interface.encode(function, *arguments).hex()
    return "eth_call", ({"to": str(to), "data": data}, at)


def read(rpc: Rpc, interface: Interface, to: Address, function: str, *arguments: Any) -> Any:
    """One view function's only result. Raises ChainUnavailable."""
    return read_all(rpc, interface, to, [(function, arguments)])[0]


def read_all(
    rpc: Rpc,
    interface: Interface,
    to: Address,
    questions: list[tuple[str, tuple[Any, ...]]],
    *,
    at: str = "latest",
) -> list[Any]:
    """Several views in one request; a function with several results gives a tuple of them."""
    requests = [call_request(interface, to, name, *given, at=at) for name, given in questions]
    found = []
    for (name, _), answer in zip(questions, rpc.batch(requests), strict=True):
        if isinstance(answer, RpcError):
            reason = decode_revert(answer.data, answer.message)
            raise ChainUnavailable(f"{interface.name}.{name} at {to}: {reason}") from answer
        values = interface.decode(name, octets(answer))
        found.append(values[0] if len(values) == 1 else values)
    return found


def account(rpc: Rpc, deployment: Deployment, address: Address) -> AccountView:
    """See `EvmChain.account`."""
    cash, number, base, bits = read(rpc, lease_book(), deployment.lease_book, "accountOf", address)
    return AccountView(id=number, cash=TokenAmount(cash), nonce_base=base, nonce_bits=bits)


def machine(rpc: Rpc, deployment: Deployment, key: MachineKey) -> MachineView:
    """See `EvmChain.machine`. All of it is of one block."""
    book, block = lease_book(), rpc.call("eth_blockNumber")
    status, product, seq, next_seq, bond, locked, _retire_at = read_all(
        rpc, book, deployment.lease_book, [("machineOf", (key.provider, key.index))], at=block
    )[0]
    lease = read_all(
        rpc, book, deployment.lease_book, [("leaseOf", (key.provider, key.index, seq))], at=block
    )[0]
    _status, buyer, cap, paid, _ceiling, market_id, start, duration, _flags, _notice_at = lease
    buyer_id = 0
    if int(buyer, 16):
        questions = [("accountOf", (Address(bytes.fromhex(buyer[2:])),))]
        buyer_id = read_all(rpc, book, deployment.lease_book, questions, at=block)[0][1]
    return MachineView(
        status=MachineStatus(status),
        product=product,
        bond=TokenAmount(bond * deployment.bond_unit.value),
        locked=TokenAmount(locked),
        seq=seq,
        next_seq=next_seq,
        cap=TokenAmount(cap),
        paid=TokenAmount(paid),
        buyer_id=buyer_id,
        start=start,
        duration=duration,
        market_id=market_id,
    )


def token_balance(rpc: Rpc, deployment: Deployment, address: Address) -> TokenAmount:
    """See `EvmChain.token_balance`."""
    return TokenAmount(read(rpc, payment_token(), deployment.token, "balanceOf", address))


def native_balance(rpc: Rpc, address: Address) -> int:
    """See `EvmChain.native_balance`."""
    return whole(rpc.call("eth_getBalance", str(address), "latest"))


def chain_time(rpc: Rpc) -> int:
    """See `EvmChain.chain_time`."""
    return whole(rpc.call("eth_getBlockByNumber", "latest", False)["timestamp"])
