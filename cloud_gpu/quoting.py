"""What a market lists beside what a person wants: what fits, at what price, and if nothing, why.

The nearest change is named in the words that were given. What a market lists is taken as a hint
here; what a lease is really like is checked when its node offers it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloud_gpu.bidding import LeaseRequest
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.orders import Ask, AskFlags, SignedAdvert
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import TokenAmount, format_duration, format_tokens
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Value
from cloud_gpu.spending import quote


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
    views.sort(key=lambda view: _change_needed(request, view))
    fitting = tuple(view for view in views if not view.unmet)
    if fitting:
        return Quote(fitting=fitting, nearest=None, blocking=None)
    meant = [view for view in views if request.query.wants(view.product.gpu_class)]
    if not meant:
        return Quote(fitting=(), nearest=None, blocking=_no_such_class(request, views, products))
    return Quote(fitting=(), nearest=meant[0], blocking=meant[0].unmet[0])


def _change_needed(request: LeaseRequest, view: AskView) -> tuple[int, int, int, int, Address, int]:
    """Sorts asks: by unmet limits, how far off the count is (of two, the more), the cost."""
    gpus, ask = view.product.slice_gpus, view.ask
    off = abs(gpus - request.count)
    return len(view.unmet), off, -gpus, view.cost.value, ask.provider, ask.index


def _no_such_class(
    request: LeaseRequest, views: Sequence[AskView], products: Sequence[Product]
) -> Rejection:
    listed = sorted({f"{view.product.slice_gpus}x {view.product.gpu_class}" for view in views})
    known = [p for p in products if request.query.wants(p.gpu_class)]
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
    if not request.query.wants(product.gpu_class):
        yield _no("gpu_type", product.gpu_class, request.gpu_type, "Ask for this class.")
    if not request.counts(product.slice_gpus):
        gpus = product.slice_gpus
        several = " or let several machines make it up by a scope" if request.scope is None else ""
        yield _no(
            "count",
            f"machines of {gpus} GPUs",
            f"machines of {request.count}",
            f"Ask for count={gpus}{several if request.count % gpus == 0 else ''}.",
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
    if request.provider not in (ZERO_ADDRESS, ask.provider):
        yield _no(
            "provider",
            f"an ask of {ask.provider}",
            f"one of {request.provider}",
            "Leave the provider open, or wait until this one asks.",
        )
    profile = advert.body.profile
    if profile.gpu_class != product.gpu_class:
        yield _no("profile.gpu_class", profile.gpu_class, product.gpu_class, "Ask for another.")
    else:
        terms = request.terms(product.gpu_class)
        for unmet in terms.all_unmet_by(profile, ask.provider):
            yield _short_of(unmet, ask.provider)
        found, need = min(gpu.memory_mib for gpu in profile.gpus), terms.gpu_memory_need_mib
        if found < need:  # without a market's margin
            yield _short_of(f"gpu_memory_need_mib: found {found}, needed {need}", ask.provider)
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
    if ask.flags & AskFlags.INTERRUPTIBLE and not request.interruptible:
        yield _no(
            "interruptible", "an interruptible machine", "one that is not", "Accept interruption."
        )
    if ask.start_by <= at:
        yield _no("ask.start_by", f"an ask that ended at {ask.start_by}", f"after {at}", "Wait.")


def _short_of(unmet: str, provider: Address) -> Rejection:
    """What the terms say of a machine, as a rejection."""
    field, _, text = unmet.partition(": ")
    if field == "excluded_providers":
        return _no(
            "exclude_providers",
            f"an ask of {provider}, which is excluded",
            "another provider's",
            "Exclude fewer providers, or wait for another one.",
        )
    found, _, needed = text.removeprefix("found ").partition(", needed ")
    return _no(field, found, needed, f"Ask for less of {field}, or wait for another provider.")


def _no(field: str, found: str, needed: str, change: str) -> Rejection:
    return Rejection(
        reason=RejectReason.NO_MATCH, field=field, found=found, needed=needed, next=change
    )
