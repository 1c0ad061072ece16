"""Whether an ask fits a bid: one rule for each limit, each with the words for a person.

The clearing asks only whether a rule is broken; a bid is told more (`explaining`). The rules are
LeaseBook's, plus what no contract sees: terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import AskFlags, BidFlags
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.settlement import bond_needed
from cloud_gpu.protocol.units import (
    BasisPoints,
    GpuSeconds,
    Price,
    TokenAmount,
    cost_down,
    format_duration,
    format_tokens,
    share_down,
)
from cloud_gpu.protocol.values import Address
from market.attributes import Attributes
from market.books.book import RestingAsk, RestingBid


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a round depends on besides the orders, as it is when the round ends."""

    at: int
    """Unix seconds."""
    inclusion_s: int
    """How much later the transaction may be mined."""
    fee: BasisPoints
    products: Mapping[int, Product]
    bonds: Mapping[MachineKey, TokenAmount]
    """Free bond."""
    verifiers_alive: bool = False
    owners: Mapping[int, int] = field(default_factory=dict)
    """Of each product's GPU class; asked for verified bids only."""
    owners_min: int = 0
    barred: Set[Address] = frozenset()
    """Providers that take no verified lease any more."""
    attributes: Attributes = field(default_factory=Attributes)


@dataclass(frozen=True, slots=True)
class Words:
    """An obstacle for a person."""

    found: str
    needed: str
    change: str = ""
    """What the buyer could do, as the start of a sentence; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One limit that keeps an ask from a bid."""

    field: str
    weight: int
    """How dear the change is, for finding the nearest one."""
    size: int
    """Of the change, within one weight."""
    words: Callable[[], Words]
    """Made for the one obstacle of hundreds that is told."""


Rule = Callable[[RestingBid, RestingAsk, Conditions], Obstacle | None]
"""Of one thing that one change of the bid could mend, so that each is counted for itself."""

_EASY, _HARD, _NOT_THE_BUYERS = 1, 10, 1_000
_UNVERIFIED = "do without verified results"


def cap_of(bid: RestingBid, ask: RestingAsk) -> TokenAmount:
    """What the lease of this one machine would pay at most, at the ask's price."""
    return cap_at(bid, ask, ask.ask.payload.min_price_per_hour)


def cap_at(bid: RestingBid, ask: RestingAsk, price: Price) -> TokenAmount:
    """The same at another price."""
    return cost_down(price, GpuSeconds(ask.gpus * bid.bid.payload.duration))


def locked_by(bid: RestingBid, ask: RestingAsk) -> TokenAmount:
    """What the buyer's vault must cover: the cap, and beside it what audits may cost."""
    return locked_at(bid, ask, ask.ask.payload.min_price_per_hour)


def locked_at(bid: RestingBid, ask: RestingAsk, price: Price) -> TokenAmount:
    """The same at another price."""
    cap = cap_at(bid, ask, price)
    return cap + share_down(cap, bid.bid.payload.audit_bps)


def _price(bid: RestingBid, ask: RestingAsk, _: Conditions) -> Obstacle | None:
    found, needed = bid.bid.payload.max_price_per_hour.value, ask.ask.payload.min_price_per_hour
    if needed.value <= found:
        return None

    def words() -> Words:
        wanted = format_tokens(needed)
        return Words(format_tokens(found), wanted, f"raise the price limit to {wanted}")

    return Obstacle("bid.max_price_per_hour", _EASY, needed.value - found, words)


def _duration(bid: RestingBid, ask: RestingAsk, _: Conditions) -> Obstacle | None:
    found = bid.bid.payload.duration
    low, high = ask.ask.payload.min_duration, ask.ask.payload.max_duration
    if low <= found <= high:
        return None
    needed = low if found < low else high

    def words() -> Words:
        limits_ = f"{format_duration(low)} to {format_duration(high)}"
        change = f"change the duration to {format_duration(needed)}"
        return Words(format_duration(found), limits_, change)

    return Obstacle("bid.duration", _EASY, abs(needed - found), words)


def _ask_ends(_: RestingBid, ask: RestingAsk, given: Conditions) -> Obstacle | None:
    if ask.ask.payload.start_by >= given.at + given.inclusion_s:
        return None
    left = max(0, ask.ask.payload.start_by - given.at)
    words = Words(f"an ask that ends in {left} s", f"{given.inclusion_s} s")
    return Obstacle("ask.start_by", _NOT_THE_BUYERS, 0, lambda: words)


def _bid_ends(bid: RestingBid, _: RestingAsk, given: Conditions) -> Obstacle | None:
    if bid.bid.payload.start_by >= given.at + given.inclusion_s:
        return None
    left = max(0, bid.bid.payload.start_by - given.at)
    words = Words(f"{left} s left", f"{given.inclusion_s} s", "bid with a later start-by")
    return Obstacle("bid.start_by", _EASY, 0, lambda: words)


def _provider(bid: RestingBid, ask: RestingAsk, _: Conditions) -> Obstacle | None:
    wanted, found = bid.bid.payload.provider, ask.ask.payload.provider
    if wanted.is_zero or wanted == found:
        return None
    return Obstacle(
        "bid.provider",
        _HARD,
        0,
        lambda: Words(str(wanted), str(found), "accept any provider (leave it zero)"),
    )


def _self_dealing(bid: RestingBid, ask: RestingAsk, _: Conditions) -> Obstacle | None:
    if bid.bid.payload.buyer != ask.ask.payload.provider:
        return None
    words = Words("your own machine", "another account's")
    return Obstacle("bid.buyer", _NOT_THE_BUYERS, 0, lambda: words)


def _bid_fee(bid: RestingBid, _: RestingAsk, given: Conditions) -> Obstacle | None:
    limit, needed = bid.bid.payload.max_fee_bps.value, given.fee.value
    if limit >= needed:
        return None
    words = Words(f"{limit} bp", f"{needed} bp", f"accept a fee of {needed} bp")
    return Obstacle("bid.max_fee_bps", _HARD, 0, lambda: words)


def _ask_fee(_: RestingBid, ask: RestingAsk, given: Conditions) -> Obstacle | None:
    limit, needed = ask.ask.payload.max_fee_bps.value, given.fee.value
    if limit >= needed:
        return None
    words = Words(f"{limit} bp", f"{needed} bp")
    return Obstacle("ask.max_fee_bps", _NOT_THE_BUYERS, 0, lambda: words)


def _interruptible(bid: RestingBid, ask: RestingAsk, given: Conditions) -> Obstacle | None:
    wants, offers = bid.bid.payload.flags, ask.ask.payload.flags
    if not (offers and offers & AskFlags.INTERRUPTIBLE & ~(wants & _allowed(ask, given))):
        return None
    words = Words("not interruptible", "interruptible", "accept interruption")
    return Obstacle("bid.flags", _HARD, 0, lambda: words)


def _verified(bid: RestingBid, ask: RestingAsk, given: Conditions) -> Obstacle | None:
    wants, offers = bid.bid.payload.flags, ask.ask.payload.flags
    if not (wants and wants & BidFlags.VERIFIED & ~(offers & _allowed(ask, given))):
        return None
    words = Words("verified", "not verified", _UNVERIFIED)
    return Obstacle("bid.flags", _HARD, 0, lambda: words)


def _allowed(ask: RestingAsk, given: Conditions) -> int:
    product = given.products.get(ask.ask.payload.product)
    return product.flags if product is not None else 0


def _audited(bid: RestingBid, ask: RestingAsk, given: Conditions) -> Obstacle | None:
    wants = bid.bid.payload.flags
    if not (wants and wants & BidFlags.VERIFIED) or _verified(bid, ask, given) is not None:
        return None
    change = _UNVERIFIED
    if ask.ask.payload.provider in given.barred:
        words = Words("a provider that fraud cost its verified leases", "another's", change)
        return Obstacle("bid.flags", _HARD, 0, lambda: words)
    if not given.verifiers_alive:
        words = Words("a verifier that was not heard lately", "all verifiers at work", change)
        return Obstacle("bid.flags", _HARD, 0, lambda: words)
    owners = given.owners.get(ask.ask.payload.product, 0)
    if owners < given.owners_min:
        needed = f"{given.owners_min}, so that others can repeat the work"
        words = Words(f"{owners} owners of this GPU class", needed, change)
        return Obstacle("bid.flags", _HARD, 0, lambda: words)
    return None


def _terms(bid: RestingBid, ask: RestingAsk) -> Iterator[Obstacle]:
    for unmet in bid.terms.all_unmet_by(ask.advert.body.profile, ask.ask.payload.provider):
        name, _sep, rest = unmet.partition(": ")
        found, _sep, needed = rest.removeprefix("found ").partition(", needed ")
        change = f"accept {found} ({name})" if needed else f"do without {name}"
        words = Words(needed or rest, found, change)
        yield Obstacle(f"terms.{name}", _HARD, 0, partial(_same, words))


def _same(words: Words) -> Words:
    return words


def _memory(bid: RestingBid, ask: RestingAsk, given: Conditions) -> Obstacle | None:
    need, one = bid.terms.gpu_memory_need_mib, limits.BASIS_POINTS_ONE
    if not need:
        return None
    found = min(gpu.memory_mib for gpu in ask.advert.body.profile.gpus)
    margin = given.attributes.memory_margin.value
    if need * (one + margin) <= found * one:
        return None
    size = -(-need * (one + margin) // one)
    needed = f"{size} MiB: the job's {need} and this market's margin"
    words = Words(needed, f"{found} MiB a GPU", f"state a need of {found * one // (one + margin)}")
    return Obstacle("terms.gpu_memory_need_mib", _HARD, size - found, lambda: words)


def _bond(bid: RestingBid, ask: RestingAsk, given: Conditions) -> Obstacle | None:
    product = given.products.get(ask.ask.payload.product)
    free = given.bonds.get(ask.machine, TokenAmount(0))
    if product is None:
        unknown = Words(str(ask.ask.payload.product), "a product that is known here")
        return Obstacle("bid.product", _NOT_THE_BUYERS, 0, lambda: unknown)
    needed = bond_needed(cap_of(bid, ask), product.min_bond)
    if needed <= free:
        return None

    def words() -> Words:
        change = "bid for a shorter duration, which the machine's bond covers"
        return Words(f"a free bond of {format_tokens(free)}", format_tokens(needed), change)

    return Obstacle("ask.bond", _HARD, needed.value - free.value, words)


def _cap(bid: RestingBid, ask: RestingAsk, _: Conditions) -> Obstacle | None:
    cap = cap_of(bid, ask).value
    if 1 <= cap <= limits.LEASE_CAP_MAX:
        return None
    change = f"bid for a {'longer' if cap == 0 else 'shorter'} duration"
    words = Words(f"a cost of {cap} base units", f"1 to {limits.LEASE_CAP_MAX}", change)
    return Obstacle("bid.duration", _EASY, 0, lambda: words)


_BEFORE_TERMS: tuple[Rule, ...] = (
    _price,
    _duration,
    _ask_ends,
    _bid_ends,
    _provider,
    _self_dealing,
    _bid_fee,
    _ask_fee,
    _interruptible,
    _verified,
    _audited,
)
_AFTER_TERMS: tuple[Rule, ...] = (_memory, _cap, _bond)


def obstacles(bid: RestingBid, ask: RestingAsk, given: Conditions) -> Iterator[Obstacle]:
    """Everything that keeps this ask from this bid, apart from cash and from others' matches."""
    for rule in _BEFORE_TERMS:
        if (found := rule(bid, ask, given)) is not None:
            yield found
    yield from _terms(bid, ask)
    for rule in _AFTER_TERMS:
        if (found := rule(bid, ask, given)) is not None:
            yield found


def fits(bid: RestingBid, ask: RestingAsk, given: Conditions) -> bool:
    """Whether nothing keeps this ask from this bid."""
    return next(obstacles(bid, ask, given), None) is None
