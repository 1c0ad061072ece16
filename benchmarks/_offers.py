"""Asks and bids of a made-up GPU market, the same for a seed; 336 slots, as hours of two weeks.

Twelve models from 24 to 192 GB, ten regions, four grades of interconnect; one to 64 GPUs an ask.
Prices are micro-tokens per GPU-hour around a model's own. A bid names a model or all with as much
memory up to 2.2 times the price, half of them name regions, most leave the start some hours.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from market.kernel.allocation import ALONE, ANY
from market.kernel.capacity import ASK, BID

HORIZON = 336
REGIONS = 10
MEMORY = (24, 24, 24, 48, 48, 80, 80, 80, 96, 141, 180, 192)
PRICES = (150, 220, 300, 500, 700, 1100, 1300, 1900, 1500, 2600, 3600, 3900)
"""Milli-token."""
SHARES = (20, 8, 12, 6, 6, 6, 8, 14, 3, 9, 6, 2)
SIZES = (1, 2, 4, 8, 16, 32, 64)
THRESHOLDS = (48, 80, 96, 141, 180)
"""GB; the trait of its place says "as much or more". Above them, one trait a grade."""
LARGE = 80

Rows = NDArray[np.void]


def made_up_market(asks: int, bids: int, seed: int, *, gangs: bool) -> tuple[Rows, Rows]:
    """Asks (ASK) and bids (BID).

    `gangs`: some bids for more than eight GPUs may be spread over asks, eight each at least; else
    every bid is for one ask. 200 x 600 with seeds 1 and 2, no gangs, are the scarce markets that
    the design's bounds are known for.
    """
    dice = random.Random(seed)
    offered, wanted = np.zeros(asks, ASK), np.zeros(bids, BID)
    for row in range(asks):
        offered[row] = _ask(dice, row)
    for row in range(bids):
        wanted[row] = _bid(dice, row)
    if not gangs:
        wanted["scope"] = ALONE
    return offered, wanted


def _ask(dice: random.Random, row: int) -> tuple[int, ...]:
    model = dice.choices(range(len(MEMORY)), SHARES)[0]
    large, region = MEMORY[model] >= LARGE, dice.randrange(REGIONS)
    grade = dice.choices(range(4), (4, 3, 2, 3) if large else (8, 2, 0, 0))[0]
    odds = (10, 8, 10, 30, 8, 4, 2) if large else (30, 15, 20, 15, 1, 0, 0)
    gpus = dice.choices(SIZES, odds)[0]
    first = dice.choices((0, dice.randrange(HORIZON // 2)), (6, 4))[0]
    end = min(HORIZON, first + dice.choice((12, 24, 48, 96, 168, 336, 336)))
    price = int(PRICES[model] * 1000 * (1 + 0.06 * grade) * dice.lognormvariate(0, 0.22))
    has = _traits(MEMORY[model], grade)
    return price, row, has, row, model, region, row, gpus, 1, first, end


def _bid(dice: random.Random, row: int) -> tuple[int, ...]:
    model = dice.choices(range(len(MEMORY)), SHARES)[0]
    large = MEMORY[model] >= LARGE
    models = 1 << model if dice.random() < 0.55 else _as_good_as(model)
    regions = -1
    if dice.random() >= 0.5:
        named = dice.choice((1, 2, 4))
        regions = sum(1 << region for region in dice.sample(range(REGIONS), named))
    grade = dice.choices(range(4), (7, 2, 1, 1))[0] if large else 0
    odds = (24, 10, 14, 26, 10, 6, 3) if large else (40, 15, 15, 10, 2, 0, 0)
    gpus, slots = dice.choices(SIZES, odds)[0], dice.choice((1, 2, 4, 8, 12, 24, 48, 72))
    earliest = dice.randrange(HORIZON - slots - 1)
    latest = min(HORIZON - slots, earliest + dice.choice((0, 1, 4, 12, 24)))
    limit = int(PRICES[model] * 1000 * (1 + 0.06 * grade) * dice.lognormvariate(0.12, 0.25))
    spread = gpus > 8 and dice.random() >= 0.6
    needs, scope, least = _traits(MEMORY[model], grade), ANY if spread else ALONE, min(gpus, 8)
    return limit, row, models, regions, needs, -1, gpus, slots, earliest, latest, scope, least


def _traits(memory: int, grade: int) -> int:
    """Bits of what an ask has, or of what a bid needs."""
    found = sum(1 << place for place, least in enumerate(THRESHOLDS) if memory >= least)
    return found | sum(1 << len(THRESHOLDS) + step for step in range(grade))


def _as_good_as(model: int) -> int:
    """Bits of the models with as much memory, up to 2.2 times the price."""
    return sum(
        1 << other
        for other in range(len(MEMORY))
        if MEMORY[other] >= MEMORY[model] and PRICES[other] <= 2.2 * PRICES[model]
    )
