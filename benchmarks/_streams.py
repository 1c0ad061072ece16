"""A stream of requests to an order book, the same for a seed: every cancel meets a resting order.

Two thirds place orders, a fifth of them across the middle, which wanders; one third cancels.
About `RESTING` orders rest on 200 ticks. The first part of a longer stream is the shorter stream.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from benchmarks._naive_ladder import Fill, NaiveLadder
from market.kernel.ladder import CANCEL, PLACE, REQUEST

RESTING = 5_000
MIDDLE = 10_000
DEPTH = 60


def stream(count: int, seed: int) -> tuple[NDArray[np.void], list[Fill]]:
    """`count` requests (REQUEST) with ids from 1 on, and the naive book's fills of them."""
    dice, book = random.Random(seed), NaiveLadder(count)
    requests: list[tuple[int, int, int, int, int]] = []
    alive: list[int] = []
    order, middle = 0, MIDDLE
    for _ in range(count):
        cancels = 0.30 if len(book.resting) < RESTING else 0.45
        if dice.random() < cancels and len(book.resting) > 10:
            gone = _picked(dice, alive, book)
            requests.append((CANCEL, gone, 0, 0, 0))
            book.cancel(gone)
            continue
        order += 1
        if dice.random() < 0.02:
            middle += dice.choice((-1, 1))
        side, quantity = dice.randrange(2), dice.randint(1, 64)
        if dice.random() < 0.22:
            away, quantity = -dice.randrange(5), quantity * 2
        else:
            away = 1 + min(int(dice.expovariate(1 / 12)), DEPTH)
        tick = middle - away if side == 0 else middle + away
        requests.append((PLACE, order, side, tick, quantity))
        book.place(order, side, tick, quantity)
        alive.append(order)
    return np.array(requests, REQUEST), book.fills


def _picked(dice: random.Random, alive: list[int], book: NaiveLadder) -> int:
    """An order that rests; takes it and the dead ones that it met out of `alive`."""
    while True:
        place = dice.randrange(len(alive))
        order = alive[place]
        alive[place] = alive[-1]
        alive.pop()
        if order in book.resting:
            return order
