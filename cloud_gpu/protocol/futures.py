"""Futures: signed orders for GPU time in a later window, and the arithmetic of their margins.

Equal to Futures.sol: the type strings are shared, and MarginLib.sol is held to the same vectors
(tests/vectors/futures.json). A margin rounds up, a part and a forfeit down, so what does not
divide stays with the side that was debited.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.signing import Signed, TypedData
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import Address, Digest, Value, within

FUTURES: Final = "Futures"
"""The contract, also in its EIP-712 domain."""
WINDOWS_S: Final = (3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
"""The lengths that are traded, seconds."""
HORIZON_S: Final = 366 * 24 * 3600
"""How far ahead of a window markets take orders for it."""
UNITS_MAX: Final = 64
"""Machines of one contract, delivered in one transaction; markets take no larger orders."""
_HOUR_S: Final = 3600
_ONE: Final = 10_000


class FuturesRules(Value, frozen=True, kw_only=True):
    """What a deployment of Futures fixes."""

    long_margin: BasisPoints = BasisPoints(1500)
    short_margin: BasisPoints = BasisPoints(2500)
    """Shares of a contract's value."""
    margin_floor: TokenAmount = TokenAmount(1_000_000)
    """The least margin of a contract, base units."""
    lead: int = 24 * 3600
    """Seconds before a window's start: funding and nomination close then."""
    lead_short: int = 6 * 3600
    """The same for windows under a day."""

    def __post_init__(self) -> None:
        shares = (("long_margin", self.long_margin), ("short_margin", self.short_margin))
        for name, share in shares:
            if not 1 <= share.value <= limits.MARGIN_BPS_MAX:
                raise ValueError(
                    f"futures.{name} is 1 to {limits.MARGIN_BPS_MAX} basis points,"
                    f" found {share.value}"
                )
        if self.margin_floor.value > limits.MARGIN_FLOOR_MAX:
            raise ValueError(
                f"futures.margin_floor is 0 to {limits.MARGIN_FLOOR_MAX} base units,"
                f" found {self.margin_floor.value}"
            )
        if not 1 <= self.lead <= limits.FUTURES_LEAD_S_MAX:
            raise ValueError(
                f"futures.lead is 1 to {limits.FUTURES_LEAD_S_MAX} s, found {self.lead}"
            )
        if not 1 <= self.lead_short <= self.lead:
            raise ValueError(
                f"futures.lead_short is 1 to {self.lead} s (futures.lead), found {self.lead_short}"
            )


class Series(Value, frozen=True, kw_only=True):
    """Machines of a product for a window."""

    product: int
    window_start: int
    """Unix seconds, a multiple of the length (UTC; weeks start on Thursdays)."""
    window_seconds: int

    def __post_init__(self) -> None:
        if self.window_seconds not in WINDOWS_S:
            raise ValueError(f"series.window_seconds is one of {WINDOWS_S}")
        if self.window_start % self.window_seconds or not 0 < self.window_start < 2**32:
            raise ValueError(
                f"series.window_start is a multiple of {self.window_seconds} s below 2^32,"
                f" found {self.window_start}"
            )

    @property
    def key(self) -> tuple[int, int, int]:
        """Its place among series: product, start, length."""
        return self.product, self.window_start, self.window_seconds

    @property
    def window_end(self) -> int:
        """Unix seconds."""
        return self.window_start + self.window_seconds

    def touches(self, other: Series) -> bool:
        """Whether no machine can serve both: the lease of one ends when the other's must begin."""
        return self.window_start <= other.window_end and other.window_start <= self.window_end

    def __str__(self) -> str:
        return f"{self.product}/{self.window_start}/{self.window_seconds}"

    def deadline(self, rules: FuturesRules) -> int:
        """Until when its contracts are opened, funded and nominated for, Unix seconds."""
        before = rules.lead_short if self.window_seconds < 24 * 3600 else rules.lead
        return max(0, self.window_start - before)


class FutureOrder(TypedData, frozen=True, kw_only=True):
    """A trader's signed limit for a series, by its own key; opens contracts up to its units."""

    TYPE = (
        "FutureOrder(address trader,bool isBuy,uint32 product,uint32 windowStart,"
        "uint24 windowSeconds,uint16 units,uint64 limitPricePerHour,uint32 startBy,uint32 nonce,"
        "address matcher)"
    )
    trader: Address
    is_buy: bool
    product: int
    window_start: int
    window_seconds: int
    units: int
    """Machines of the product."""
    limit_price_per_hour: Price
    start_by: int
    """Unix seconds after which the order opens no contract."""
    nonce: int
    """Of the account's window, which its bids share."""
    matcher: Address

    def __post_init__(self) -> None:
        within("future_order.product", self.product, 0, 2**32 - 1)
        within("future_order.window_start", self.window_start, 0, 2**32 - 1)
        within("future_order.window_seconds", self.window_seconds, 0, 2**24 - 1)
        within("future_order.units", self.units, 1, limits.GPUS_MAX)
        within("future_order.start_by", self.start_by, 0, 2**32 - 1)
        within("future_order.nonce", self.nonce, 0, 2**32 - 1)
        if not self.limit_price_per_hour:
            raise ValueError("future_order.limit_price_per_hour is above 0")
        if self.matcher.is_zero:
            raise ValueError("future_order.matcher names who may match it, not the zero address")

    @property
    def id(self) -> Digest:
        """Its struct hash."""
        return self.struct_hash()

    @property
    def series(self) -> Series:
        """What it is for. Raises ValueError for a window that is not traded."""
        return Series(
            product=self.product,
            window_start=self.window_start,
            window_seconds=self.window_seconds,
        )


class HeldContract(Value, frozen=True, kw_only=True):
    """A contract before its delivery or end, as Futures keeps it."""

    id: int
    long: Address
    short: Address
    series: Series
    per_hour: TokenAmount
    """A GPU-hour; another market may open at a finer price than a tick."""
    units: int
    long_margin: TokenAmount
    short_margin: TokenAmount
    is_funded: bool
    is_nominated: bool

    def price(self, slice_gpus: int) -> TokenAmount:
        """Of all its leases: what the long locks when it funds."""
        quantity = GpuSeconds(slice_gpus * self.series.window_seconds)
        return TokenAmount(cost_down(self.per_hour, quantity).value * self.units)


class FuturePair(Value, frozen=True, kw_only=True):
    """A long's and a short's order of one series, and the machines of their contract."""

    buy: Signed[FutureOrder]
    sell: Signed[FutureOrder]
    units: int


class Assignment(TypedData, frozen=True, kw_only=True):
    """The joiner's word that it takes over a side of a contract; the leaver sends it."""

    TYPE = (
        "Assignment(uint40 contractId,bool isBuy,address leaver,address joiner,uint64 leaverPays,"
        "uint64 joinerPays,uint32 expiry,uint32 nonce)"
    )
    contract_id: int
    is_buy: bool
    leaver: Address
    joiner: Address
    leaver_pays: TokenAmount
    joiner_pays: TokenAmount
    """What they pay each other beside the margins, which each side has or posts for itself."""
    expiry: int
    """Unix seconds."""
    nonce: int
    """Of the joiner's window."""

    def __post_init__(self) -> None:
        within("assignment.contract_id", self.contract_id, 0, 2**40 - 1)
        within("assignment.leaver_pays", self.leaver_pays.value, 0, 2**64 - 1)
        within("assignment.joiner_pays", self.joiner_pays.value, 0, 2**64 - 1)
        within("assignment.expiry", self.expiry, 0, 2**32 - 1)
        within("assignment.nonce", self.nonce, 0, 2**32 - 1)


def margin(
    price: Price,
    *,
    gpus: int,
    units: int,
    window_s: int,
    share: BasisPoints,
    floor: TokenAmount,
) -> TokenAmount:
    """A side's margin: max(floor, ceil(price * gpus * units * hours * share))."""
    exact = price.value * gpus * units * window_s * share.value
    return TokenAmount(max(floor.value, -(-exact // (_HOUR_S * _ONE))))


def part(amount: TokenAmount, units: int) -> TokenAmount:
    """What of a margin stands behind one unit: floor(amount / units)."""
    return TokenAmount(amount.value // units)


def forfeit(amount: TokenAmount, *, left_s: int, window_s: int) -> TokenAmount:
    """What the side that broke a unit's lease loses of its part, with `left_s` of it left."""
    return TokenAmount(amount.value * min(left_s, window_s) // window_s)
