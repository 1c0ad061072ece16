"""Leases that ended and were paid, of the last day: what the price index is made of.

Part of the ledger: what a block changed is taken back with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from cloud_gpu.protocol.lease import LeaseKey, LeaseReport
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import GpuSeconds, TokenAmount, per_hour_down
from market.index.price_index import DAY_S, LEAST_S, PaidLease
from market.undo import UndoLog


class PaidLeases:
    """By lease; those of firm leases and group buys too, whose market is 0."""

    def __init__(self, undo: UndoLog) -> None:
        self._undo = undo
        self._ended: dict[LeaseKey, tuple[int, PaidLease]] = {}
        """With the market's number."""
        self._stopped: dict[LeaseKey, int] = {}

    def tables(self) -> Iterator[tuple[str, Mapping[Any, object]]]:
        """For a digest of the state."""
        yield "paid_leases", MappingProxyType(self._ended)
        yield "stopped", MappingProxyType(self._stopped)

    def of(self, market_id: int) -> list[PaidLease]:
        """Those of one market, by lease."""
        rows = (self._ended[key] for key in sorted(self._ended))
        return [lease for market, lease in rows if market == market_id]

    def stopped(self, lease: LeaseKey, at: int) -> None:
        """Its buyer stopped it: what ran until then is what is paid for."""
        self._undo.set(self._stopped, lease, at)

    def closed(
        self, report: LeaseReport, paid: TokenAmount, product: Product | None, at: int
    ) -> None:
        """It ended; `report` is as it stood before."""
        key, terms = report.terms.key, report.terms
        over_at = self._stopped.get(key, at)
        if key in self._stopped:
            self._undo.remove(self._stopped, key)
        ran_s = min(over_at - report.started_at, terms.duration) if report.started_at else 0
        if product is None or ran_s < LEAST_S or not paid:
            return
        quantity = GpuSeconds(product.slice_gpus * ran_s)
        row = PaidLease(
            gpu_class=product.gpu_class,
            provider=key.provider,
            buyer=terms.buyer,
            per_hour=per_hour_down(paid, quantity),
            quantity=quantity,
            ended_at=at,
        )
        self._undo.set(self._ended, key, (terms.market_id, row))

    def forget(self, at: int) -> None:
        """Drop those that no index counts any more."""
        for key in [key for key, (_, row) in self._ended.items() if row.ended_at < at - DAY_S]:
            self._undo.remove(self._ended, key)
