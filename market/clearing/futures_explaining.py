"""What a batch of lane C tells a trader: what keeps an order from a contract, and why its price.

Of the other side it names what the series' depth shows anyway: limits, and how many.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.match import Explanation, Obstruction
from cloud_gpu.protocol.units import Price, format_tokens
from cloud_gpu.protocol.values import Address
from market.books.futures_book import RestingFuture
from market.clearing.futures_clearing import FutureClearing

_LIMIT = "future_order.limit_price_per_hour"


class BatchTold:
    """One series' batch, asked about by each of its orders."""

    def __init__(
        self,
        orders: Sequence[RestingFuture],
        clearing: FutureClearing | None,
        reference: Price | None,
    ) -> None:
        """`reference` is the series' last price."""
        self._clearing, self._reference = clearing, reference
        self._offers = {
            is_buy: sorted(
                (o.limit.value, o.nonce[0]) for o in orders if o.order.payload.is_buy is is_buy
            )
            for is_buy in (True, False)
        }
        self._limits = {
            is_buy: [limit for limit, _ in offers] for is_buy, offers in self._offers.items()
        }
        pairs = () if clearing is None else clearing.pairs
        self._units = sum(pair.units for pair in pairs)
        self._least_buy = min((pair.buy.limit.value for pair in pairs), default=0)
        self._most_sell = max((pair.sell.limit.value for pair in pairs), default=0)
        reached = {True: 0, False: 0}
        for order in orders if clearing is not None else ():
            reached[order.order.payload.is_buy] += order.units if self._reaches(order) else 0
        self._are_all_served = {side: units == self._units for side, units in reached.items()}

    def why_left(self, order: RestingFuture) -> tuple[Rejection, Explanation]:
        """Why no unit of it traded, and the smallest change of its limit that would have."""
        others, own = self._limits[not order.order.payload.is_buy], order.limit.value
        met = (
            bisect_right(others, own)
            if order.order.payload.is_buy
            else len(others) - bisect_left(others, own)
        )
        apart = len(others) - met
        change = self._change(order)
        how = Explanation(
            asks=len(others),
            obstructions=(Obstruction(field=_LIMIT, asks=apart, alone=apart),) if apart else (),
            taken=met,
            change=change,
        )
        return self._rejection(order, change), how

    def why_price(self, order: RestingFuture) -> Explanation:
        """Of an order that trades."""
        assert self._clearing is not None, order.id
        price, limit = format_tokens(self._clearing.price), format_tokens(order.limit)
        nearest = "nearest to the last" if self._reference is not None else "in the middle"
        machines = "1 machine trades" if self._units == 1 else f"{self._units} machines trade"
        return Explanation(
            asks=len(self._limits[not order.order.payload.is_buy]),
            price=(
                f"{machines} in this batch, all at {price} (the limit was {limit}): no price lets"
                " more change hands; of those that let as many, it leaves least over, and then is"
                f" {nearest}."
            ),
        )

    def _reaches(self, order: RestingFuture) -> bool:
        assert self._clearing is not None, order.id
        price = self._clearing.price
        return order.limit >= price if order.order.payload.is_buy else order.limit <= price

    def _change(self, order: RestingFuture) -> str:
        is_buy = order.order.payload.is_buy
        if not self._limits[not is_buy]:
            return ""
        if self._clearing is None:
            wanted = self._nearest(order)
        else:
            # Whoever reaches the price has what the other side has left; else somebody must yield.
            wanted = self._clearing.price.value
            if self._are_all_served[not is_buy] and is_buy:
                wanted = max(wanted, self._least_buy + limits.PRICE_TICK)
            elif self._are_all_served[not is_buy]:
                wanted = min(wanted, self._most_sell - limits.PRICE_TICK)
        if wanted <= 0 or wanted > limits.PRICE_MAX:
            return ""
        return f"{'Raise' if is_buy else 'Lower'} the limit to {format_tokens(Price(wanted))}."

    def _nearest(self, order: RestingFuture) -> int:
        """The best limit of the other side but the trader's own, whom it must not meet; 0: none."""
        offers = self._offers[not order.order.payload.is_buy]
        best_first: Iterable[tuple[int, Address]] = offers
        if not order.order.payload.is_buy:
            best_first = reversed(offers)
        return next((limit for limit, trader in best_first if trader != order.nonce[0]), 0)

    def _rejection(self, order: RestingFuture, change: str) -> Rejection:
        reason, field, found = RejectReason.NO_MATCH, _LIMIT, format_tokens(order.limit)
        if self._clearing is None:
            needed = "an order of the other side whose limit meets it"
        elif not self._reaches(order):
            side = "more" if order.order.payload.is_buy else "less"
            price = format_tokens(self._clearing.price)
            needed = f"{price}, at which the batch cleared, or {side}"
            reason = RejectReason.PRICE_OUTSIDE_LIMITS
        else:
            field = "future_order.units"
            found = "better entitled orders for everything on the other side"
            needed = "a better limit, or an older batch"
        next_ = f"{change} Or wait." if change else "Wait for an order of the other side."
        return Rejection(reason=reason, field=field, found=found, needed=needed, next=next_)
