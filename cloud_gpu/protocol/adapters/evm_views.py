"""What LeaseBook and its token hold now, read by calls at the newest block. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloud_gpu.protocol.adapters.bindings import lease_book, payment_token
from cloud_gpu.protocol.adapters.evm_abi import decode_revert
from cloud_gpu.protocol.adapters.evm_bound import AnswerT, Call
from cloud_gpu.protocol.adapters.evm_events import ascii_of
from cloud_gpu.protocol.adapters.evm_rpc import Request, Rpc, RpcError, octets, whole
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.ports import AccountView, MachineView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
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


def request(to: Address, view: Call[Any], *, at: str = "latest") -> Request:
    """The request that asks a view."""
    return "eth_call", ({"to": str(to), "data": "0x" + view.calldata.hex()}, at)


def ask(rpc: Rpc, to: Address, view: Call[AnswerT], *, at: str = "latest") -> AnswerT:
    """What a view answers. Raises ChainUnavailable."""
    return ask_all(rpc, to, [view], at=at)[0]


def ask_all(
    rpc: Rpc, to: Address, views: Sequence[Call[AnswerT]], *, at: str = "latest"
) -> list[AnswerT]:
    """Several views in one request. Raises ChainUnavailable."""
    found = []
    answers = rpc.batch([request(to, view, at=at) for view in views])
    for view, answer in zip(views, answers, strict=True):
        if isinstance(answer, RpcError):
            reason = decode_revert(answer.data, answer.message)
            raise ChainUnavailable(f"{view.contract}.{view.function} at {to}: {reason}") from answer
        found.append(view.answer(octets(answer)))
    return found


def account(rpc: Rpc, deployment: Deployment, address: Address) -> AccountView:
    """See `EvmChain.account`."""
    found = ask(rpc, deployment.lease_book, lease_book.account_of(address))
    return AccountView(
        id=found.id,
        cash=TokenAmount(found.cash),
        nonce_base=found.nonce_base,
        nonce_bits=found.nonce_bits,
    )


def machine(rpc: Rpc, deployment: Deployment, key: MachineKey) -> MachineView:
    """See `EvmChain.machine`. All of it is of one block."""
    book, block = deployment.lease_book, rpc.call("eth_blockNumber")
    found = ask(rpc, book, lease_book.machine_of(key.provider, key.index), at=block)
    lease = ask(rpc, book, lease_book.lease_of(key.provider, key.index, found.seq), at=block)
    buyer_id = 0
    if not lease.buyer.is_zero:
        buyer_id = ask(rpc, book, lease_book.account_of(lease.buyer), at=block).id
    return MachineView(
        status=MachineStatus(found.status),
        product=found.product,
        bond=TokenAmount(found.bond * deployment.bond_unit.value),
        locked=TokenAmount(found.locked),
        seq=found.seq,
        next_seq=found.next_seq,
        cap=TokenAmount(lease.cap),
        paid=TokenAmount(lease.paid),
        buyer_id=buyer_id,
        start=lease.start,
        duration=lease.duration,
        market_id=lease.market_id,
    )


def products(rpc: Rpc, deployment: Deployment) -> tuple[Product, ...]:
    """LeaseBook's whole table of products, by number."""
    book = deployment.lease_book
    numbers = range(1, ask(rpc, book, lease_book.counts()).products + 1)
    rows = ask_all(rpc, book, [lease_book.product_of(number) for number in numbers])
    return tuple(
        Product(
            id=number,
            gpu_class=GpuClass(ascii_of(row.gpu_class)),
            slice_gpus=row.slice_gpus,
            region_group=ascii_of(row.region_group),
            min_bond=BasisPoints(row.min_bond_bps),
            notice=row.notice,
            penalty=BasisPoints(row.penalty_bps),
            flags=row.flags,
        )
        for number, row in zip(numbers, rows, strict=True)
    )


def token_balance(rpc: Rpc, deployment: Deployment, address: Address) -> TokenAmount:
    """See `EvmChain.token_balance`."""
    return TokenAmount(ask(rpc, deployment.token, payment_token.balance_of(address)))


def native_balance(rpc: Rpc, address: Address) -> int:
    """See `EvmChain.native_balance`."""
    return whole(rpc.call("eth_getBalance", str(address), "latest"))


def chain_time(rpc: Rpc) -> int:
    """See `EvmChain.chain_time`."""
    return whole(rpc.call("eth_getBlockByNumber", "latest", False)["timestamp"])
