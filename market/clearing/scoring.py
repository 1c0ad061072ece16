"""Which of several machines that fit is the best for a bid: an integer, the less the better.

It counts what the price does not say: how far apart a gang's machines are, how late they start,
what their energy costs or emits. Weights come from the terms that the bid signed, facts from the
market's attribute table. Nobody is ever paid by a score.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.orders import Scope
from market.attributes import Attributes
from market.books.book import RestingAsk, RestingBid

_HOUR_S, _GRAMS = 3_600, 1_000
_SCALE = limits.BASIS_POINTS_ONE**2 * _GRAMS * _GRAMS
"""A score is exact: nothing is divided, so that doubling all prices changes no order."""


def is_by_price(bid: RestingBid, table: Attributes) -> bool:
    """Whether one machine scores for this bid as its price does: then the first fit is the best."""
    terms = bid.terms
    return not (table.tiers or terms.electricity_weight or terms.carbon_price)


def score(
    bid: RestingBid,
    ask: RestingAsk,
    table: Attributes,
    *,
    at: int,
    spread: Scope = Scope.NODE,
) -> int:
    """What one machine counts for: its share of the bid's cost, and what the terms add to it.

    The unit is base units / (3,600 x _SCALE), the same for all machines of one bid, and a gang's
    score is the sum over its machines; `spread` is how far apart they are. `at`: Unix seconds,
    when the lease would start.

    price x (duration x locality + start delay) x GPUs
      + GPUs x kW x PUE x seconds x (weight x price of electricity + price of carbon x intensity)
    """
    payload, profile = ask.ask.payload, ask.advert.body.profile
    duration, gpus = bid.bid.payload.duration, len(profile.gpus)
    seconds = duration * _locality(bid, table, spread)
    seconds += table.start_delay_s(payload.provider) * limits.BASIS_POINTS_ONE**2
    money = payload.min_price_per_hour.value * seconds * gpus * _GRAMS * _GRAMS
    return money + gpus * _energy(bid, ask, table, at)


def _locality(bid: RestingBid, table: Attributes, spread: Scope) -> int:
    """In units of 10^-8: 1, and above it for the share of the time that goes to communication."""
    one = limits.BASIS_POINTS_ONE
    factor = {Scope.NODE: one, Scope.FABRIC: table.fabric.value}.get(spread, table.apart.value)
    return one * one + (factor - one) * bid.terms.communication.value


def _energy(bid: RestingBid, ask: RestingAsk, table: Attributes, at: int) -> int:
    """Of one GPU for the whole lease, scaled like the rest of the score."""
    terms, profile = bid.terms, ask.advert.body.profile
    site = table.site(profile.region)
    if site is None or not (terms.electricity_weight or terms.carbon_price):
        return 0
    until = at + bid.bid.payload.duration
    # watts x seconds x base units per kWh is 1/1000 base unit-seconds per hour.
    paid = _over(site.electricity, at, until) * terms.electricity_weight.value * _GRAMS
    emitted = _over(site.carbon, at, until) * terms.carbon_price.value * limits.BASIS_POINTS_ONE
    return table.watts(profile.gpu_class) * site.pue.value * (paid + emitted)


def _over(values: Sequence[int], begins: int, ends: int) -> int:
    """Sum over the seconds, where `values` are those of the day's hours (UTC), or one for all."""
    if len(values) == 1:
        return values[0] * (ends - begins)
    days, left = divmod(ends - begins, _HOUR_S * len(values))
    whole, at, ends = days * _HOUR_S * sum(values), begins, begins + left
    while at < ends:
        until = min(ends, at - at % _HOUR_S + _HOUR_S)
        whole += (until - at) * values[at // _HOUR_S % len(values)]
        at = until
    return whole
