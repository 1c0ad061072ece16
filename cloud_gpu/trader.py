"""One account's futures at one market: orders, and through `contracts` what came of them.

Blocking, ports only. What a product is and an account holds is read from the chain; the market is
asked for orders, prices and reminders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from cloud_gpu.future_contracts import ContractAccount, FutureContracts
from cloud_gpu.ordering import (
    STANDS_S,
    FutureRequest,
    future_wish,
    product_meant,
    read_series,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import RejectReason, SettingsInvalid
from cloud_gpu.protocol.future_reports import FutureReport, Position, SeriesReport
from cloud_gpu.protocol.futures import HORIZON_S, FutureOrder, Series, margin
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.orders import Cancellation, SignedCancellation
from cloud_gpu.protocol.ports import Clock, MarketView
from cloud_gpu.protocol.price_reports import CurvePoint, IndexPoint
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.signing import Signed, sign, state
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.utc import format_utc
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.spending import free_nonce
from cloud_gpu.vault import (
    product_of,
    refused,
    require_cash,
    require_market,
    require_receipt,
)

_STATEMENT_S: Final = 600


class FuturesMarket(Protocol):
    """A market, as traders of futures see it. Raises `Rejected`, `MarketUnavailable`."""

    def describe(self) -> MarketView: ...

    def place(self, order: Signed[FutureOrder]) -> SignedReceipt:
        """Hand an order in; twice is once."""

    def report(self, order: Digest) -> FutureReport: ...

    def cancel(self, statement: SignedCancellation) -> None: ...

    def series(self, product: int | None) -> Sequence[SeriesReport]:
        """Those that can still be traded, by product and time."""

    def positions(self, account: Address) -> Sequence[Position]:
        """Newest first."""

    def curve(self, product: int) -> Sequence[CurvePoint]: ...

    def index(self) -> Sequence[IndexPoint]: ...


class Trader:
    """Buys and sells machines of a product for a later window."""

    def __init__(
        self,
        *,
        account: ContractAccount,
        signer: Signer,
        market: FuturesMarket,
        deployment: Deployment,
        clock: Clock,
        draw: Callable[[], int],
    ) -> None:
        """`signer` is the account's own key; `draw` gives any numbers: they spread nonces."""
        if deployment.futures.is_zero:
            raise SettingsInvalid(
                "deployment: found one without Futures, needed one that has it. Deploy with this"
                " package's `cloud-gpu contracts deploy`."
            )
        self.market = market
        self.contracts = FutureContracts(account, signer, deployment, draw)
        self._account, self._signer, self._deployment = account, signer, deployment
        self._clock, self._draw = clock, draw

    @property
    def address(self) -> Address:
        """The account's."""
        return self._account.address

    def products(self) -> Sequence[Product]:
        """What can be traded, as the chain says."""
        return self._account.products()

    def product(self, words: str | int) -> Product:
        """The one product of a number or of words like "A100:2". Raises `WordUnclear`."""
        return product_meant(words, self._account.products())

    def deadline(self, series: Series) -> int:
        """Until when its contracts open, are funded and nominated for, Unix seconds."""
        return series.deadline(self._deployment.futures_rules)

    def buy(
        self,
        gpu_type: str | int,
        *,
        start: str,
        length: str | int,
        max_price: str,
        units: int = 1,
        stands: str | int = STANDS_S,
    ) -> Signed[FutureOrder]:
        """Order machines for a window ("2026-12-08", "1d") at `max_price` a GPU-hour or less.

        `gpu_type` is a product's number or words like "A100:2"; a `start` of "7d" is the first
        window that begins a week from now or later; the order expires after `stands`.
        Raises `WordUnclear`, and as `order` and `place` do.
        """
        return self._placed(
            self.wish(
                gpu_type,
                is_buy=True,
                start=start,
                length=length,
                units=units,
                limit=max_price,
                stands=stands,
            )
        )

    def sell(
        self,
        gpu_type: str | int,
        *,
        start: str,
        length: str | int,
        min_price: str,
        units: int = 1,
        stands: str | int = STANDS_S,
    ) -> Signed[FutureOrder]:
        """Offer machines for a window at `min_price` a GPU-hour or more; see `buy`."""
        return self._placed(
            self.wish(
                gpu_type,
                is_buy=False,
                start=start,
                length=length,
                units=units,
                limit=min_price,
                stands=stands,
            )
        )

    def wish(
        self,
        gpu_type: str | int,
        *,
        is_buy: bool,
        start: str,
        length: str | int,
        limit: str,
        units: int = 1,
        stands: str | int = STANDS_S,
    ) -> FutureRequest:
        """What `buy` or `sell` would order, for `order`. Raises `WordUnclear`."""
        return future_wish(
            is_buy=is_buy,
            product=self.product(gpu_type).id,
            start=start,
            length=length,
            units=units,
            limit=limit,
            stands=stands,
            at=self._account.chain_time(),
        )

    def window(self, gpu_type: str | int, *, start: str, length: str | int) -> Series:
        """The window of a product that these words mean, as for `buy`. Raises `WordUnclear`."""
        product = self.product(gpu_type).id
        return read_series(
            product=product, start=start, length=length, at=self._account.chain_time()
        )

    def _placed(self, request: FutureRequest) -> Signed[FutureOrder]:
        order = self.order(request)
        self.place(order)
        return order

    def order(
        self, request: FutureRequest, taken: Collection[int] = frozenset()
    ) -> Signed[FutureOrder]:
        """Sign an order, ready for `place`; `taken` are nonces of others that still stand.

        Raises `Rejected` (its window is closed or too far ahead), `FundsTooSmall` (the margin),
        `SettingsInvalid`, `MarketUnavailable`, `ChainUnavailable`.
        """
        at, series = self._account.chain_time(), request.series
        self._require_open(series, at)
        account = require_cash(self._account, self.margin(request), "the margin of this order")
        order = FutureOrder(
            trader=self.address,
            is_buy=request.is_buy,
            product=series.product,
            window_start=series.window_start,
            window_seconds=series.window_seconds,
            units=request.units,
            limit_price_per_hour=request.limit,
            start_by=min(at + request.stands_s, self.deadline(series)),
            nonce=free_nonce(account, self._draw(), taken),
            matcher=require_market(self.market.describe(), self._deployment).matcher,
        )
        return sign(order, self._deployment.futures_domain, self._signer)

    def place(self, order: Signed[FutureOrder]) -> SignedReceipt:
        """Hand an order in; later batches may open contracts.

        Raises `Rejected`; `MarketUnavailable`, also for a receipt that is not the market's.
        """
        return require_receipt(
            self.market.place(order),
            order.payload.id,
            self._deployment,
            market=order.payload.matcher,
            at=self._clock.now() // 1000,
        )

    def cancel(self, order: Digest) -> None:
        """Close an order, or what is left of it, on chain, which binds everybody, then in the book.

        Its contracts stay.
        """
        self._account.futures.close_order(order)
        expiry = self._clock.now() // 1000 + _STATEMENT_S
        said = Cancellation(bid=order)
        self.market.cancel(
            state(said, self._deployment.domain, self._signer, nonce=0, expiry=expiry)
        )

    def margin(self, request: FutureRequest) -> TokenAmount:
        """What the order's side of one contract at its limit locks; several round up one by one,
        each at least the floor, and a seller's grow with a price above the limit.
        """
        rules, series = self._deployment.futures_rules, request.series
        return margin(
            request.limit,
            gpus=product_of(self._account, series.product).slice_gpus,
            units=request.units,
            window_s=series.window_seconds,
            share=rules.long_margin if request.is_buy else rules.short_margin,
            floor=rules.margin_floor,
        )

    def positions(self) -> Sequence[Position]:
        """The account's contracts by the market's word, newest first."""
        return self.market.positions(self.address)

    def _require_open(self, series: Series, at: int) -> None:
        deadline = self.deadline(series)
        start = format_utc(series.window_start)
        if at >= deadline:
            raise refused(
                RejectReason.EXPIRED,
                "start",
                f"{start}, whose contracts open until {format_utc(deadline)}",
                f"a window whose deadline is after {format_utc(at)}",
                "Choose a later window.",
            )
        if series.window_start > at + HORIZON_S:
            last = format_utc(at + HORIZON_S)
            raise refused(
                RejectReason.DURATION_OUTSIDE_LIMITS, "start", start, f"{last} at the latest"
            )
