"""An account's own calls of Futures, each waited for, and what the contract holds. Blocking."""

from __future__ import annotations

from typing import Any

from cloud_gpu.protocol.adapters import evm_views as views
from cloud_gpu.protocol.adapters.bindings import futures as bound
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_calls import struct
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.adapters.evm_rpc import Rpc
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.futures import Assignment, HeldContract, Series
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest


class WalletFutures:
    """What `Wallet` is to LeaseBook, for Futures; raises as it does."""

    def __init__(self, rpc: Rpc, sender: DirectSender, deployment: Deployment) -> None:
        self._rpc, self._sender, self._address = rpc, sender, deployment.futures

    def contract(self, number: int) -> HeldContract | None:
        """A contract; None: there is none of this number, or it ended."""
        found = views.ask(self._rpc, self._address, bound.contract_of(number))
        if found.long.is_zero:
            return None
        return HeldContract(
            id=number,
            long=found.long,
            short=found.short,
            series=Series(
                product=found.series.product,
                window_start=found.series.window_start,
                window_seconds=found.series.window_seconds,
            ),
            per_hour=TokenAmount(found.price),
            units=found.units,
            long_margin=TokenAmount(found.long_margin),
            short_margin=TokenAmount(found.short_margin),
            is_funded=found.funded,
            is_nominated=found.nominated,
        )

    def count(self) -> int:
        """How many contracts ever opened; their numbers are 1 to that."""
        return views.ask(self._rpc, self._address, bound.contract_count())

    def close_order(self, order: Digest) -> None:
        """No more contracts of an order of this account."""
        self._send(bound.close_order(order.raw))

    def fund(self, number: int) -> None:
        """The long locks the whole price."""
        self._send(bound.fund(number))

    def nominate(self, number: int, indexes: tuple[int, ...]) -> None:
        """The short names the machines that it will deliver."""
        self._send(bound.nominate(number, indexes))

    def assign(self, assignment: Signed[Assignment]) -> None:
        """Leave a contract to who signed."""
        said = bound.Assignment(*struct(assignment.payload))
        self._send(bound.assign(said, assignment.signature.raw))

    def _send(self, call: Call[Any]) -> None:
        self._sender.send(self._address, call.calldata)
