"""The lists behind a published round's roots, kept alike by who publishes and by who audits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.merkle import Tree, leaf_of
from cloud_gpu.protocol.rounds import (
    Arrival,
    Condition,
    Fill,
    Placed,
    PlacedAsk,
    Roots,
    RoundBody,
    SealedBatch,
    Unmatched,
)
from cloud_gpu.protocol.ties import EntryBatch
from cloud_gpu.protocol.values import Digest


class Keyed(Protocol):
    """A row of a list."""

    @property
    def key(self) -> str:
        """Rows stand in the order of their keys."""


RowT = TypeVar("RowT", bound=Keyed)


class RoundList(Generic[RowT]):
    """A list that changes little from round to round."""

    def __init__(self) -> None:
        self.rows: dict[str, RowT] = {}
        self._leaves: dict[str, Digest] = {}

    def turn(self, rows: Mapping[str, RowT]) -> tuple[tuple[RowT, ...], tuple[str, ...]]:
        """Make it these rows; returns those that changed, and the keys that are gone."""
        before = self.rows
        new = [key for key, row in rows.items() if before.get(key) is not row]
        changed = tuple(rows[key] for key in sorted(new) if before.get(key) != rows[key])
        gone = tuple(sorted(self.rows.keys() - rows.keys()))
        self.apply(changed, gone)
        return changed, gone

    def apply(self, changed: Iterable[RowT], gone: Iterable[str]) -> None:
        """Take a change in. Raises KeyError for a row that is gone and was not there."""
        for key in gone:
            del self.rows[key], self._leaves[key]
        for row in changed:
            key = row.key
            self.rows[key], self._leaves[key] = row, leaf_of(to_json(row))

    @property
    def entries(self) -> list[bytes]:
        """What the tree is over, in order."""
        return [to_json(self.rows[key]) for key in sorted(self.rows)]

    @property
    def tree(self) -> Tree:
        """Over the entries; those that did not change are not hashed again."""
        return Tree([self._leaves[key] for key in sorted(self._leaves)])


class RoundLists:
    """All lists of one lane."""

    def __init__(self) -> None:
        self.orders: RoundList[Placed] = RoundList()
        self.asks: RoundList[PlacedAsk] = RoundList()
        self.conditions: RoundList[Condition] = RoundList()
        self.unmatched: RoundList[Unmatched] = RoundList()
        self.fills: tuple[Fill, ...] = ()
        self.batches: tuple[EntryBatch, ...] = ()
        self.arrivals: tuple[Arrival, ...] = ()

    def apply(self, body: RoundBody) -> None:
        """Bring the lists to the next round. Raises KeyError as `RoundList.apply`.

        An order that came in and never took part may be gone, too.
        """
        here = self.orders.rows
        gone = [str(each.order) for each in body.orders_gone if str(each.order) in here]
        self.orders.apply(body.orders, gone)
        self.asks.apply(body.asks, body.asks_gone)
        self.conditions.apply(body.conditions, body.conditions_gone)
        self.unmatched.apply(body.unmatched, body.unmatched_gone)
        self.fills, self.batches, self.arrivals = body.fills, body.batches, body.arrivals

    def entries(self, name: str) -> list[bytes]:
        """What the tree behind one of the `Roots` is over."""
        match name:
            case "orders":
                return self.orders.entries
            case "asks":
                return self.asks.entries
            case "conditions":
                return self.conditions.entries
            case "unmatched":
                return self.unmatched.entries
            case "fills":
                return [to_json(each) for each in self.fills]
            case "batches":
                return [to_json(sealed(each)) for each in self.batches]
            case "arrivals":
                return [to_json(each) for each in self.arrivals]
            case _:
                raise AssertionError(name)

    def keys(self, name: str) -> list[str]:
        """Of the rows of a list, in its order; what is listed as it came has none."""
        match name:
            case "orders":
                return sorted(self.orders.rows)
            case "asks":
                return sorted(self.asks.rows)
            case "conditions":
                return sorted(self.conditions.rows)
            case "unmatched":
                return sorted(self.unmatched.rows)
            case "fills":
                return [each.key for each in self.fills]
            case _:
                raise AssertionError(name)

    @property
    def roots(self) -> Roots:
        """Of all of them."""
        return Roots(**{name: self.root(name) for name in ROOTS})

    def root(self, name: str) -> Digest:
        """Of one of them."""
        kept = getattr(self, name)
        return (kept.tree if isinstance(kept, RoundList) else tree_of(self.entries(name))).root


ROOTS: Sequence[str] = tuple(Roots.__struct_fields__)


def tree_of(entries: Iterable[bytes]) -> Tree:
    """The tree over a list."""
    return Tree([leaf_of(entry) for entry in entries])


def sealed(batch: EntryBatch) -> SealedBatch:
    """An entry batch, short."""
    return SealedBatch(batch=batch.batch, before=batch.before, entered=batch.root, seed=batch.seed)
