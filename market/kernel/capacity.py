"""Asks with their free GPUs over time, and bids that take them: the arrays around `allocation`.

How long a slot is, only `grid` knows. Eligibility is bits: an ask has traits, a bid needs
some; a threshold is a trait ("80 GiB or more"), an excluded provider, too ("not his"). Prices are
integers per GPU and hour. The order of service is the caller's: lane B's is `by_value`; `by_price`
is lane A's, which serves itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from market.kernel.allocation import (
    ALONE,
    ANY,
    ASK_ENDS,
    ASK_GPUS,
    ASK_OPENS,
    CANDIDATES_MAX,
    GANG_WORDS,
    MODELS_MAX,
    REGIONS_MAX,
    Free,
    Words,
    allocate,
)
from market.kernel.ejection import HOLDER, PLACE_WORDS, REACH, START, reach, search

PRICE_MAX: Final = (1 << 48) - 1
VALUE_MAX: Final = (1 << 62) - 1
"""Of a bid: limit x GPUs x slots, so that sums of two fit 64 bits."""
GPUS_MAX: Final = (1 << 15) - 1
"""Of an ask or a bid; free GPUs are 16-bit words."""
FABRICS_MAX: Final = 1 << 24
ASK: Final = np.dtype(
    [
        ("price", "<i8"),
        ("rank", "<i8"),
        ("traits", "<i8"),
        ("owner", "<i8"),
        ("model", "<i4"),
        ("region", "<i4"),
        ("fabric", "<i4"),
        ("gpus", "<i4"),
        ("lot", "<i4"),
        ("first", "<i4"),
        ("end", "<i4"),
    ]
)
"""`rank` breaks ties of price and start, less is first; `lot`: GPUs go in multiples of it (a
machine that is leased whole: its GPUs); open from slot `first` to before `end`."""

BID: Final = np.dtype(
    [
        ("limit", "<i8"),
        ("rank", "<i8"),
        ("models", "<i8"),
        ("regions", "<i8"),
        ("needs", "<i8"),
        ("owner", "<i8"),
        ("gpus", "<i4"),
        ("slots", "<i4"),
        ("earliest", "<i4"),
        ("latest", "<i4"),
        ("scope", "<i4"),
        ("least", "<i4"),
    ]
)
"""`models` and `regions` are bits of those accepted; an ask of the same `owner` never fits; starts
from slot `earliest` to `latest`; `least`: GPUs that a gang takes of an ask, but for its last."""

PART: Final = np.dtype([("bid", "<i4"), ("ask", "<i4"), ("start", "<i4"), ("gpus", "<i4")])
"""What a bid takes of an ask, for all its slots from `start`."""


def by_price(bids: NDArray[np.void]) -> Words:
    """Lane A's order of service: the dearest limit first, then `rank`."""
    return np.lexsort((bids["rank"], -bids["limit"]))


def by_value(bids: NDArray[np.void]) -> Words:
    """Lane B's: the dearest limit x GPU-slots first, then `rank`."""
    return np.lexsort((bids["rank"], -bids["limit"] * bids["gpus"] * bids["slots"]))


class Capacity:
    """Asks (ASK) with what is free of each, over `horizon` slots of time."""

    def __init__(self, asks: NDArray[np.void], horizon: int) -> None:
        """Raises ValueError that names the field and the row where an ask breaks a rule."""
        _check_asks(asks, horizon)
        self.horizon = horizon
        self.places = np.lexsort((asks["rank"], asks["price"], asks["model"]))
        """Row of the ask at each place of the lists."""
        self._place_of = np.argsort(self.places)
        sorted_asks = asks[self.places]
        fields = ("price", "rank", "traits", "owner", "region", "fabric", "gpus", "lot")
        self.words: Words = np.concatenate(
            [sorted_asks[name].astype(np.int64) for name in (*fields, "first", "end")]
        )
        self.offsets = np.searchsorted(sorted_asks["model"], np.arange(MODELS_MAX + 1))
        slots = np.arange(horizon)
        is_open = (sorted_asks["first"][:, None] <= slots) & (slots < sorted_asks["end"][:, None])
        gpus = sorted_asks["gpus"].astype(np.int16)
        self.free: Free = np.where(is_open, gpus[:, None], np.int16(0))
        groups = max(REGIONS_MAX, 1 + int(asks["fabric"].max(initial=0)))
        self._scratch = np.full(GANG_WORDS + groups, -1, np.int64)

    def allocate(self, bids: NDArray[np.void], order: Words) -> NDArray[np.void]:
        """Serve bids (BID) in the order of `order`, rows of them; returns what they took (PART).

        `ask` in a part is the ask's row. Raises ValueError where a bid breaks a rule.
        """
        words, order = bid_words(bids, self.horizon), np.asarray(order, np.int64)
        if len(order) and not 0 <= order.min() <= order.max() < len(bids):
            raise ValueError(f"order: needed rows of {len(bids)} bids, 0 to {len(bids) - 1}")
        most = np.where(bids["scope"] == ALONE, 1, np.minimum(bids["gpus"], CANDIDATES_MAX))
        parts = np.empty(int(most[order].sum()), PART)
        written = allocate(
            self.words,
            self.offsets,
            self.free.reshape(-1),
            self.horizon,
            words,
            order,
            parts.view(np.int32),
            self._scratch,
        )
        parts = parts[:written]
        parts["ask"] = self.places[parts["ask"]]
        return parts

    def improve(
        self, bids: NDArray[np.void], parts: NDArray[np.void], steps: int, seed: int
    ) -> NDArray[np.void]:
        """Raise the surplus of what `allocate` gave, by `steps` of a search; the parts after it.

        Bids of scope ALONE move, come and go; gangs stay. Any `seed`; the same one gives the same.
        """
        words, place_of = bid_words(bids, self.horizon), self._place_of
        alone = bids["scope"][parts["bid"]] == ALONE
        moving = parts[alone]
        places = np.full((len(bids), PLACE_WORDS), -1, np.int64)
        places[moving["bid"], HOLDER] = place_of[moving["ask"]]
        places[moving["bid"], START] = moving["start"]
        heads, bounds = np.full(len(self.places), -1, np.int64), np.empty(len(bids) + 1, np.int64)
        found = np.empty(REACH * len(bids), np.int64)
        reach(self.words, self.offsets, words, bounds, found, self._scratch)
        gone = np.empty(2 * len(bids), np.int64)
        dice = np.array([seed % (2**64 - 1) + 1], np.uint64)  # never 0, which it would stay
        free, flat = self.free.reshape(-1), places.reshape(-1)
        search(self.words, free, self.horizon, words, flat, heads, bounds, found, gone, dice, steps)
        held = np.flatnonzero(places[:, HOLDER] >= 0)
        moved = np.empty(len(held), PART)
        moved["bid"], moved["gpus"] = held, bids["gpus"][held]
        moved["ask"], moved["start"] = self.places[places[held, HOLDER]], places[held, START]
        return np.concatenate([moved, parts[~alone]])

    def is_free(self, ask: int) -> bool:
        """Whether nobody has taken anything of an ask, by its row."""
        row = self._place_of[ask]
        words, count = self.words, len(self.places)
        first, end = words[ASK_OPENS * count + row], words[ASK_ENDS * count + row]
        return bool((self.free[row, first:end] == words[ASK_GPUS * count + row]).all())

    def occupy(self, asks: Sequence[int]) -> None:
        """Take the whole of some asks, by their rows, for what the caller served by itself."""
        self.free[self._place_of[asks]] = 0

    def release(self, parts: NDArray[np.void], bids: NDArray[np.void]) -> None:
        """Give back what parts of an earlier answer took: their settlement failed."""
        for bid, ask, start, gpus in parts.tolist():
            self.free[self._place_of[ask], start : start + int(bids["slots"][bid])] += gpus


def bid_words(bids: NDArray[np.void], horizon: int) -> Words:
    """Bids as the kernel reads them; raises ValueError where one breaks a rule."""
    _check_bids(bids, horizon)
    fields = ("limit", "models", "regions", "needs", "owner", "gpus", "slots")
    columns = [bids[name] for name in (*fields, "earliest", "latest", "scope", "least")]
    return np.stack(columns, axis=1).astype(np.int64).reshape(-1)


def _check_asks(asks: NDArray[np.void], horizon: int) -> None:
    rules: _Rules = {
        "price": (1, PRICE_MAX),
        "model": (0, MODELS_MAX - 1),
        "region": (0, REGIONS_MAX - 1),
        "fabric": (0, FABRICS_MAX - 1),
        "gpus": (1, GPUS_MAX),
        "lot": (1, asks["gpus"]),
        "first": (0, horizon - 1),
        "end": (asks["first"] + 1, horizon),
    }
    _check("ask", asks, rules)


def _check_bids(bids: NDArray[np.void], horizon: int) -> None:
    rules: _Rules = {
        "gpus": (1, GPUS_MAX),
        "slots": (1, horizon),
        "earliest": (0, horizon - 1),
        "latest": (bids["earliest"], horizon - bids["slots"]),
        "scope": (ALONE, ANY),
        "least": (1, bids["gpus"]),
    }
    _check("bid", bids, rules)
    work = bids["gpus"].astype(np.int64) * bids["slots"]
    _check("bid", bids, {"limit": (1, np.minimum(PRICE_MAX, VALUE_MAX // work))})


_Bound = int | NDArray[np.signedinteger[Any]]
_Rules = Mapping[str, tuple[_Bound, _Bound]]


def _check(what: str, rows: NDArray[np.void], rules: _Rules) -> None:
    for field, (low, high) in rules.items():
        wrong = np.flatnonzero((rows[field] < low) | (rows[field] > high))
        if len(wrong):
            row = int(wrong[0])
            least, most = (int(np.broadcast_to(bound, len(rows))[row]) for bound in (low, high))
            raise ValueError(
                f"{what} {row}: {field}: found {rows[field][row]}, needed {least} to {most}"
            )


def surplus(asks: NDArray[np.void], bids: NDArray[np.void], parts: NDArray[np.void]) -> int:
    """(limit - price) x GPUs x slots of all parts; exact, however many."""
    of = bids[parts["bid"]]
    gains = (of["limit"] - asks["price"][parts["ask"]]) * parts["gpus"] * of["slots"]
    return sum(gains.tolist())
