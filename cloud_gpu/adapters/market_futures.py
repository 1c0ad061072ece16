"""The market's routes of futures, for who waits for each answer. Blocking."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.adapters.portal import PORTAL
from cloud_gpu.protocol.future_reports import FutureReport, Position, SeriesReport
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.orders import SignedCancellation
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.price_reports import CurvePoint, IndexPoint
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.values import Address, Digest

_SHOWN_MAX = "1000"
"""What a market answers at once at most."""


class MarketFutures:
    """See `cloud_gpu.trader.FuturesMarket`."""

    def __init__(self, market: HttpMarket) -> None:
        self._market = market

    def describe(self) -> MarketView:
        """What the market says of itself."""
        return PORTAL.call(self._market.describe)

    def place(self, order: Signed[FutureOrder]) -> SignedReceipt:
        """Hand an order in; twice is once."""
        return PORTAL.call(
            self._market.ask, "POST", "/v1/futures/orders", SignedReceipt, body=order
        )

    def report(self, order: Digest) -> FutureReport:
        """How far an order is."""
        return PORTAL.call(self._market.ask, "GET", f"/v1/futures/orders/{order}", FutureReport)

    def cancel(self, statement: SignedCancellation) -> None:
        """Ask it to forget an order."""
        path = f"/v1/futures/orders/{statement.body.bid}/cancellation"
        PORTAL.call(self._market.send, "POST", path, body=statement)

    def series(self, product: int | None) -> Sequence[SeriesReport]:
        """Series that can still be traded, of all products or one."""
        query = {"limit": _SHOWN_MAX, **({} if product is None else {"product": str(product)})}
        return PORTAL.call(self._market.listed, "/v1/futures/series", SeriesReport, query=query)

    def positions(self, account: Address) -> Sequence[Position]:
        """An account's contracts, newest first."""
        query = {"limit": _SHOWN_MAX, "account": str(account)}
        return PORTAL.call(self._market.listed, "/v1/futures/positions", Position, query=query)

    def curve(self, product: int) -> Sequence[CurvePoint]:
        """What a GPU-hour costs on coming days."""
        query = {"product": str(product)}
        return PORTAL.call(self._market.listed, "/v1/futures/curve", CurvePoint, query=query)

    def index(self) -> Sequence[IndexPoint]:
        """What a GPU-hour cost lately, by class."""
        return PORTAL.call(self._market.listed, "/v1/index", IndexPoint)
