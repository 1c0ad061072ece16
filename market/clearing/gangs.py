"""Which machines a bid takes: one, or a gang of several that are near enough to each other.

The terms say how near (`Scope`) and how many GPUs must come together at a node (`chunk`). Of all
the sets that satisfy them it takes the one with the least score: in each place the best bundles, a
node's best machines making its first. Where nothing but prices count, that is the cheapest set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cloud_gpu.protocol.orders import Scope
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import Conditions
from market.clearing.scoring import is_by_price, score

Rank = tuple[int, int, bytes]

Place = tuple[str, ...]
"""What machines must have in common to be near enough."""

_NEAREST_FIRST = tuple(Scope)


@dataclass(frozen=True)
class Gang:
    """Machines for one bid."""

    asks: tuple[RestingAsk, ...]
    """In the order of their ranks."""
    score: int

    @cached_property
    def order(self) -> tuple[int, list[Rank]]:
        """The best comes first."""
        return self.score, [ask.rank for ask in self.asks]


def takes_first(bid: RestingBid, slice_gpus: int, given: Conditions) -> bool:
    """Whether the first machines that fit are the best, wherever they are."""
    terms = bid.terms
    is_one = bid.bid.payload.count == slice_gpus
    is_anywhere = terms.scope is Scope.ANY and terms.chunk <= slice_gpus and not terms.communication
    return is_by_price(bid, given.attributes) and (is_one or is_anywhere)


def best_gang(bid: RestingBid, asks: Sequence[RestingAsk], given: Conditions) -> Gang | None:
    """The machines that a bid takes of asks that fit it one by one.

    `asks` are of one product, cheapest first. None: they are too few, or too far apart.
    """
    if not asks:
        return None
    widest = bid.terms.scope
    scopes = [widest]
    if bid.terms.communication:  # a nearer gang may be better though it costs more
        scopes = list(_NEAREST_FIRST[: _NEAREST_FIRST.index(widest) + 1])
    gangs = [
        gang
        for scope in scopes
        for nodes in _places(scope, asks).values()
        if (gang := _best(bid, nodes.values(), scope, given)) is not None
    ]
    return min(gangs, key=lambda gang: gang.order, default=None)


def most_together(bid: RestingBid, asks: Sequence[RestingAsk], scope: Scope) -> int:
    """How many machines a bid could have, so near, of asks that fit it one by one."""
    return Gathering(bid, asks, scope).most if asks else 0


class Gathering:
    """How many machines a bid could have, so near, as asks join that fit it one by one."""

    def __init__(self, bid: RestingBid, asks: Iterable[RestingAsk], scope: Scope) -> None:
        self._bid, self._scope = bid, scope
        self._at_node: Counter[tuple[Place, Place]] = Counter()
        self._in_place: Counter[Place] = Counter()
        for ask in asks:
            self.join(ask)

    @property
    def most(self) -> int:
        """In the place that has most."""
        return max(self._in_place.values(), default=0)

    def join(self, ask: RestingAsk) -> int:
        """One more: how many its place has now."""
        place, node, size = self._where(ask)
        self._at_node[place, node] += 1
        if self._at_node[place, node] % size == 0:
            self._in_place[place] += size
        return self._in_place[place]

    def leave(self, ask: RestingAsk) -> None:
        """It had joined."""
        place, node, size = self._where(ask)
        if self._at_node[place, node] % size == 0:
            self._in_place[place] -= size
        self._at_node[place, node] -= 1

    def _where(self, ask: RestingAsk) -> tuple[Place, Place, int]:
        return _place(self._scope, ask), _place(Scope.NODE, ask), _bundle_size(self._bid, ask)


def _bundle_size(bid: RestingBid, ask: RestingAsk) -> int:
    return max(1, bid.terms.chunk // ask.gpus)


def _places(scope: Scope, asks: Iterable[RestingAsk]) -> dict[Place, dict[Place, list[RestingAsk]]]:
    """Of each place its nodes, and of each node its machines."""
    places: dict[Place, dict[Place, list[RestingAsk]]] = {}
    for ask in asks:
        nodes = places.setdefault(_place(scope, ask), {})
        nodes.setdefault(_place(Scope.NODE, ask), []).append(ask)
    return places


def _best(
    bid: RestingBid, nodes: Iterable[Sequence[RestingAsk]], spread: Scope, given: Conditions
) -> Gang | None:
    bundles: list[Gang] = []
    count = 0
    for node in nodes:
        scored = sorted(
            (score(bid, ask, given.attributes, at=given.at, spread=spread), ask.rank, ask.machine)
            for ask in node
        )
        by_machine = {ask.machine: ask for ask in node}
        size = _bundle_size(bid, node[0])
        count = bid.bid.payload.count // node[0].gpus // size
        for start in range(0, len(scored) - size + 1, size):
            part = scored[start : start + size]
            asks = sorted((by_machine[m] for _, _, m in part), key=lambda ask: ask.rank)
            bundles.append(Gang(tuple(asks), sum(points for points, _, _ in part)))
    if not count or len(bundles) < count:
        return None
    bundles.sort(key=lambda bundle: bundle.order)
    taken = [ask for bundle in bundles[:count] for ask in bundle.asks]
    taken.sort(key=lambda ask: (ask.rank, ask.machine))
    return Gang(tuple(taken), sum(bundle.score for bundle in bundles[:count]))


def _place(scope: Scope, ask: RestingAsk) -> Place:
    """The narrowest place of that kind that a machine is in, by its provider's signed word."""
    advert = ask.advert.body
    provider, profile = str(ask.machine.provider), advert.profile
    match scope:
        case Scope.NODE:
            return provider, advert.peer
        case Scope.FABRIC if profile.fabric:
            return provider, "", profile.fabric
        case Scope.FABRIC:
            return provider, advert.peer
        case Scope.REGION if profile.region:
            return (profile.region,)
        case Scope.REGION:  # nobody says where it is: near its own node alone
            return provider, advert.peer
        case Scope.ANY:
            return ()
