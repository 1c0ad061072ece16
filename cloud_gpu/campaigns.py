"""From a person's words to a campaign: product, price, how many machines, until when."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.bidding import WordUnclear
from cloud_gpu.moments import read_moment
from cloud_gpu.protocol import limits
from cloud_gpu.protocol.group_buy import (
    ANY_PROVIDER,
    CAMPAIGN_S_MAX,
    PROVIDERS_MAX,
    SLICES_MAX,
    Campaign,
    CampaignOffer,
    providers_hash,
)
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import (
    Price,
    format_duration,
    format_tokens,
    parse_duration,
    parse_price,
)
from cloud_gpu.protocol.utc import format_utc
from cloud_gpu.protocol.values import Address


def campaign_wish(
    *,
    organiser: Address,
    product: Product,
    market_id: int,
    price: str,
    duration: str | int,
    goal: int,
    deadline: str,
    start: str = "",
    providers: Sequence[str] = (),
    at: int,
) -> CampaignOffer:
    """Read a person's words; `at` is the chain's time, Unix seconds.

    `start` (when its leases may open at the earliest; empty: at once) and `deadline` are UTC times
    or durations from now. Raises `WordUnclear` naming the word, what was found and needed.
    """
    named = _providers(providers)
    if not 1 <= goal <= SLICES_MAX:
        raise WordUnclear("goal", f"found {goal}, needed 1 to {SLICES_MAX} machines")
    closes = read_moment("deadline", deadline, at)
    opens = read_moment("start", start, at) if start else at
    _require_times(opens, closes, at)
    campaign = Campaign(
        organiser=organiser,
        product=product.id,
        price_per_hour=_read_price(price),
        duration=_read_duration(duration),
        goal=goal,
        window_start=opens,
        deadline=closes,
        market_id=market_id,
        providers_hash=providers_hash(named) if named else ANY_PROVIDER,
    )
    cost = campaign.cost(product.slice_gpus)
    if not 1 <= cost.value <= limits.LEASE_CAP_MAX:
        raise WordUnclear(
            "price",
            f"found a lease of {format_tokens(cost)} tokens, needed 0.000001 to"
            f" {format_tokens(limits.LEASE_CAP_MAX)}",
        )
    return CampaignOffer(campaign=campaign, providers=named)


def _read_price(word: str) -> Price:
    try:
        return parse_price(word)
    except ValueError as error:
        raise WordUnclear("price", str(error)) from error


def _read_duration(word: str | int) -> int:
    try:
        return parse_duration(word)
    except ValueError as error:
        raise WordUnclear("duration", str(error)) from error


def _require_times(opens: int, closes: int, at: int) -> None:
    last = at + CAMPAIGN_S_MAX
    if not at < closes <= last:
        most = format_duration(CAMPAIGN_S_MAX)
        raise WordUnclear(
            "deadline",
            f"found {format_utc(closes)}, needed one after {format_utc(at)} and by"
            f" {format_utc(last)}: no pledge is locked for longer than {most}",
        )
    if opens > closes:
        raise WordUnclear(
            "start",
            f"found {format_utc(opens)}, needed the deadline, {format_utc(closes)}, or less",
        )


def _providers(words: Sequence[str]) -> tuple[Address, ...]:
    if len(words) > PROVIDERS_MAX:
        raise WordUnclear("provider", f"found {len(words)}, needed {PROVIDERS_MAX} at most")
    try:
        return tuple(dict.fromkeys(Address.parse(word) for word in words))
    except ValueError as error:
        raise WordUnclear("provider", str(error)) from error
