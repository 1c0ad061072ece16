"""From what a person wants to signed bids: words, then a request, then a bid for each product."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.hardware import GpuClass, Isolation
from cloud_gpu.protocol.orders import (
    Bid,
    BidFlags,
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
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Value
from cloud_gpu.spending import Purse, quote

WordT = TypeVar("WordT")
ReadT = TypeVar("ReadT")

_PATTERN = re.compile(r"(?P<name>[^:]+)(?::(?P<gib>\d+)\s*(?:GB|GiB)?(?:\.\.)?)?", re.IGNORECASE)
_SPLIT = re.compile(r"[^A-Z0-9]+")

AUDIT_SHARE: Final = BasisPoints(700)
"""Pays one audit in twenty, with room."""

_EXCLUDED_MAX: Final = limits.TERMS_WORDS_MAX - 3
"""What a bid's terms hold beside its class, region and network class."""


class WordUnclear(ValueError):
    """One word of a wish cannot be meant: `field` is its name in `wish`, `problem` the rest."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class LeaseRequest(Value, frozen=True, kw_only=True):
    """What one lease must be. Made from a person's words by `wish`."""

    gpu_type: str
    """"A100", "A100|H100", "A100:80GB..": words of a class, a least memory."""
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

    def __post_init__(self) -> None:
        if not self.gpu_type.strip():
            raise WordUnclear(
                "gpu_type", 'found nothing, needed a GPU class or a word of one: "A100"'
            )
        list(self._alternatives())
        if not 0 < self.count < 2**16:
            raise WordUnclear("count", f"found {self.count}, needed 1 to {2**16 - 1} GPUs")
        if not self.max_price:
            raise WordUnclear("max_price", 'found 0, needed tokens per GPU-hour, like "1.20"')
        if (found := len(self.excluded_providers)) > _EXCLUDED_MAX:
            raise WordUnclear("exclude_providers", f"found {found}, needed {_EXCLUDED_MAX} at most")
        if self.provider in self.excluded_providers:
            raise WordUnclear(
                "provider", f"found {self.provider}, needed one that is not excluded as well"
            )

    def _alternatives(self) -> Iterator[tuple[list[str], int]]:
        for text in self.gpu_type.split("|"):
            found = _PATTERN.fullmatch(text.strip())
            if found is None:
                raise WordUnclear(
                    "gpu_type",
                    f'found {text!r}, needed a class or a word of one, like "A100" or'
                    ' "A100:80GB.."',
                )
            yield _words(found["name"]), 1024 * int(found["gib"] or 0)

    @property
    def most(self) -> TokenAmount:
        """The most that it can lock: its limit price and the audits' share, rounded up."""
        cap = quote(self.max_price, self.count, self.duration)
        return cap + share_up(cap, self.audit_bps) if self.verified else cap

    @property
    def names(self) -> tuple[str, ...]:
        """The classes asked for, each as its words: what a market can look up."""
        return tuple("-".join(words) for words, _ in self._alternatives())

    def wants(self, gpu_class: GpuClass) -> bool:
        """Whether a class is meant: the words asked for stand in its name, side by side."""
        words = _words(gpu_class)
        return any(
            any(words[at : at + len(asked)] == asked for at in range(len(words)))
            for asked, _ in self._alternatives()
        )

    @property
    def gpu_memory_mib_min(self) -> int:
        """The least memory of one GPU, MiB; 5 % less than named, as cards hold some back."""
        return min(mib for _, mib in self._alternatives()) * 95 // 100

    def terms(self, gpu_class: GpuClass) -> Terms:
        """The constraints that a bid for this class signs."""
        return Terms(
            gpu_classes=(gpu_class,),
            gpu_memory_mib_min=self.gpu_memory_mib_min,
            memory_mib_min=self.memory_mib_min,
            disk_mib_min=self.disk_mib_min,
            cuda_min=self.cuda_min,
            regions=(self.region,) if self.region else (),
            network_classes=(self.network_class,) if self.network_class else (),
            isolation_min=self.isolation,
            simulated_allowed=self.simulated_allowed,
            excluded_providers=self.excluded_providers,
        )


def _words(name: str) -> list[str]:
    return [word for word in _SPLIT.split(name.upper()) if word]


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
) -> LeaseRequest:
    """Read a person's words. Raises `WordUnclear` naming the word, what was found and needed."""
    try:
        least = Isolation(isolation) if isolation else Isolation.PROCESS
    except ValueError as error:
        known = ", ".join(Isolation)
        raise WordUnclear("isolation", f"found {isolation!r}, needed one of {known}") from error
    return LeaseRequest(
        gpu_type=gpu_type,
        count=count,
        max_price=_read("max_price", parse_price, max_price),
        duration=_read("timeout", parse_duration, duration),
        start_timeout=_read("start_timeout", parse_duration, start_timeout),
        isolation=least,
        region=region or "",
        simulated_allowed=simulated_allowed,
        excluded_providers=_read("exclude_providers", _accounts, exclude_providers),
        provider=ZERO_ADDRESS if provider is None else _read("provider", _account, provider),
        verified=verified,
        audit_bps=_read("audit_bps", _audit_share, audit_bps),
    )


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


def products_for(request: LeaseRequest, products: Sequence[Product]) -> tuple[Product, ...]:
    """Products of the classes meant whose slice is the count asked for."""
    return tuple(
        p for p in products if p.slice_gpus == request.count and request.wants(p.gpu_class)
    )


def make_bids(
    request: LeaseRequest,
    products: Sequence[Product],
    market: MarketView,
    purse: Purse,
    *,
    nonce: int,
    at: int,
) -> tuple[SignedBid, ...]:
    """Sign one bid for each product; they share the nonce, so at most one opens.

    `at` is the chain's time in Unix seconds; the bids expire `start_timeout` later.
    """
    start_by = at + request.start_timeout
    bids = []
    for product in products:
        terms = request.terms(product.gpu_class)
        bid = Bid(
            buyer=purse.account,
            product=product.id,
            count=request.count,
            max_price_per_hour=request.max_price,
            duration=request.duration,
            start_by=start_by,
            open_from=start_by,
            provider=request.provider,
            nonce=nonce,
            matcher=market.matcher,
            max_fee_bps=market.fee_bps,
            audit_bps=request.audit_bps if request.verified else BasisPoints(0),
            flags=int(BidFlags.VERIFIED) if request.verified else 0,
            terms=terms.digest,
        )
        bids.append(SignedBid(bid=purse.bid(bid), terms=terms))
    return tuple(bids)
