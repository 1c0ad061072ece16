"""From what a person wants to signed bids: words, a request, then a bid for each way to meet it.

The bids share a nonce: at most one of them opens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.hardware import GpuClass, Isolation
from cloud_gpu.protocol.orders import (
    Bid,
    BidFlags,
    Scope,
    SignedBid,
    Terms,
)
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import (
    BasisPoints,
    Price,
    TokenAmount,
    parse_duration,
    parse_price,
    share_up,
)
from cloud_gpu.protocol.values import ZERO_ADDRESS, ZERO_DIGEST, Address, Digest, Value
from cloud_gpu.query import Query
from cloud_gpu.query_text import QueryUnclear, parse_query
from cloud_gpu.spending import Purse, quote

WordT = TypeVar("WordT")
ReadT = TypeVar("ReadT")
AnyT = TypeVar("AnyT")

AUDIT_SHARE: Final = BasisPoints(700)
"""Pays one audit in twenty, with room."""

ALTERNATIVES_MAX: Final = 32
"""Bids of one request."""

_EXCLUDED_MAX: Final = limits.TERMS_WORDS_MAX - 3
"""What a bid's terms hold beside its class, region and network class."""


class WordUnclear(ValueError):
    """One word of a wish cannot be meant: `field` is its name in `wish`, `problem` the rest."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class Preferences(Value, frozen=True, kw_only=True):
    """What besides the price makes one fitting machine better than another; see `Terms`."""

    gpu_memory_need_mib: int = 0
    communication: BasisPoints = BasisPoints(0)
    electricity_weight: BasisPoints = BasisPoints(0)
    carbon_price: TokenAmount = TokenAmount(0)


NO_PREFERENCES: Final = Preferences()


class LeaseRequest(Value, frozen=True, kw_only=True):
    """What one lease must be. Made from a person's words by `wish`."""

    gpu_type: str
    """A query: "A100", "A100|H100:80GB..", "gpu in [A100,H100] vram>=40GB region!=CN"."""
    count: int
    max_price: Price
    duration: int
    """Seconds."""
    start_timeout: int = 60
    """Seconds until the bid expires."""
    isolation: Isolation = Isolation.PROCESS
    region: str = ""
    memory_mib_min: int = 0
    disk_mib_min: int = 0
    cuda_min: str = ""
    network_class: str = ""
    simulated_allowed: bool = True
    excluded_providers: tuple[Address, ...] = ()
    """None of these may get it."""
    provider: Address = ZERO_ADDRESS
    """The only one who may get it; zero: any."""
    verified: bool = False
    """Pay is held until the results were audited."""
    audit_bps: BasisPoints = AUDIT_SHARE
    """Of the pay, on top of it, to the audits; for verified leases."""
    one_round: bool = False
    """Take what the next round gives, or nothing; of a `block` the next auction."""
    interruptible: bool = False
    """A machine will do whose provider may end the lease after its product's notice."""
    min_count: int = 0
    """Fewer GPUs that will do, down to this, where so many are not to be had; 0: no fewer."""
    scope: Scope | None = None
    """How near several machines must be to each other; None: one machine has all the GPUs."""
    chunk: int = 0
    """GPUs that come together at one node; 0: as many as a machine has."""
    block: bool = False
    """Wait sealed for the market's next block auction, where all pay one price. Then everybody
    knows the bid: what should not be known in the next auction too is bid as `one_round`."""
    preferences: Preferences = NO_PREFERENCES
    start_after: int = 0
    """Seconds before which it does not start; `start_timeout` begins then."""

    def __post_init__(self) -> None:
        if not self.gpu_type.strip():
            raise WordUnclear(
                "gpu_type", 'found nothing, needed a GPU class or a word of one: "A100"'
            )
        try:
            parse_query(self.gpu_type)
        except QueryUnclear as error:
            raise WordUnclear("gpu_type", str(error)) from error
        if not 0 < self.count < 2**16:
            raise WordUnclear("count", f"found {self.count}, needed 1 to {2**16 - 1} GPUs")
        if not 0 <= self.min_count <= self.count:
            raise WordUnclear("min_count", f"found {self.min_count}, needed 1 to {self.count}")
        if self.chunk and (self.chunk < 0 or self.count % self.chunk):
            raise WordUnclear("chunk", f"found {self.chunk}, needed a divisor of {self.count}")
        if self.chunk and self.scope is None:
            raise WordUnclear("chunk", "needed a scope beside it: one machine has no chunks")
        if not self.max_price:
            raise WordUnclear("max_price", 'found 0, needed tokens per GPU-hour, like "1.20"')
        if (found := len(self.excluded_providers)) > _EXCLUDED_MAX:
            raise WordUnclear("exclude_providers", f"found {found}, needed {_EXCLUDED_MAX} at most")
        if self.provider in self.excluded_providers:
            raise WordUnclear(
                "provider", f"found {self.provider}, needed one that is not excluded as well"
            )

    @property
    def query(self) -> Query:
        """What `gpu_type` asks for."""
        return parse_query(self.gpu_type)

    @property
    def most(self) -> TokenAmount:
        """The most that it can lock: its limit price and the audits' share, rounded up."""
        cap = quote(self.max_price, self.count, self.duration)
        return cap + share_up(cap, self.audit_bps) if self.verified else cap

    def takes(self, gpus: int, slice_gpus: int) -> bool:
        """Whether machines of `slice_gpus` GPUs, so many of them in all, will do."""
        machines, rest = divmod(gpus, slice_gpus)
        if rest or not max(1, self.min_count or self.count) <= gpus <= self.count:
            return False
        if machines == 1 or not self.chunk:
            return machines == 1 or self.scope is not None
        whole = self.chunk % slice_gpus == 0 and gpus % self.chunk == 0
        return self.scope is not None and (whole or slice_gpus % self.chunk == 0)

    def counts(self, slice_gpus: int) -> tuple[int, ...]:
        """How many GPUs will do where a machine has `slice_gpus`, the most first."""
        most = self.count - self.count % slice_gpus
        counts = range(most, 0, -slice_gpus)
        return tuple(gpus for gpus in counts if self.takes(gpus, slice_gpus))

    def terms(self, gpu_class: GpuClass) -> Terms:
        """The constraints that a bid for this class signs: the query's and the words beside it."""
        asked = self.query.terms(gpu_class)
        return msgspec.structs.replace(
            asked,
            memory_mib_min=max(self.memory_mib_min, asked.memory_mib_min),
            disk_mib_min=max(self.disk_mib_min, asked.disk_mib_min),
            cuda_min=self.cuda_min or asked.cuda_min,
            regions=(self.region,) if self.region else asked.regions,
            network_classes=(self.network_class,) if self.network_class else asked.network_classes,
            isolation_min=self.isolation,
            simulated_allowed=self.simulated_allowed,
            excluded_providers=self.excluded_providers,
            one_round=self.one_round,
            block=self.block,
            **{
                **msgspec.structs.asdict(self.preferences),
                "gpu_memory_need_mib": self.preferences.gpu_memory_need_mib
                or asked.gpu_memory_need_mib,
            },
        )


def wish(
    *,
    gpu_type: str,
    count: int,
    max_price: str,
    duration: str | int,
    start_timeout: str | int = 60,
    isolation: str | None = None,
    region: str | None = None,
    simulated_allowed: bool = True,
    verified: bool = False,
    audit_bps: int = AUDIT_SHARE.value,
    exclude_providers: Sequence[str | Address] = (),
    provider: str | Address | None = None,
    one_round: bool = False,
    interruptible: bool = False,
    min_count: int = 0,
    scope: str | None = None,
    chunk: int = 0,
    start_after: str | int = 0,
    block: bool = False,
    preferences: Preferences = NO_PREFERENCES,
) -> LeaseRequest:
    """Read a person's words. Raises `WordUnclear` naming the word, what was found and needed.

    `gpu_type` is a whole query; what it says of other words holds with them: of two prices the
    lower, of two isolations the stronger; two counts, regions or providers must not differ, nor
    two scopes or chunks.
    """
    try:
        query = parse_query(gpu_type)
    except QueryUnclear as error:
        raise WordUnclear("gpu_type", str(error)) from error
    least = _read("isolation", _isolation, isolation or Isolation.PROCESS.value)
    limit = _read("max_price", parse_price, max_price)
    asked = None if provider is None else _read("provider", _account, provider)
    excluded = _read("exclude_providers", _accounts, exclude_providers)
    near = _read("scope", _scope, scope) if scope else None
    return LeaseRequest(
        gpu_type=gpu_type,
        count=count if query.count is None else _count_of(query.count, count),
        max_price=min(limit, query.max_price or limit),
        duration=_read("timeout", parse_duration, duration),
        start_timeout=_read("start_timeout", parse_duration, start_timeout),
        isolation=max(least, query.isolation or least, key=lambda found: found.strength),
        region=region or "" if not query.regions else _once_region(region, query.regions),
        simulated_allowed=simulated_allowed and query.simulated_allowed is not False,
        excluded_providers=tuple(dict.fromkeys(excluded + query.excluded_providers)),
        provider=_once("provider", query.provider, asked) or ZERO_ADDRESS,
        verified=verified or bool(query.verified),
        audit_bps=_read("audit_bps", _audit_share, audit_bps),
        one_round=one_round,
        interruptible=interruptible or bool(query.interruptible),
        min_count=_once("min_count", query.min_count, min_count or None) or 0,
        scope=_once("scope", query.scope, near),
        chunk=_once("chunk", query.chunk, chunk or None) or 0,
        block=block,
        preferences=preferences,
        start_after=_read("start_after", parse_duration, start_after) if start_after else 0,
    )


def _isolation(word: str) -> Isolation:
    if word not in list(Isolation):
        raise ValueError(f"found {word!r}, needed one of {', '.join(Isolation)}")
    return Isolation(word)


def _scope(word: str) -> Scope:
    if word not in list(Scope):
        raise ValueError(f"found {word!r}, needed one of {', '.join(Scope)}")
    return Scope(word)


def _count_of(in_query: int, beside: int) -> int:
    """One is what nobody has to say."""
    return in_query if beside == 1 else _once("count", in_query, beside) or in_query


def _once(name: str, in_query: AnyT | None, beside: AnyT | None) -> AnyT | None:
    if None not in (in_query, beside) and in_query != beside:
        raise WordUnclear(name, f"found {beside}, and {in_query} in the query: needed one of them")
    return in_query if beside is None else beside


def _once_region(region: str | None, in_query: tuple[str, ...]) -> str:
    if region and (region,) != in_query:
        shown = ", ".join(in_query)
        raise WordUnclear("region", f"found {region}, and {shown} in the query: needed one of them")
    return ""


def _audit_share(found: int) -> BasisPoints:
    if not 0 <= found <= limits.AUDIT_BPS_MAX:
        raise ValueError(f"found {found}, needed 0 to {limits.AUDIT_BPS_MAX}")
    return BasisPoints(found)


def _accounts(words: Sequence[str | Address]) -> tuple[Address, ...]:
    if isinstance(words, str):
        raise ValueError(f"found the text {words!r}, needed a list of addresses")
    return tuple(dict.fromkeys(_account(word) for word in words))


def _account(word: str | Address) -> Address:
    try:
        found = Address.parse(str(word))
    except ValueError as error:
        raise ValueError(f"found {str(word)!r}, needed 0x and 40 hex digits") from error
    if found.is_zero:
        raise ValueError("found the zero address, needed a provider's")
    return found


def _read(name: str, parse: Callable[[WordT], ReadT], word: WordT) -> ReadT:
    try:
        return parse(word)
    except ValueError as error:
        raise WordUnclear(name, str(error)) from error


def ways_for(
    request: LeaseRequest, products: Sequence[Product], markets: int = 1
) -> tuple[tuple[Product, int], ...]:
    """Each product of the classes meant, and each count of GPUs of it that will do, most first.

    Raises `WordUnclear` when they are more than may be bid for at once at so many markets.
    """
    ways = [
        (product, gpus)
        for product in products
        if request.query.wants(product.gpu_class)
        for gpus in request.counts(product.slice_gpus)
    ]
    if len(ways) * markets > ALTERNATIVES_MAX:
        at = f" at each of {markets} markets" if markets > 1 else ""
        raise WordUnclear(
            "min_count",
            f"found {len(ways)} counts and products that will do{at}, needed"
            f" {ALTERNATIVES_MAX // markets} at most: name a higher one, or a narrower class",
        )
    return tuple(sorted(ways, key=lambda way: (-way[1], way[0].id)))


def drawn_salt(draw: Callable[[], int]) -> Digest:
    """For a sealed bid, of numbers of 32 random bits."""
    drawn = (draw() % 2**32 for _ in range(Digest.LENGTH // 4))
    return Digest(b"".join(each.to_bytes(4, "big") for each in drawn))


def make_bids(
    request: LeaseRequest,
    ways: Sequence[tuple[Product, int]],
    market: MarketView,
    purse: Purse,
    *,
    nonce: int,
    at: int,
    salt: Digest = ZERO_DIGEST,
) -> tuple[SignedBid, ...]:
    """Sign one bid for each way; they share the nonce, so at most one opens.

    `at` is the chain's time in Unix seconds; the bids expire `start_timeout` after their start.
    Sealed bids need a `salt` that nobody can guess; raises `WordUnclear` without.
    """
    if request.block and salt == ZERO_DIGEST:
        needed = "found none, needed 32 random bytes for a sealed bid: see `drawn_salt`"
        raise WordUnclear("salt", needed)
    start_from = at + request.start_after if request.start_after else 0
    start_by = at + request.start_after + request.start_timeout
    flags = BidFlags.VERIFIED if request.verified else BidFlags(0)
    flags |= BidFlags.INTERRUPTIBLE if request.interruptible else BidFlags(0)
    bids = []
    for product, gpus in ways:
        is_gang = gpus > product.slice_gpus
        each_its_ask = is_gang and not request.block
        terms = msgspec.structs.replace(
            request.terms(product.gpu_class),
            scope=(request.scope or Scope.ANY) if is_gang else Scope.ANY,
            chunk=request.chunk if is_gang and request.chunk > product.slice_gpus else 0,
            start_from=start_from,
            salt=salt,
        )
        bid = Bid(
            buyer=purse.account,
            product=product.id,
            count=gpus,
            max_price_per_hour=request.max_price,
            duration=request.duration,
            start_by=start_by,
            open_from=start_by,
            provider=request.provider,
            nonce=nonce,
            matcher=market.matcher,
            max_fee_bps=market.fee_bps,
            audit_bps=request.audit_bps if request.verified else BasisPoints(0),
            flags=int(flags | (BidFlags.PAY_AS_ASK if each_its_ask else BidFlags(0))),
            terms=terms.digest,
        )
        bids.append(SignedBid(bid=purse.bid(bid), terms=terms))
    return tuple(bids)
