"""What a round tells a person: what kept a bid from a match, and why a match has its price.

Every rule is asked for every ask, so that it can be said how many machines each one costs, and
which single change would be the cheapest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.match import Explanation, Obstruction
from cloud_gpu.protocol.orders import Scope
from cloud_gpu.protocol.units import Price, TokenAmount, format_tokens
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import Conditions, Obstacle, obstacles
from market.clearing.gangs import Gathering, most_together

_PRICE = "bid.max_price_per_hour"

Way = tuple[list[Obstacle], RestingAsk]
"""An ask, and all that keeps it from a bid."""


def explain(
    bid: RestingBid,
    asks: Sequence[RestingAsk],
    taken_at: Mapping[MachineKey, Price],
    given: Conditions,
    short: Rejection | None = None,
) -> tuple[Rejection, Explanation]:
    """Why no ask matched, and the nearest change that would have; reason NO_MATCH.

    `asks` are those that were free when the round ended, cheapest first; `taken_at` says at which
    limit price a bid that came before took a machine; `short`: only the buyer's cash was too low.
    """
    if not asks:
        return short or _nothing_free(bid, given), Explanation(asks=0)
    ways = [(list(obstacles(bid, ask, given)), ask) for ask in asks]
    fitting = [ask for found, ask in ways if not found]
    lost = [taken_at[ask.machine] for found, ask in ways if not found and ask.machine in taken_at]
    if short is not None:
        rejection, change = short, short.next
    elif fitting and bid.bid.payload.count > fitting[0].gpus:
        free = [ask for ask in fitting if ask.machine not in taken_at]
        change = _fewer_or_wider(bid, free) or _single_change(bid, ways, taken_at)
        rejection = _too_few(bid, fitting, free, change)
    elif lost:
        rejection, change = _outbid(bid, lost), _price_above(lost)
    else:
        change = _single_change(bid, ways, taken_at)
        rejection = _kept_off(bid, ways, change)
    return rejection, Explanation(
        asks=len(asks), obstructions=_obstructions(ways), taken=len(lost), change=change
    )


def explain_match(
    bid: RestingBid,
    matched: Sequence[RestingAsk],
    asks: Sequence[RestingAsk],
    taken_at: Mapping[MachineKey, Price],
    given: Conditions,
) -> Explanation:
    """Why a match has its price: what it passed by on the way up from the cheapest ask."""
    own, dearest = {ask.machine for ask in matched}, matched[-1]
    cheaper = [ask for ask in asks if ask.rank < dearest.rank and ask.machine not in own]
    ways = [(list(obstacles(bid, other, given)), other) for other in cheaper]
    taken = sum(1 for found, other in ways if not found and other.machine in taken_at)
    kept_off = sum(1 for found, _ in ways if found)
    limit = format_tokens(bid.bid.payload.max_price_per_hour)
    passed = f"{len(cheaper)} cheaper {'machine' if len(cheaper) == 1 else 'machines'}"
    why = f"; of {passed} {kept_off} did not fit and {taken} went to bids before it"
    if worse := len(cheaper) - kept_off - taken:
        why += f", and for {worse} the terms count more than the price"
    return Explanation(
        asks=len(cheaper) + len(own),
        obstructions=_obstructions(ways),
        taken=taken,
        price=(f"{_asked(matched)} (the limit was {limit}){why if cheaper else ''}."),
    )


def _asked(matched: Sequence[RestingAsk]) -> str:
    low, high = (
        format_tokens(ask.ask.payload.min_price_per_hour) for ask in (matched[0], matched[-1])
    )
    if len(matched) == 1:
        return f"The provider is paid what it asks, {low}"
    span = low if low == high else f"{low} to {high}"
    return f"Each of {len(matched)} machines is paid what it asks, {span}"


def _obstructions(ways: Sequence[Way]) -> tuple[Obstruction, ...]:
    asks: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for found, _ in ways:
        fields = {obstacle.field for obstacle in found}
        asks.update(fields)
        alone.update(fields if len(found) == 1 else ())
    ranked = sorted(asks, key=lambda field: (-asks[field], -alone[field], field))
    return tuple(Obstruction(field=f, asks=asks[f], alone=alone[f]) for f in ranked)


def _single_change(
    bid: RestingBid, ways: Sequence[Way], taken_at: Mapping[MachineKey, Price]
) -> str:
    """The smallest change that lets enough machines in which nothing else keeps off; "": none.

    One change lets in all machines that need it: of a limit price those up to it.
    """
    free = [(found, ask) for found, ask in ways if ask.machine not in taken_at]
    gathering = Gathering(bid, (ask for found, ask in free if not found), bid.terms.scope)
    kinds: dict[str, list[tuple[Obstacle, RestingAsk]]] = {}
    for found, ask in free:
        if len(found) == 1 and (change := found[0].words().change):
            kind = found[0].field if found[0].field == _PRICE else change
            kinds.setdefault(kind, []).append((found[0], ask))
    changes = []
    for admitted in kinds.values():
        admitted.sort(key=_size)
        last = _first_enough(bid, gathering, [ask for _, ask in admitted])
        if last is not None:
            changes.append(admitted[last])
    if not changes:
        return ""
    return f"{_sentence([min(changes, key=_size)[0].words().change])}."


def _first_enough(bid: RestingBid, gathering: Gathering, asks: Sequence[RestingAsk]) -> int | None:
    """The place of the ask with which those up to it are enough; None: all of them are not.

    Many may need a change of their own, so that only the places they are in are counted again.
    """
    found = None
    for place, ask in enumerate(asks):
        if gathering.join(ask) * ask.gpus >= bid.bid.payload.count:
            found = place
            break
    for ask in asks if found is None else asks[: found + 1]:
        gathering.leave(ask)
    return found


def _size(admitted: tuple[Obstacle, RestingAsk]) -> tuple[int, int, tuple[int, int, bytes]]:
    obstacle, ask = admitted
    return obstacle.weight, obstacle.size, ask.rank


def _nothing_free(bid: RestingBid, given: Conditions) -> Rejection:
    product = given.products.get(bid.bid.payload.product)
    gpu_class = product.gpu_class if product is not None else "this product"
    return Rejection(
        reason=RejectReason.NO_MATCH,
        field="bid.product",
        found=f"no free machine of product {bid.bid.payload.product} ({gpu_class})",
        needed="one",
        next="Wait until the bid's start-by, or bid for another product as an alternative.",
    )


def _kept_off(bid: RestingBid, ways: Sequence[Way], change: str) -> Rejection:
    """`change`: the single one that would do; "": none."""
    found, ask = min(ways, key=_distance)
    told = [obstacle.words() for obstacle in found]
    if bid.bid.payload.count > ask.gpus:  # one machine more is not what a gang lacks
        advice = change or "Wait for other machines, or bid for fewer GPUs by one more bid."
    elif all(words.change for words in told):
        changes = _sentence([words.change for words in told])
        advice = f"{changes}: then {ask.machine} fits, the nearest of {len(ways)} free."
    else:
        advice = "Wait for another machine, or bid for another product as an alternative."
    return Rejection(
        reason=RejectReason.NO_MATCH,
        field=found[0].field,
        found=told[0].found,
        needed=told[0].needed,
        next=advice,
    )


def _fewer_or_wider(bid: RestingBid, free: Sequence[RestingAsk]) -> str:
    """What a gang could do with machines that fit it one by one and are free; "": nothing."""
    scopes = list(Scope)
    here, *wider = scopes[scopes.index(bid.terms.scope) :]
    together = most_together(bid, free, here)
    if not together:
        return ""
    fewer = f"id for {together * free[0].gpus} GPUs, by one more bid of the same nonce."
    for scope in wider:
        if most_together(bid, free, scope) * free[0].gpus >= bid.bid.payload.count:
            return f"Widen the scope to {scope}, or b{fewer}"
    return f"B{fewer}"


def _too_few(
    bid: RestingBid, fitting: Sequence[RestingAsk], free: Sequence[RestingAsk], change: str
) -> Rejection:
    """A gang opens whole or not at all; `change`: the single one that would do; "": none."""
    gpus, wanted = fitting[0].gpus, bid.bid.payload.count
    gone = len(fitting) - len(free)
    together = most_together(bid, free, bid.terms.scope) * gpus
    near = {Scope.ANY: ""}.get(bid.terms.scope, f" in one {bid.terms.scope}")
    chunk = f" in chunks of {bid.terms.chunk}" if bid.terms.chunk > gpus else ""
    went = f"; {gone * gpus} more went to bids before it" if gone else ""
    return Rejection(
        reason=RejectReason.NO_MATCH,
        field="bid.count",
        found=f"{together} fitting GPUs{near}{chunk} that are free{went}",
        needed=f"{wanted}{near}{chunk}",
        next=change or "Bid for fewer GPUs or a wider scope, by one more bid of the same nonce.",
    )


def _outbid(bid: RestingBid, lost: Sequence[Price]) -> Rejection:
    lowest = min(lost)
    limit = bid.bid.payload.max_price_per_hour
    return Rejection(
        reason=RejectReason.NO_MATCH,
        field="bid.max_price_per_hour",
        found=f"{format_tokens(limit)}, and {len(lost)} fitting machines went to bids before it",
        needed=f"above {format_tokens(lowest)}, the lowest limit that won one",
        next=f"{_price_above(lost)} You pay the ask's price. Or wait.",
    )


def _price_above(lost: Sequence[Price]) -> str:
    above = format_tokens(min(lost).value + limits.PRICE_TICK)
    return f"Raise the price limit to {above}."


def short_of_cash(bid: RestingBid, cap: TokenAmount, cash: int | None) -> Rejection:
    """Why the cheapest fitting ask was not taken: the vault does not cover it."""
    buyer = bid.bid.payload.buyer
    if cash is None:
        return Rejection(
            reason=RejectReason.UNKNOWN_ACCOUNT,
            field="bid.buyer",
            found=str(buyer),
            needed="an account in LeaseBook",
            next=f"Register it and deposit at least {format_tokens(cap)} tokens.",
        )
    return Rejection(
        reason=RejectReason.CASH_TOO_LOW,
        field="bid.buyer",
        found=f"{format_tokens(cash)} tokens free in the vault",
        needed=f"{format_tokens(cap)} tokens, the cost of the cheapest machine that fits",
        next=f"Deposit {format_tokens(cap.value - cash)} tokens, or bid for a shorter duration.",
    )


def _distance(way: Way) -> tuple[int, int, tuple[int, int, bytes]]:
    found, ask = way
    return sum(o.weight for o in found), sum(o.size for o in found), ask.rank


def _sentence(changes: Sequence[str]) -> str:
    text = " and ".join(changes)
    return text[0].upper() + text[1:]
