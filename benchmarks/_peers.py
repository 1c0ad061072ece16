"""One order book of PyPI on a stream, one call an order: `python -m benchmarks._peers NAME FILE`.

FILE holds requests as REQUEST of the kernel. Prints one JSON line: nanoseconds of CPU time per
request, and digests of all fills, which say whether the peer did the same. Nothing of ours is
needed but for `ours`. A peer's own form of a fill counts; putting it into ours does not.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

Fill = tuple[Any, Any, Any, Any]
"""Taker, maker, tick, quantity."""


@dataclass(frozen=True)
class Peer:
    """A book, reduced to the two calls of the stream."""

    place: Callable[[int, int, int, int], object]
    """Order, side (0 buys), tick, quantity."""
    cancel: Callable[[int], object]
    fills: Callable[[], Iterable[Fill]]
    """After the run; all of them."""


def ours(count: int) -> Peer:
    """market.kernel.Ladder."""
    book = importlib.import_module("market.kernel.ladder").Ladder(count)
    return Peer(book.place, book.cancel, lambda: book.log.tolist())


def litebook(_count: int) -> Peer:
    """Rust, quantities and prices are floats, ids are UUIDs."""
    module = importlib.import_module("litebook")
    book, sides = module.OrderBook(tick_size=1.0), (module.OrderType.Buy, module.OrderType.Sell)
    ids, found = dict[int, Any](), list[tuple[int, Any]]()

    def place(order: int, side: int, tick: int, quantity: int) -> None:
        made = book.create_order(sides[side], float(tick), float(quantity))
        ids[order] = made.id
        fills = book.add(made)
        if fills:
            found.append((order, fills))

    def told() -> Iterable[Fill]:
        ours_of = {theirs: order for order, theirs in ids.items()}
        for taker, fills in found:
            for each in fills:
                pair = ours_of[each.buy_id], ours_of[each.sell_id]
                maker = pair[1] if pair[0] == taker else pair[0]
                yield taker, maker, each.price, each.quantity

    return Peer(place, lambda order: book.cancel(ids[order]), told)


def liquibook(_count: int) -> Peer:
    """C++ behind SWIG."""
    module: Any = importlib.import_module("liquibook")

    class Listener(module.OrderListener):  # type: ignore[misc]
        def __init__(self) -> None:
            module.OrderListener.__init__(self)
            self.found: list[Any] = []

        def on_fill(self, order: Any, matched: Any, quantity: int, price: int, *_: Any) -> None:
            self.found.append((order, matched, price, quantity))

        def ignore(self, *_: Any) -> None:
            pass

        on_accept = on_cancel = on_reject = ignore
        on_cancel_reject = on_replace = on_replace_reject = ignore

    book, listener, orders = module.DepthOrderBook("X"), Listener(), dict[int, Any]()
    book.set_order_listener(listener)

    def place(order: int, side: int, tick: int, quantity: int) -> None:
        made = module.SimpleOrder(side == 0, tick, quantity)
        orders[order] = made
        book.add(made)

    def told() -> Iterable[Fill]:
        ours_of = {each.order_id_: order for order, each in orders.items()}
        for order, matched, price, quantity in listener.found:  # the book does not keep it alive
            yield ours_of[order.order_id_], ours_of[matched.order_id_], price, quantity

    return Peer(place, lambda order: book.cancel(orders[order]), told)


def orderly_chaos(_count: int) -> Peer:
    """C++ behind ctypes."""
    module = importlib.import_module("orderly_chaos")
    found: list[Any] = []
    book = module.LimitOrderBook(on_trade=found.append)
    buy, sell = book.limit_buy, book.limit_sell

    def place(order: int, side: int, tick: int, quantity: int) -> None:
        (sell if side else buy)(order, quantity, tick)

    def told() -> Iterable[Fill]:
        for each in found:
            yield each.taker_id, each.maker_id, each.price, each.quantity

    return Peer(place, book.cancel, told)


def akhil4n_orderbook(_count: int) -> Peer:
    """Python with sortedcontainers."""
    module = importlib.import_module("orderbook")
    book, sides = module.OrderBook(), (module.OrderSide.BID, module.OrderSide.ASK)
    ids: dict[int, str] = {}

    def place(order: int, side: int, tick: int, quantity: int) -> None:
        made = module.Order(side=sides[side], price=tick, original_quantity=quantity)
        ids[order] = made.order_id
        book.add_limit_order(made)

    def told() -> Iterable[Fill]:
        ours_of = {theirs: order for order, theirs in ids.items()}
        for each in book.trade_log:
            pair = ours_of[each.aggressor_id], ours_of[each.filler_id]
            yield *pair, each.price, each.quantity_filled

    return Peer(place, lambda order: book.cancel_order(ids[order]), told)


def lightmatchingengine(_count: int) -> Peer:
    """Python with dicts and min; numbers its orders from 1, as the stream does."""
    module = importlib.import_module("lightmatchingengine.lightmatchingengine")
    book, found = module.LightMatchingEngine(), list[tuple[int, Any]]()

    def place(order: int, side: int, tick: int, quantity: int) -> None:
        _made, trades = book.add_order("X", tick, quantity, side + 1)
        if trades:
            found.append((order, trades))

    def told() -> Iterable[Fill]:
        for taker, trades in found:
            for each in trades:  # the taker's own come between, summed
                if each.order_id != taker:
                    yield taker, each.order_id, each.trade_price, each.trade_qty

    return Peer(place, lambda order: book.cancel_order(order, "X"), told)


def pyorderbook(_count: int) -> Peer:
    """Python with heaps, Decimal and UUID."""
    module = importlib.import_module("pyorderbook.book")
    kinds = importlib.import_module("pyorderbook.order")
    book, sides = module.Book(), (kinds.Side.BID, kinds.Side.ASK)
    orders, found = dict[int, Any](), list[Any]()

    def place(order: int, side: int, tick: int, quantity: int) -> None:
        made = orders[order] = kinds.Order(sides[side], "X", tick, quantity)
        trades = book.match(made).trades
        if trades:
            found.append(trades)

    def told() -> Iterable[Fill]:
        ours_of = {each.id: order for order, each in orders.items()}
        for trades in found:
            for each in trades:
                pair = ours_of[each.incoming_order_id], ours_of[each.standing_order_id]
                yield *pair, each.fill_price, each.fill_quantity

    return Peer(place, lambda order: book.cancel(orders[order]), told)


WARMING = 2_000
"""Requests before the clock starts, on a book of their own."""
PEERS = (
    litebook,
    liquibook,
    orderly_chaos,
    akhil4n_orderbook,
    lightmatchingengine,
    pyorderbook,
)


def run(peer: Peer, requests: list[tuple[int, int, int, int, int]]) -> float:
    """Seconds of CPU time."""
    place, cancel = peer.place, peer.cancel
    gc.collect()
    began = time.process_time()
    for kind, order, side, tick, quantity in requests:
        if kind:
            cancel(order)
        else:
            place(order, side, tick, quantity)
    return time.process_time() - began


def digests(fills: Iterable[Fill]) -> tuple[str, str]:
    """sha256 of fills in their order, as 32-bit words; with their prices and without."""
    words = np.array([[int(word) for word in fill] for fill in fills], "<u4")
    without = words[:, [0, 1, 3]]
    whole, pairs = (hashlib.sha256(each.tobytes()).hexdigest() for each in (words, without))
    return whole, pairs


def main() -> None:
    name, path = sys.argv[1:]
    peer_of = {each.__name__: each for each in (ours, *PEERS)}[name]
    requests = np.load(path).tolist()
    run(peer_of(len(requests)), requests[:WARMING])
    peer = peer_of(len(requests))
    took = run(peer, requests)
    fills, pairs = digests(peer.fills())
    print(json.dumps({"ns": took / len(requests) * 1e9, "fills": fills, "pairs": pairs}))


if __name__ == "__main__":
    main()
