"""Futures at the market's door: signed orders in, verified orders or a reason out.

`check_future` is asked by the API and again by the matchmaker, and depends on its arguments alone.
`beside_others` is the matchmaker's: what the order is beside its trader's cash, orders, contracts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.futures import (
    HORIZON_S,
    UNITS_MAX,
    WINDOWS_S,
    FutureOrder,
    Series,
    margin,
)
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.signing import Signed, Verified, verify
from cloud_gpu.protocol.units import GpuSeconds, Price, TokenAmount, cost_down, format_tokens
from cloud_gpu.protocol.values import Address
from market.books.book import Nonce
from market.books.futures_book import FuturesBook, RestingFuture
from market.books.ledger import Ledger
from market.rules import MarketRules


def check_future(
    order: Signed[FutureOrder], *, rules: MarketRules, products: Mapping[int, Product], at: int
) -> Verified[FutureOrder] | Rejection:
    """Whether this market takes the order; `at` in Unix seconds.

    Rejects: WRONG_MATCHER, WRONG_PRODUCT (no such series), EXPIRED, DURATION_OUTSIDE_LIMITS,
    UNKNOWN_PRODUCT, WRONG_COUNT, CAP_OUT_OF_RANGE, BAD_SIGNATURE, KEY_NOT_AUTHORISED.
    """
    wanted = order.payload
    if rules.futures_domain is None:
        return _no_series("none: this market trades no futures")
    if wanted.matcher != rules.matcher:
        return _refused(
            RejectReason.WRONG_MATCHER, "matcher", wanted.matcher, f"{rules.matcher}, this market"
        )
    try:
        series = wanted.series
    except ValueError as error:
        return _no_series(f"{error}; windows are of {WINDOWS_S} s and start at multiples of that")
    refused = _wrong_time(wanted, series, rules, at) or _wrong_size(
        wanted, products.get(wanted.product)
    )
    if refused is not None:
        return refused
    # Only the trader's own key: margins are money.
    return verify(order, rules.futures_domain, account=wanted.trader, keys=NoDelegates(), at=at)


def _refused(
    reason: RejectReason, field: str, found: object, needed: str, next_: str = ""
) -> Rejection:
    return Rejection(
        reason=reason, field=f"future_order.{field}", found=str(found), needed=needed, next=next_
    )


def _no_series(needed: str) -> Rejection:
    return _refused(RejectReason.WRONG_PRODUCT, "window_start", "no such series", needed)


def _wrong_time(
    wanted: FutureOrder, series: Series, rules: MarketRules, at: int
) -> Rejection | None:
    deadline = series.deadline(rules.futures)
    if at > deadline:
        next_ = "Trade a later window."
        return _refused(
            RejectReason.EXPIRED, "window_start", series, f"a deadline after {at}", next_
        )
    if series.window_start > at + HORIZON_S:
        needed = f"at most {HORIZON_S} s ahead"
        return _refused(RejectReason.DURATION_OUTSIDE_LIMITS, "window_start", series, needed)
    if wanted.start_by <= at:
        return _refused(RejectReason.EXPIRED, "start_by", wanted.start_by, f"later than {at}")
    if wanted.start_by > at + limits.ORDER_LIFE_S_MAX:
        needed = f"at most {limits.ORDER_LIFE_S_MAX} s ahead"
        next_ = "Sign an order that ends sooner, and renew it while you want it."
        return _refused(
            RejectReason.DURATION_OUTSIDE_LIMITS, "start_by", wanted.start_by, needed, next_
        )
    return None


def _wrong_size(wanted: FutureOrder, product: Product | None) -> Rejection | None:
    if product is None:
        needed, next_ = "a product that is registered in LeaseBook", "GET /v1/products lists them."
        return _refused(RejectReason.UNKNOWN_PRODUCT, "product", wanted.product, needed, next_)
    if wanted.units > UNITS_MAX:
        next_ = "Sign several orders."
        needed = f"at most {UNITS_MAX} machines"
        return _refused(RejectReason.WRONG_COUNT, "units", wanted.units, needed, next_)
    quantity = GpuSeconds(product.slice_gpus * wanted.window_seconds)
    cost = cost_down(wanted.limit_price_per_hour, quantity).value
    if not 1 <= cost <= limits.LEASE_CAP_MAX:
        found = f"{format_tokens(cost)} tokens a machine"
        needed = f"0.000001 to {format_tokens(limits.LEASE_CAP_MAX)}"
        return _refused(RejectReason.CAP_OUT_OF_RANGE, "limit_price_per_hour", found, needed)
    return None


def margin_of(
    order: FutureOrder, price: Price, units: int, rules: MarketRules, product: Product
) -> TokenAmount:
    """What the order's side of one contract locks."""
    return margin(
        price,
        gpus=product.slice_gpus,
        units=units,
        window_s=order.window_seconds,
        share=rules.futures.long_margin if order.is_buy else rules.futures.short_margin,
        floor=rules.futures.margin_floor,
    )


def beside_others(
    order: RestingFuture,
    *,
    rules: MarketRules,
    ledger: Ledger,
    book: FuturesBook,
    in_use: Set[Nonce],
    free_cash: int,
) -> Rejection | None:
    """Why the order cannot stand beside the rest; None: it can.

    `in_use` are nonces of its trader's other orders and pledges, `free_cash` is the trader's.
    """
    trader, nonce = order.nonce
    others = book.live_of(trader)
    if (dead := why_dead(order, ledger)) is not None:
        return dead
    if order.nonce in in_use:
        needed = "a nonce of its own: not opened, not voided, not in use"
        return _refused(RejectReason.NONCE_USED, "nonce", nonce, needed, "Sign with a free one.")
    if len(others) >= rules.bids_per_account_max:
        found, needed = f"{len(others)} live orders", f"fewer than {rules.bids_per_account_max}"
        return _refused(RejectReason.RATE_LIMITED, "trader", found, needed, "Cancel some.")
    if (facing := _facing(order, others)) is not None:
        needed = f"a limit that does not meet the trader's own order {facing.id}"
        found, next_ = format_tokens(order.limit), "Cancel that order, or sign another limit."
        return _refused(RejectReason.SELF_DEALING, "limit_price_per_hour", found, needed, next_)
    payload = order.order.payload
    product = ledger.products[payload.product]
    needs = margin_of(payload, order.limit, order.units, rules, product)  # of one contract: least
    if free_cash < needs.value:
        return cash_too_low(free_cash, needs)
    return _above_position_limit(order, others, rules, ledger)


def why_dead(order: RestingFuture, ledger: Ledger) -> Rejection | None:
    """Why the chain opens no contract of an order any more, as far as was heard; None: it may.

    The first contract uses the nonce; the rest of the order then lives on without it.
    """
    trader, nonce = order.nonce
    if ledger.futures.is_closed(order.id, trader):
        needed = "an order that its trader has not closed"
        return _refused(RejectReason.ORDER_CLOSED, "id", order.id, needed, "Sign a new order.")
    has_begun = 0 < order.report.filled < order.order.payload.units
    is_void = ledger.is_passed(trader, nonce) if has_begun else ledger.is_void(trader, nonce)
    if not is_void:
        return None
    needed = "a nonce that is neither opened nor voided"
    return _refused(RejectReason.NONCE_USED, "nonce", nonce, needed, "Sign a new order.")


def cash_too_low(found: int, needed: TokenAmount) -> Rejection:
    """The trader's cash does not cover its margin."""
    return _refused(
        RejectReason.CASH_TOO_LOW,
        "trader",
        f"{format_tokens(found)} tokens free in the vault",
        f"{format_tokens(needed)} tokens, the margin",
        "Deposit more, or order fewer machines.",
    )


def _facing(order: RestingFuture, others: list[RestingFuture]) -> RestingFuture | None:
    for each in others:
        if each.series != order.series or each.order.payload.is_buy is order.order.payload.is_buy:
            continue
        buy, sell = (order, each) if order.order.payload.is_buy else (each, order)
        if buy.limit >= sell.limit:
            return each
    return None


def _above_position_limit(
    order: RestingFuture, others: list[RestingFuture], rules: MarketRules, ledger: Ledger
) -> Rejection | None:
    """Counted in machine-seconds of the order's window, its own side's contracts and orders."""
    length = order.series.window_seconds
    held = sum(
        units * _overlap_s(series, order.series)
        for series, units in _positions(order, others, ledger)
    )
    whole = bonded_machines(order.series.product, ledger) * length * rules.position_limit.value
    if (held + order.units * length) * limits.BASIS_POINTS_ONE <= whole:
        return None
    most = whole // limits.BASIS_POINTS_ONE
    side = "long" if order.order.payload.is_buy else "short"
    return _refused(
        RejectReason.WRONG_COUNT,
        "units",
        f"{order.units} beside {held // length} held {side}",
        f"at most {most // length} in all, {rules.position_limit.value} bp of the product's"
        " machines in that window",
        "Order fewer machines, or another window.",
    )


def _positions(
    order: RestingFuture, others: list[RestingFuture], ledger: Ledger
) -> Iterator[tuple[Series, int]]:
    trader: Address = order.nonce[0]
    is_buy, product = order.order.payload.is_buy, order.series.product
    for contract in ledger.futures.of(trader):
        side = contract.long if is_buy else contract.short
        if side == trader and contract.series.product == product:
            yield contract.series, contract.units
    for each in others:
        if each.order.payload.is_buy is is_buy and each.series.product == product:
            yield each.series, each.units


def _overlap_s(one: Series, other: Series) -> int:
    first = max(one.window_start, other.window_start)
    return max(0, min(one.window_end, other.window_end) - first)


def bonded_machines(product: int, ledger: Ledger) -> int:
    """Machines of a product whose bond stays."""
    return sum(row.product == product and not row.is_leaving for row in ledger.machines.values())
