"""The uniform-price auction twice more: plainly in Python, and in numpy as one would write it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from market.kernel.auction import BUY, SELL, Cleared, Orders

Order = tuple[int, int, int, int, int]
"""Side, tick, quantity, entry batch, rank."""


def naive_clear(orders: list[Order], reference: int) -> tuple[int, int, list[int]]:
    """Price, volume and fills; every price between the orders' is tried."""
    prices = [tick for _, tick, *_ in orders]
    ways = []
    for price in range(min(prices, default=0), max(prices, default=-1) + 1):
        demand = sum(order[2] for order in orders if order[0] == BUY and order[1] >= price)
        supply = sum(order[2] for order in orders if order[0] == SELL and order[1] <= price)
        if volume := min(demand, supply):
            ways.append((-volume, abs(demand - supply), abs(price - reference), price))
    if not ways:
        return -1, 0, [0] * len(orders)
    least, _imbalance, _distance, price = min(ways)
    fills = [0] * len(orders)
    for side in (BUY, SELL):
        _share_out(orders, side, price, -least, fills)
    return price, -least, fills


def _share_out(orders: list[Order], side: int, price: int, left: int, fills: list[int]) -> None:
    worse = -1 if side == BUY else 1
    groups: dict[tuple[int, int], list[int]] = {}
    for row, (of, tick, _quantity, entry, _rank) in enumerate(orders):
        if of == side and (tick - price) * worse <= 0:
            groups.setdefault((tick * worse, entry), []).append(row)
    for _, rows in sorted(groups.items()):
        wanted = sum(orders[row][2] for row in rows)
        given = min(left, wanted)
        for row in rows:
            fills[row] = orders[row][2] * given // wanted
        by_luck = sorted(rows, key=lambda row: (-(orders[row][2] * given % wanted), orders[row][4]))
        for row in by_luck[: given - sum(fills[row] for row in rows)]:
            fills[row] += 1
        left -= given


def numpy_clear(orders: Orders, reference: int) -> Cleared:
    """With sums over all ticks, and masks over all orders."""
    span = int(orders.ticks.max()) + 1
    levels = [
        np.bincount(orders.ticks[mask], orders.quantities[mask], span).astype(np.int64)
        for mask in (orders.sides == BUY, orders.sides == SELL)
    ]
    demand, supply = levels[BUY][::-1].cumsum()[::-1], levels[SELL].cumsum()
    traded = np.minimum(demand, supply)
    volume = int(traded.max())
    fills = np.zeros(len(orders.sides), np.int64)
    if not volume:
        return Cleared(-1, 0, fills)
    prices = np.flatnonzero(traded == volume)
    imbalances = np.abs(demand - supply)[prices]
    prices = prices[imbalances == imbalances.min()]
    tick = int(prices[np.abs(prices - reference).argmin()])
    for side, sign in ((BUY, -1), (SELL, 1)):
        _share_out_numpy(orders, side, sign, tick, volume, fills)
    return Cleared(tick, volume, fills)


def _share_out_numpy(
    orders: Orders, side: int, sign: int, tick: int, left: int, fills: NDArray[np.int64]
) -> None:
    rows = np.flatnonzero((orders.sides == side) & ((orders.ticks - tick) * sign <= 0))
    rows = rows[np.lexsort((orders.entries[rows], orders.ticks[rows] * sign))]
    wanted = orders.quantities[rows]
    until = wanted.cumsum()
    if until[-1] <= left:
        fills[rows] = wanted
        return
    ticks, entries = orders.ticks[rows], orders.entries[rows]
    at = int(np.searchsorted(until, left))
    same = np.flatnonzero((ticks == ticks[at]) & (entries == entries[at]))
    before = rows[: same[0]]
    fills[before] = orders.quantities[before]
    left -= int(until[same[0] - 1]) if same[0] else 0
    shares, remainders = np.divmod(wanted[same] * left, wanted[same].sum())
    luckiest = np.lexsort((orders.ranks[rows[same]], -remainders))[: left - int(shares.sum())]
    shares[luckiest] += 1
    fills[rows[same]] = shares
