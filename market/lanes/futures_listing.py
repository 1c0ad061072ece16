"""What the market tells of series: depth at the end of a batch, last prices of the chain."""

from __future__ import annotations

from cloud_gpu.protocol.effects import ReportSeries
from cloud_gpu.protocol.future_reports import Level, SeriesReport
from cloud_gpu.protocol.futures import Series
from market.books.futures_book import levels_of
from market.lanes.floor import Floor


class SeriesListing:
    """What was told last of each series, until it is over."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._listed: dict[Series, SeriesReport] = {}

    def tell_depth(self) -> None:
        """A batch ended: each series' depth, where it changed."""
        waiting = self._floor.futures.waiting()
        for series in sorted({*waiting, *self._listed}, key=_key_of):
            orders = waiting.get(series, [])
            buys, sells = levels_of(orders, is_buy=True), levels_of(orders, is_buy=False)
            self._tell(self._report(series, buys, sells))

    def tell_trades(self, *more: Series) -> None:
        """Last prices changed, of `more` too, beside the depth that was told before."""
        for series in sorted({*more, *self._listed}, key=_key_of):
            before = self._listed.get(series)
            depth = (before.buys, before.sells) if before is not None else ((), ())
            self._tell(self._report(series, *depth))

    def _report(
        self, series: Series, buys: tuple[Level, ...], sells: tuple[Level, ...]
    ) -> SeriesReport:
        floor = self._floor
        return SeriesReport(
            series=series,
            deadline=series.deadline(floor.rules.futures),
            buys=buys,
            sells=sells,
            last=floor.ledger.futures.trades.get(series.key),
        )

    def restated(self) -> list[ReportSeries]:
        """Everything that was told, again."""
        return [ReportSeries(report=self._listed[s]) for s in sorted(self._listed, key=_key_of)]

    def _tell(self, report: SeriesReport) -> None:
        if self._listed.get(report.series) != report:
            self._floor.out.append(ReportSeries(report=report))
        is_over = report.series.window_end < self._floor.at
        if is_over and not (report.buys or report.sells):
            self._listed.pop(report.series, None)
        else:
            self._listed[report.series] = report


def _key_of(series: Series) -> tuple[int, int, int]:
    return series.key
