"""Orders and chain facts of futures for the market's tests: signed for real."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cloud_gpu.protocol.calls import OpenFutures
from cloud_gpu.protocol.effects import (
    MarketEffect,
    ReportContract,
    ReportFuture,
    ReportSeries,
    Transact,
)
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import FutureSubmitted
from cloud_gpu.protocol.future_events import FutureOpened
from cloud_gpu.protocol.future_reports import ContractReport, FutureReport, SeriesReport
from cloud_gpu.protocol.futures import FUTURES, FutureOrder, FuturePair, Series
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.signing import Domain, Signed, Verified, sign, verify
from cloud_gpu.protocol.units import BasisPoints, Instant, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from market.books.futures_book import RestingFuture
from tests.unit.market.builders import MARKET_KEY, NOW_S, RULES, Desk, joined, key, price, provider

FUTURES_DOMAIN = Domain(name=FUTURES, chain_id=31337, verifying_contract=Address(b"\x0f" * 20))
DAY_S = 24 * 3600
WEEK_AHEAD = (NOW_S // DAY_S + 8) * DAY_S
SERIES = Series(product=1, window_start=WEEK_AHEAD, window_seconds=DAY_S)
FUTURES_RULES = msgspec.structs.replace(
    RULES, futures_domain=FUTURES_DOMAIN, futures_batch_ms=10_000, position_limit=BasisPoints(5_000)
)
MARGIN = TokenAmount(1_000_000)


def future(
    trader: str,
    *,
    buys: bool,
    at: str | int = "1.00",
    units: int = 1,
    nonce: int = 0,
    of: Series = SERIES,
    signer: str | None = None,
    **changes: object,
) -> Signed[FutureOrder]:
    fields: dict[str, object] = {
        "trader": key(trader).address,
        "is_buy": buys,
        "product": of.product,
        "window_start": of.window_start,
        "window_seconds": of.window_seconds,
        "units": units,
        "limit_price_per_hour": price(at),
        "start_by": NOW_S + 3_600,
        "nonce": nonce,
        "matcher": MARKET_KEY.address,
    }
    order = FutureOrder(**(fields | changes))  # type: ignore[arg-type]
    return sign(order, FUTURES_DOMAIN, key(signer or trader))


def resting(
    signed: Signed[FutureOrder], *, batch: Instant = 0, tie: bytes | None = None
) -> RestingFuture:
    order = signed.payload
    verified = verify(signed, FUTURES_DOMAIN, account=order.trader, keys=NoDelegates(), at=NOW_S)
    assert isinstance(verified, Verified), verified
    return RestingFuture(
        id=order.id,
        order=verified,
        series=order.series,
        inbox=1,
        batch=batch,
        tie=order.id.raw if tie is None else tie,
        report=FutureReport(order=order.id, state=BidState.PENDING),
    )


class FuturesDesk(Desk):
    """A market with four machines of ada's, two of eve's, and longs with money."""

    def __init__(self) -> None:
        super().__init__(FUTURES_RULES)
        self.contracts = 0
        self.mine(*provider("ada", 4, bond=1000), *provider("eve", 2, bond=1000))
        for account in ("ada", "eve", "bob", "dan"):
            self.mine(*joined(account, 1_000))

    def order(self, *orders: Signed[FutureOrder]) -> list[MarketEffect]:
        effects: list[MarketEffect] = []
        for each in orders:
            self.inbox += 1
            effects += self.tell(FutureSubmitted(order=each, inbox=self.inbox))
        return effects

    def end_batch(self) -> list[MarketEffect]:
        return self.pass_time(FUTURES_RULES.futures_batch_ms)

    def future(self, signed: Signed[FutureOrder]) -> FutureReport:
        """What the API would answer now."""
        found = [e.report for e in self.effects if isinstance(e, ReportFuture)]
        return next(each for each in reversed(found) if each.order == signed.payload.id)

    def refusal(self, signed: Signed[FutureOrder]) -> RejectReason:
        """Why the market refuses an order."""
        self.order(signed)
        report = self.future(signed)
        assert report.state is BidState.REJECTED
        assert report.rejection is not None
        return report.rejection.reason

    def contract(self, number: int) -> ContractReport:
        """What the API would answer now."""
        found = [e.report for e in self.effects if isinstance(e, ReportContract)]
        return next(each for each in reversed(found) if each.contract.id == number)

    def series(self, series: Series = SERIES) -> SeriesReport:
        """What the API would answer now."""
        found = [e.report for e in self.effects if isinstance(e, ReportSeries)]
        return next(each for each in reversed(found) if each.series == series)

    def opened(self, pair: FuturePair, at: Price) -> FutureOpened:
        """The chain says that a pair's contract is open."""
        self.contracts += 1
        return FutureOpened(
            contract=self.contracts,
            long=pair.buy.payload.trader,
            short=pair.sell.payload.trader,
            series=pair.buy.payload.series,
            per_hour=TokenAmount(at.value),
            units=pair.units,
            long_margin=MARGIN,
            short_margin=MARGIN,
            buy=pair.buy.payload.id,
            sell=pair.sell.payload.id,
            at=self.now // 1000,
        )

    def trade(self, *orders: Signed[FutureOrder]) -> int:
        """Clear the orders and have the one contract that comes of them open; its number."""
        self.order(*orders)
        (call,) = openings(self.end_batch())
        (pair,) = call.pairs
        self.mine(self.opened(pair, call.price))
        return self.contracts


def openings(effects: Sequence[MarketEffect]) -> list[OpenFutures]:
    """The calls of Futures among some effects."""
    return [
        effect.call
        for effect in effects
        if isinstance(effect, Transact) and isinstance(effect.call, OpenFutures)
    ]


def pairs(effects: Sequence[MarketEffect]) -> list[tuple[Digest, Digest, int]]:
    """(buy, sell, units) of every pair among some effects."""
    return [
        (pair.buy.payload.id, pair.sell.payload.id, pair.units)
        for call in openings(effects)
        for pair in call.pairs
    ]
