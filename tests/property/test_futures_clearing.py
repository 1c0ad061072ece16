"""Lane C against a naive twin that tries every tick, and the promises of its clearing."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Price
from market.books.futures_book import RestingFuture
from market.clearing.futures_clearing import FutureClearing, clear_futures
from tests.unit.market.futures_builders import future, resting

_TICKS = 12
_SIGNED: dict[tuple[bool, int, int, int], Signed[FutureOrder]] = {}


def signed(*, buys: bool, tick: int, units: int, number: int) -> Signed[FutureOrder]:
    """Signing is slow, and the same order is drawn often."""
    key = buys, tick, units, number
    if key not in _SIGNED:
        trader = f"trader {number}"
        limit = Price(tick * limits.PRICE_TICK)
        _SIGNED[key] = future(trader, buys=buys, units=units, limit_price_per_hour=limit)
    return _SIGNED[key]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[RestingFuture], list[RestingFuture], Price | None]:
    """Buys and sells of one series, and a reference."""
    rows = st.tuples(st.integers(1, _TICKS), st.integers(1, 5), st.integers(0, 2))
    sides = []
    for buys in (True, False):
        drawn = enumerate(draw(st.lists(rows, max_size=7)))
        sides.append(
            [
                resting(
                    signed(buys=buys, tick=tick, units=units, number=number + 10 * buys),
                    batch=batch,
                )
                for number, (tick, units, batch) in drawn
            ]
        )
    reference = draw(st.none() | st.integers(1, _TICKS + 3))
    ticks = None if reference is None else Price(reference * limits.PRICE_TICK)
    return sides[0], sides[1], ticks


def naive_price(
    buys: Sequence[RestingFuture], sells: Sequence[RestingFuture], reference: Price | None
) -> int | None:
    found: dict[int, tuple[int, int]] = {}
    for tick in range(1, _TICKS + 1):
        price = tick * limits.PRICE_TICK
        demand = sum(each.units for each in buys if each.limit.value >= price)
        supply = sum(each.units for each in sells if each.limit.value <= price)
        if min(demand, supply):
            found[price] = -min(demand, supply), abs(demand - supply)
    if not found:
        return None
    best = [price for price, score in found.items() if score == min(found.values())]
    middle = (best[0] + best[-1]) // 2 // limits.PRICE_TICK * limits.PRICE_TICK
    target = middle if reference is None else reference.value
    return min(best, key=lambda price: (abs(price - target), price))


@given(batches())
def test_the_price_is_the_naive_twin_s(
    batch: tuple[list[RestingFuture], list[RestingFuture], Price | None],
) -> None:
    found = clear_futures(*batch)
    assert (found.price.value if found else None) == naive_price(*batch)


@given(batches())
def test_nobody_trades_beyond_limit_or_units_and_each_order_once(
    batch: tuple[list[RestingFuture], list[RestingFuture], Price | None],
) -> None:
    found = clear_futures(*batch)
    pairs = found.pairs if found else ()
    assert found is None or pairs
    for pair in pairs:
        assert found is not None
        assert pair.sell.limit <= found.price <= pair.buy.limit
        assert 1 <= pair.units == min(pair.buy.units, pair.sell.units)
    for side in ([pair.buy.id for pair in pairs], [pair.sell.id for pair in pairs]):
        assert len(side) == len(set(side))


@given(batches())
def test_no_better_entitled_order_is_skipped(
    batch: tuple[list[RestingFuture], list[RestingFuture], Price | None],
) -> None:
    """Better: the limit first, then the older batch, then more units."""
    found = clear_futures(*batch)
    if found is None:
        return
    for orders, is_buy in ((batch[0], True), (batch[1], False)):
        served = {(pair.buy if is_buy else pair.sell).id for pair in found.pairs}
        able = [each for each in orders if _meets(each, found, is_buy=is_buy)]
        for left in (each for each in able if each.id not in served):
            assert all(_claim(each) <= _claim(left) for each in able if each.id in served)
        assert len(served) == len(able) or len(served) == len(found.pairs)
    ables = [
        sum(_meets(each, found, is_buy=is_buy) for each in orders)
        for orders, is_buy in ((batch[0], True), (batch[1], False))
    ]
    assert len(found.pairs) == min(ables), "as many contracts as the shorter side has orders"


@given(batches())
def test_the_order_in_which_they_are_given_changes_nothing(
    batch: tuple[list[RestingFuture], list[RestingFuture], Price | None],
) -> None:
    buys, sells, reference = batch
    assert clear_futures(buys[::-1], sells[::-1], reference) == clear_futures(*batch)


def _meets(order: RestingFuture, found: FutureClearing, *, is_buy: bool) -> bool:
    return order.limit >= found.price if is_buy else order.limit <= found.price


def _claim(order: RestingFuture) -> tuple[int, int, int]:
    limit = order.limit.value
    return -limit if order.order.payload.is_buy else limit, order.batch, -order.units
