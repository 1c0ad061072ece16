"""The price index at every full hour of the chain's time, for each class that is traded here."""

from __future__ import annotations

from cloud_gpu.protocol.effects import ReportIndex
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.units import TokenAmount
from market.index.price_index import HOUR_S, price_index
from market.lanes.floor import Floor


class Indexing:
    """The newest point of each class. Published hours stand: a reorganisation changes the next."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._points: dict[GpuClass, IndexPoint] = {}
        self._hour = 0

    def advance(self) -> None:
        """Something happened: publish when the chain's time has passed a full hour."""
        floor, hour = self._floor, self._floor.ledger.at // HOUR_S
        if hour <= self._hour:
            return
        self._hour = hour
        leases = floor.ledger.paid.of(floor.rules.market_id)
        classes = {lease.gpu_class for lease in leases} | self._points.keys()
        for gpu_class in sorted(classes):
            before = self._points.get(gpu_class)
            middle = self._middle(gpu_class) if before is not None else None
            point = price_index(gpu_class, leases, at=hour * HOUR_S, before=before, middle=middle)
            if point is not None:
                self._points[gpu_class] = point
                floor.out.append(ReportIndex(report=point))

    def restated(self) -> list[ReportIndex]:
        """What was published last."""
        return [ReportIndex(report=self._points[each]) for each in sorted(self._points)]

    def rows(self) -> list[object]:
        """For a digest of the state."""
        return [self._hour, [self._points[each] for each in sorted(self._points)]]

    def _middle(self, gpu_class: GpuClass) -> TokenAmount | None:
        """Halfway between the class's cheapest ask and its dearest bid; None: one is missing."""
        floor = self._floor
        of_class = {n for n, row in floor.ledger.products.items() if row.gpu_class == gpu_class}
        asks = [ask.ask.payload for ask in floor.book.asks()]
        bids = [bid.bid.payload for bid in floor.book.waiting()]
        asked = [ask.min_price_per_hour.value for ask in asks if ask.product in of_class]
        wanted = [bid.max_price_per_hour.value for bid in bids if bid.product in of_class]
        if not asked or not wanted:
            return None
        return TokenAmount((min(asked) + max(wanted)) // 2)
