"""From what a person wants to signed bids: which products fit, at what price, and if none, why.

The nearest change is named in the words that were given. What a market lists is taken as a hint
here; what a lease is really like is checked when its node offers it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.hardware import GpuClass, Isolation
from cloud_gpu.protocol.orders import (
    Ask,
    AskFlags,
    Bid,
    BidFlags,
    SignedAdvert,
    SignedBid,
    Terms,
)
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import (
    BasisPoints,
    Price,
    TokenAmount,
    format_duration,
    format_tokens,
    parse_duration,
    parse_price,
    share_up,
)
from cloud_gpu.protocol.values import Address, Value
from cloud_gpu.spending import Purse, quote

WordT = TypeVar("WordT")
ReadT = TypeVar("ReadT")

_PATTERN = re.compile(r"(?P<name>[^:]+)(?::(?P<gib>\d+)\s*(?:GB|GiB)?(?:\.\.)?)?", re.IGNORECASE)
_SPLIT = re.compile(r"[^A-Z0-9]+")


AUDIT_SHARE: Final = BasisPoints(700)
"""Pays one audit in twenty, with room."""


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
    verified: bool = False
    """Pay is held until the results were audited."""
    audit_bps: BasisPoints = AUDIT_SHARE
    """Of the pay, on top of it, to the audits; for verified leases."""

    def __post_init__(self) -> None:
        if not self.gpu_type.strip():
            raise ValueError('gpu_type: found nothing, needed a GPU class or a word of one: "A100"')
        list(self._alternatives())
        if not 0 < self.count < 2**16:
            raise ValueError(f"count: found {self.count}, needed 1 to {2**16 - 1} GPUs")
        if not self.max_price:
            raise ValueError('max_price: found 0, needed tokens per GPU-hour, like "1.20"')

    def _alternatives(self) -> Iterator[tuple[list[str], int]]:
        for text in self.gpu_type.split("|"):
            found = _PATTERN.fullmatch(text.strip())
            if found is None:
                raise ValueError(
                    f'gpu_type: found {text!r}, needed a class or a word of one, like "A100" or'
                    ' "A100:80GB.."'
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
) -> LeaseRequest:
    """Read a person's words. Raises ValueError naming the word, what was found and needed."""
    try:
        least = Isolation(isolation) if isolation else Isolation.PROCESS
    except ValueError as error:
        known = ", ".join(Isolation)
        raise ValueError(f"isolation: found {isolation!r}, needed one of {known}") from error
    return LeaseRequest(
        gpu_type=gpu_type,
        count=count,
        max_price=_read("max_price", parse_price, max_price),
        duration=_read("timeout", parse_duration, duration),
        start_timeout=_read("start_timeout", parse_duration, start_timeout),
        isolation=least,
        region=region or "",
        simulated_allowed=simulated_allowed,
        verified=verified,
        audit_bps=_read("audit_bps", _audit_share, audit_bps),
    )


def _audit_share(found: int) -> BasisPoints:
    if not 0 <= found <= limits.AUDIT_BPS_MAX:
        raise ValueError(f"found {found}, needed 0 to {limits.AUDIT_BPS_MAX}")
    return BasisPoints(found)


def _read(name: str, parse: Callable[[WordT], ReadT], word: WordT) -> ReadT:
    try:
        return parse(word)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


class AskView(Value, frozen=True, kw_only=True):
    """One listed ask beside a request: what it would cost, and what of it does not fit."""

    advert: SignedAdvert
    product: Product
    cost: TokenAmount
    """Of the whole request at the ask's price, rounded up."""
    unmet: tuple[Rejection, ...] = ()

    @property
    def ask(self) -> Ask:
        """The ask itself."""
        return self.advert.body.ask.payload


class Quote(Value, frozen=True, kw_only=True):
    """What a market has for a request now. Binds nobody."""

    fitting: tuple[AskView, ...]
    """Asks that meet everything, cheapest first."""
    nearest: AskView | None
    """Where none fits: the ask that needs the least change."""
    blocking: Rejection | None
    """Where none fits: the limit in the way, and what to change."""


def products_for(request: LeaseRequest, products: Sequence[Product]) -> tuple[Product, ...]:
    """Products of the classes meant whose slice is the count asked for."""
    return tuple(
        p for p in products if p.slice_gpus == request.count and request.wants(p.gpu_class)
    )


def look_up(
    request: LeaseRequest, products: Sequence[Product], adverts: Sequence[SignedAdvert], at: int
) -> Quote:
    """Compare a request with what a market lists; `at` in Unix seconds."""
    by_id = {product.id: product for product in products}
    views = [
        _view(request, advert, by_id[product], at)
        for advert in adverts
        if (product := advert.body.ask.payload.product) in by_id
    ]
    views.sort(key=lambda v: (len(v.unmet), v.cost.value, v.ask.provider, v.ask.index))
    fitting = tuple(view for view in views if not view.unmet)
    if fitting:
        return Quote(fitting=fitting, nearest=None, blocking=None)
    meant = [view for view in views if request.wants(view.product.gpu_class)]
    if not meant:
        return Quote(fitting=(), nearest=None, blocking=_no_such_class(request, views, products))
    return Quote(fitting=(), nearest=meant[0], blocking=meant[0].unmet[0])


def _no_such_class(
    request: LeaseRequest, views: Sequence[AskView], products: Sequence[Product]
) -> Rejection:
    listed = sorted({f"{view.product.slice_gpus}x {view.product.gpu_class}" for view in views})
    known = [p for p in products if request.wants(p.gpu_class)]
    return Rejection(
        reason=RejectReason.NO_MATCH,
        field="gpu_type",
        found=", ".join(listed) or "an empty book",
        needed=f"{request.count}x {request.gpu_type}",
        next=(
            "Wait for a provider of this class, or ask for one that is listed."
            if known or not listed
            else "Ask for a class that is listed; `cloud-gpu ls` shows all asks."
        ),
    )


def _view(request: LeaseRequest, advert: SignedAdvert, product: Product, at: int) -> AskView:
    ask = advert.body.ask.payload
    return AskView(
        advert=advert,
        product=product,
        cost=quote(ask.min_price_per_hour, request.count, request.duration),
        unmet=tuple(_unmet(request, advert, product, at)),
    )


def _unmet(
    request: LeaseRequest, advert: SignedAdvert, product: Product, at: int
) -> Iterator[Rejection]:
    ask = advert.body.ask.payload
    if not request.wants(product.gpu_class):
        yield _no("gpu_type", product.gpu_class, request.gpu_type, "Ask for this class.")
    if product.slice_gpus != request.count:
        yield _no(
            "count",
            f"machines of {product.slice_gpus} GPUs",
            f"machines of {request.count}",
            f"Ask for count={product.slice_gpus}.",
        )
    if not ask.min_duration <= request.duration <= ask.max_duration:
        low, high = format_duration(ask.min_duration), format_duration(ask.max_duration)
        near = low if request.duration < ask.min_duration else high
        yield _no(
            "timeout",
            f"leases of {low} to {high}",
            format_duration(request.duration),
            f'Ask for timeout="{near}".',
        )
    profile = advert.body.profile
    if profile.gpu_class != product.gpu_class:
        yield _no("profile.gpu_class", profile.gpu_class, product.gpu_class, "Ask for another.")
    elif unmet := request.terms(product.gpu_class).unmet_by(profile, ask.provider):
        field, _, text = unmet.partition(": ")
        found, _, needed = text.removeprefix("found ").partition(", needed ")
        yield _no(field, found, needed, f"Ask for less of {field}, or wait for another provider.")
    if ask.min_price_per_hour > request.max_price:
        price = format_tokens(ask.min_price_per_hour)
        yield _no(
            "max_price",
            f"asks from {price} tokens per GPU-hour",
            f"at most {format_tokens(request.max_price)}",
            f'Bid at least max_price="{price}".',
        )
    if request.verified and not ask.flags & product.flags & AskFlags.VERIFIED:
        yield _no("verified", "asks whose results nobody audits", "verified", "Do without audits.")
    if ask.start_by <= at:
        yield _no("ask.start_by", f"an ask that ended at {ask.start_by}", f"after {at}", "Wait.")


def _no(field: str, found: str, needed: str, change: str) -> Rejection:
    return Rejection(
        reason=RejectReason.NO_MATCH, field=field, found=found, needed=needed, next=change
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
            nonce=nonce,
            matcher=market.matcher,
            max_fee_bps=market.fee_bps,
            audit_bps=request.audit_bps if request.verified else BasisPoints(0),
            flags=int(BidFlags.VERIFIED) if request.verified else 0,
            terms=terms.digest,
        )
        bids.append(SignedBid(bid=purse.bid(bid), terms=terms))
    return tuple(bids)
