"""Which machines a bid takes: one, or a gang of several that are near enough to each other.

The terms say how near (`Scope`) and how many GPUs must come together at a node (`chunk`). Of all
the sets that satisfy them it takes the one that locks least: in each place the cheapest bundles,
a node's cheapest machines making its first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cloud_gpu.protocol.orders import Scope
from market.book import RestingAsk, RestingBid
from market.fitting import locked_by

Place = tuple[str, ...]
"""What machines must have in common to be near enough."""

Bundle = tuple[RestingAsk, ...]


def takes_any(bid: RestingBid, slice_gpus: int) -> bool:
    """Whether the first machines that fit will do, wherever they are."""
    is_one = bid.bid.payload.count == slice_gpus
    return is_one or (bid.terms.scope is Scope.ANY and bid.terms.chunk <= slice_gpus)


def cheapest_gang(bid: RestingBid, asks: Sequence[RestingAsk]) -> tuple[RestingAsk, ...] | None:
    """The machines that a bid takes of asks that fit it one by one, cheapest first.

    `asks` are of one product, cheapest first. None: they are too few, or too far apart.
    """
    if not asks:
        return None
    slice_gpus = asks[0].gpus
    size = max(1, bid.terms.chunk // slice_gpus)
    count = bid.bid.payload.count // slice_gpus // size
    places: dict[Place, dict[Place, list[RestingAsk]]] = {}
    for ask in asks:
        nodes = places.setdefault(_place(bid.terms.scope, ask), {})
        nodes.setdefault(_place(Scope.NODE, ask), []).append(ask)
    gangs = [
        gang
        for nodes in places.values()
        if (gang := _cheapest(bid, nodes.values(), size, count)) is not None
    ]
    return min(gangs, key=lambda gang: _cost(bid, gang), default=None)


def most_together(bid: RestingBid, asks: Sequence[RestingAsk]) -> int:
    """How many machines a bid could have of asks that fit it one by one."""
    places: dict[Place, dict[Place, int]] = {}
    for ask in asks:
        nodes = places.setdefault(_place(bid.terms.scope, ask), {})
        node = _place(Scope.NODE, ask)
        nodes[node] = nodes.get(node, 0) + 1
    size = max(1, bid.terms.chunk // asks[0].gpus) if asks else 1
    together = (sum(n - n % size for n in nodes.values()) for nodes in places.values())
    return max(together, default=0)


def _cheapest(
    bid: RestingBid, nodes: Iterable[Sequence[RestingAsk]], size: int, count: int
) -> Bundle | None:
    bundles = [
        tuple(asks[start : start + size])
        for asks in nodes
        for start in range(0, len(asks) - size + 1, size)
    ]
    if len(bundles) < count:
        return None
    bundles.sort(key=lambda bundle: _cost(bid, bundle))
    taken = [ask for bundle in bundles[:count] for ask in bundle]
    return tuple(sorted(taken, key=lambda ask: (ask.rank, ask.machine)))


def _cost(bid: RestingBid, asks: Bundle) -> tuple[int, list[tuple[int, int, bytes]]]:
    return sum(locked_by(bid, ask).value for ask in asks), [ask.rank for ask in asks]


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
