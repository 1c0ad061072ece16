"""Lane C against a naive twin that tries every tick, and the promises of its clearing."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Price, parse_price
from cloud_gpu.protocol.values import Digest
from market.books.futures_book import RestingFuture
from market.clearing.futures_clearing import FutureClearing, clear_futures
from market.clearing.futures_explaining import BatchTold
from tests.unit.market.futures_builders import future, resting

Batch: TypeAlias = tuple[list[RestingFuture], list[RestingFuture], Price | None]
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
def batches(draw: st.DrawFn) -> Batch:
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
def test_the_price_is_the_naive_twin_s(batch: Batch) -> None:
    found = clear_futures(*batch)
    assert (found.price.value if found else None) == naive_price(*batch)


@given(batches())
def test_units_are_the_naive_twin_s_and_nobody_trades_beyond_limit(batch: Batch) -> None:
    found = clear_futures(*batch)
    if found is None:
        return
    for pair in found.pairs:
        assert pair.units >= 1
        assert pair.sell.limit <= found.price <= pair.buy.limit
    longs, shorts, _ = batch
    volume = sum(pair.units for pair in found.pairs)
    assert shares(found) == {**naive_shares(longs, volume), **naive_shares(shorts, volume)}


@given(batches())
def test_there_is_one_contract_fewer_than_orders_at_most(batch: Batch) -> None:
    found = clear_futures(*batch)
    pairs = [(pair.buy.id, pair.sell.id) for pair in found.pairs] if found else []
    assert len(pairs) == len(set(pairs))
    assert len(pairs) < len({buy for buy, _ in pairs} | {sell for _, sell in pairs}) or not pairs


@given(batches(), st.data())
def test_splitting_an_order_moves_its_share_by_one_unit_at_most(
    batch: Batch, data: st.DataObject
) -> None:
    """Its share of what its batch gets: pro rata, so that a crowd of one has nothing to win."""
    whole = clear_futures(*batch)
    buys, sells, reference = batch
    wide = [each for each in (*buys, *sells) if each.units > 1]
    if whole is None or not wide:
        return
    order = data.draw(st.sampled_from(wide))
    one = data.draw(st.integers(1, order.units - 1))
    parts = [
        resting(signed_like(order, units, number), batch=order.batch)
        for number, units in ((50, one), (51, order.units - one))
    ]
    split = clear_futures(_replaced(buys, order, parts), _replaced(sells, order, parts), reference)
    assert split is not None
    assert split.price == whole.price
    before, after = shares(whole), shares(split)
    together = sum(after.get(each.id, 0) for each in parts)
    assert abs(together - before.get(order.id, 0)) <= 1
    for each in (*buys, *sells):
        if each is not order:
            assert abs(after.get(each.id, 0) - before.get(each.id, 0)) <= 1


@given(batches())
def test_doubling_every_price_changes_no_share(batch: Batch) -> None:
    buys, sells, reference = batch
    once = clear_futures(buys, sells, reference)
    twice = clear_futures(
        [_doubled(each) for each in buys],
        [_doubled(each) for each in sells],
        None if reference is None else Price(2 * reference.value),
    )
    assert (once is None) == (twice is None)
    if once is not None and twice is not None:
        given_twice = {_twin_of(key, buys, sells): units for key, units in shares(twice).items()}
        assert given_twice == shares(once)


@given(batches())
def test_the_order_in_which_they_are_given_changes_nothing(batch: Batch) -> None:
    buys, sells, reference = batch
    assert clear_futures(buys[::-1], sells[::-1], reference) == clear_futures(*batch)


@given(batches())
def test_the_limit_that_an_order_is_told_would_have_traded(batch: Batch) -> None:
    buys, sells, reference = batch
    found = clear_futures(*batch)
    told, served = BatchTold([*buys, *sells], found, reference), shares(found) if found else {}
    for order in (*buys, *sells):
        if order.id in served:
            assert told.why_price(order).price
            continue
        why, how = told.why_left(order)
        facing = sells if order.order.payload.is_buy else buys
        assert how.asks == len(facing)
        if not how.change:
            assert not facing or not order.order.payload.is_buy
            continue
        assert why.next.startswith(how.change)
        limit = parse_price(how.change.split()[-1].rstrip("."))
        changed = resting(
            future(
                "trader 60",
                buys=order.order.payload.is_buy,
                units=order.units,
                limit_price_per_hour=limit,
            ),
            batch=order.batch,
        )
        again = clear_futures(
            _replaced(buys, order, [changed]), _replaced(sells, order, [changed]), reference
        )
        assert again is not None
        assert changed.id in shares(again), how.change


def naive_shares(orders: Sequence[RestingFuture], volume: int) -> dict[Digest, int]:
    """Level by level and batch by batch, best first; who does not fit whole is dealt unit by unit:
    each to whom its exact share is furthest ahead of what it has rounded down, then by tie key.
    """
    found: dict[Digest, int] = {}
    for place in sorted({each.rank[:2] for each in orders}):
        peers = [each for each in orders if each.rank[:2] == place]
        wanted = sum(each.units for each in peers)
        got = min(wanted, volume)
        exact = {each.id: Fraction(each.units * got, wanted) for each in peers}
        given_ = {key: int(share) for key, share in exact.items()}
        peers.sort(key=lambda each: (int(exact[each.id]) - exact[each.id], each.tie))
        for each in peers[: got - sum(given_.values())]:
            given_[each.id] += 1
        found |= {key: units for key, units in given_.items() if units}
        volume -= got
    return found


def shares(found: FutureClearing) -> dict[Digest, int]:
    """Each order's units over all its contracts."""
    sums: dict[Digest, int] = {}
    for pair in found.pairs:
        for order in (pair.buy, pair.sell):
            sums[order.id] = sums.get(order.id, 0) + pair.units
    return sums


def signed_like(order: RestingFuture, units: int, number: int) -> Signed[FutureOrder]:
    payload = order.order.payload
    tick = payload.limit_price_per_hour.value // limits.PRICE_TICK
    return signed(buys=payload.is_buy, tick=tick, units=units, number=number)


def _replaced(
    side: Sequence[RestingFuture], order: RestingFuture, parts: Sequence[RestingFuture]
) -> list[RestingFuture]:
    rest = [each for each in side if each is not order]
    return [*rest, *parts] if len(rest) < len(side) else rest


def _doubled(order: RestingFuture) -> RestingFuture:
    payload = order.order.payload
    tick = payload.limit_price_per_hour.value // limits.PRICE_TICK
    again = signed(buys=payload.is_buy, tick=2 * tick, units=payload.units, number=_number(order))
    return resting(again, batch=order.batch, tie=order.tie)


def _number(order: RestingFuture) -> int:
    return next(number for (*_, number), each in _SIGNED.items() if each.payload.id == order.id)


def _twin_of(key: Digest, buys: Sequence[RestingFuture], sells: Sequence[RestingFuture]) -> Digest:
    return next(each.id for each in (*buys, *sells) if _doubled(each).id == key)
