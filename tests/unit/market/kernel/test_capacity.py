"""What Capacity refuses, and scopes by example."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks._offers import HORIZON, made_up_market
from market.kernel.allocation import ALONE, ANY, FABRIC, REGION
from market.kernel.capacity import ASK, BID, Capacity, by_price, by_value, surplus

Rows = NDArray[np.void]


def asks(*changes: dict[str, int]) -> Rows:
    """Eight GPUs each, open for ten slots, of one model."""
    found = np.zeros(len(changes), ASK)
    for row, change in enumerate(changes):
        fields = {"price": 5, "rank": row, "gpus": 8, "lot": 1, "end": 10, **change}
        for name, value in fields.items():
            found[name][row] = value
    return found


def bids(*changes: dict[str, int]) -> Rows:
    """One GPU for two slots, as early as can be."""
    found = np.zeros(len(changes), BID)
    for row, change in enumerate(changes):
        fields = {"limit": 9, "rank": row, "models": -1, "regions": -1, "owner": -1}
        fields |= {"gpus": 1, "slots": 2, "latest": 8, "least": 1, **change}
        for name, value in fields.items():
            found[name][row] = value
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": 0}, "ask 1: price: found 0, needed 1 to 281474976710655"),
        ({"model": 64}, "ask 1: model: found 64, needed 0 to 63"),
        ({"region": -1}, "ask 1: region: found -1, needed 0 to 63"),
        ({"fabric": -1}, "ask 1: fabric"),
        ({"gpus": 1 << 15}, "ask 1: gpus: found 32768, needed 1 to 32767"),
        ({"lot": 9}, "ask 1: lot: found 9, needed 1 to 8"),
        ({"first": 10}, "ask 1: first"),
        ({"first": 5, "end": 5}, "ask 1: end: found 5, needed 6 to 10"),
        ({"end": 11}, "ask 1: end: found 11, needed 1 to 10"),
    ],
)
def test_an_ask_that_breaks_a_rule_is_named(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Capacity(asks({}, change), 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limit": 0}, "bid 1: limit: found 0, needed 1"),
        ({"gpus": 0}, "bid 1: gpus"),
        ({"slots": 11}, "bid 1: slots: found 11, needed 1 to 10"),
        ({"earliest": -1}, "bid 1: earliest"),
        ({"earliest": 5, "latest": 4}, "bid 1: latest: found 4, needed 5 to 8"),
        ({"latest": 9}, "bid 1: latest: found 9, needed 0 to 8"),
        ({"scope": 4}, "bid 1: scope: found 4, needed 0 to 3"),
        ({"least": 2}, "bid 1: least: found 2, needed 1 to 1"),
        ({"limit": 1 << 47, "gpus": 1 << 14, "slots": 8, "latest": 2}, "bid 1: limit"),
    ],
)
def test_a_bid_that_breaks_a_rule_takes_nothing(change: dict[str, int], message: str) -> None:
    capacity = Capacity(asks({}), 10)
    with pytest.raises(ValueError, match=message):
        capacity.allocate(bids({}, change), np.array([0, 1]))
    assert (capacity.free == 8).all()


@pytest.mark.parametrize("order", [[1], [-1], [0, 7]])
def test_an_order_of_service_names_rows(order: list[int]) -> None:
    with pytest.raises(ValueError, match="order: needed rows of 1 bids, 0 to 0"):
        Capacity(asks({}), 10).allocate(bids({}), np.array(order))


def test_of_equal_prices_the_earlier_start_wins_then_the_rank() -> None:
    offered = asks({"first": 3, "rank": 0}, {"first": 1, "rank": 2}, {"first": 1, "rank": 1})
    parts = Capacity(offered, 10).allocate(bids({}), np.array([0]))
    assert parts.tolist() == [(0, 2, 1, 1)]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [(ALONE, []), (FABRIC, []), (REGION, [(0, 1, 0, 8), (0, 2, 0, 8)]),
     (ANY, [(0, 0, 0, 8), (0, 1, 0, 8)])],
)  # fmt: skip
def test_a_gang_stays_within_its_scope(scope: int, expected: list[tuple[int, ...]]) -> None:
    offered = asks(
        {"price": 1, "region": 0, "fabric": 0},
        {"price": 2, "region": 1, "fabric": 1},
        {"price": 3, "region": 1, "fabric": 2},
    )
    wanted = bids({"gpus": 16, "scope": scope})
    assert Capacity(offered, 10).allocate(wanted, np.array([0])).tolist() == expected


def test_a_gang_of_many_machines_finds_the_one_fabric_that_has_them() -> None:
    offered = asks(*({"fabric": n % 5, "lot": 8, "price": 9 - n % 5} for n in range(44)))
    wanted = bids({"gpus": 72, "scope": FABRIC, "least": 8})
    parts = Capacity(offered, 10).allocate(wanted, np.array([0]))
    assert parts["gpus"].sum() == 72
    assert set(offered["fabric"][parts["ask"]]) == {3}, "fabric 4 is cheaper and has 64"


def test_machines_leased_whole_are_not_split() -> None:
    offered = asks({"lot": 8}, {"gpus": 2, "lot": 2, "price": 7})
    parts = Capacity(offered, 10).allocate(bids({"gpus": 2}), np.array([0]))
    assert parts.tolist() == [(0, 1, 0, 2)]


def test_the_search_gains_where_greed_took_the_wrong_one() -> None:
    """The first bid has the greatest value, and the least surplus over a dear ask."""
    offered = asks({"price": 8, "gpus": 2})
    wanted = bids(
        {"limit": 9, "gpus": 2, "slots": 5, "latest": 0},
        {"limit": 12, "slots": 7, "latest": 0},
        {"limit": 12, "slots": 7, "latest": 0},
    )
    capacity = Capacity(offered, 10)
    before = capacity.allocate(wanted, by_value(wanted))
    assert before["bid"].tolist() == [0]
    after = capacity.improve(wanted, before, steps=100, seed=1)
    assert after["bid"].tolist() == [1, 2]
    assert (surplus(offered, wanted, before), surplus(offered, wanted, after)) == (10, 56)


def test_a_larger_market_is_the_same_every_time() -> None:
    offered, wanted = made_up_market(2_000, 500, seed=9, gangs=True)

    def played() -> list[tuple[int, ...]]:
        capacity = Capacity(offered, HORIZON)
        parts = capacity.allocate(wanted, by_price(wanted))
        return [tuple(part) for part in capacity.improve(wanted, parts, 2_000, 5).tolist()]

    first = played()
    assert len({bid for bid, *_ in first}) > 400
    assert first == played()


def test_what_the_caller_served_by_itself_is_nobody_s_any_more() -> None:
    capacity = Capacity(asks({"price": 7}, {"price": 5}, {"price": 6, "first": 3}), 10)
    assert [capacity.is_free(row) for row in range(3)] == [True] * 3
    capacity.occupy([1])
    assert [capacity.is_free(row) for row in range(3)] == [True, False, True]
    wanted = bids({}, {"earliest": 3, "latest": 3})
    parts = capacity.allocate(wanted, np.array([1, 0]))
    assert parts["ask"].tolist() == [2, 2]
    assert [capacity.is_free(row) for row in range(3)] == [True, False, False]
