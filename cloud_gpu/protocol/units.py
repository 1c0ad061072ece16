"""Money, prices, quantities and time: integers with their unit in the type, and their rounding.

`cost_down` is the rounding of everything locked, accrued or paid (Solidity floors too); `cost_up`
is only what a person is quoted; penalties alone round up. What the contracts divide by rules of
their own is divided in `settlement` and `futures`, as they do it.
"""

from __future__ import annotations

import re
from typing import ClassVar, Self, TypeAlias

from cloud_gpu.protocol import limits

Instant: TypeAlias = int
"""A party's clock: Unix milliseconds."""

_SECONDS_PER_HOUR = 3600


class Quantity:
    """A bounded non-negative integer of one unit; only equal units add, subtract or compare."""

    __slots__ = ("value",)
    MAX: ClassVar[int]

    value: int

    def __init__(self, value: int) -> None:
        if type(value) is not int:
            raise ValueError(f"{type(self).__name__} is a whole number, found {value!r}")
        if not 0 <= value <= self.MAX:
            raise ValueError(f"{type(self).__name__} is 0 to {self.MAX}, found {value}")
        object.__setattr__(self, "value", value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name}")

    def _same(self, other: object) -> int:
        if type(other) is not type(self):
            raise TypeError(f"{type(self).__name__} and {type(other).__name__} do not mix")
        return other.value

    def __add__(self, other: Self) -> Self:
        return type(self)(self.value + self._same(other))

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.value - self._same(other))

    def __lt__(self, other: Self) -> bool:
        return self.value < self._same(other)

    def __le__(self, other: Self) -> bool:
        return self.value <= self._same(other)

    def __gt__(self, other: Self) -> bool:
        return self.value > self._same(other)

    def __ge__(self, other: Self) -> bool:
        return self.value >= self._same(other)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.value))

    def __bool__(self) -> bool:
        return self.value != 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self.value,)


class TokenAmount(Quantity):
    """Payment token, in base units (10^-6 token)."""

    __slots__ = ()
    MAX = limits.AMOUNT_MAX


class Price(Quantity):
    """Base units per GPU-hour, a multiple of the tick."""

    __slots__ = ()
    MAX = limits.PRICE_MAX

    def __init__(self, value: int) -> None:
        super().__init__(value)
        if value % limits.PRICE_TICK:
            raise ValueError(
                f"Price is a multiple of {limits.PRICE_TICK} base units, found {value}"
            )


class GpuSeconds(Quantity):
    """GPUs times seconds."""

    __slots__ = ()
    MAX = limits.GPU_SECONDS_MAX


class BasisPoints(Quantity):
    """Hundredths of a percent; above 10,000 only where a share may exceed the whole."""

    __slots__ = ()
    MAX = 65_535


ZERO_TOKENS = TokenAmount(0)


def price_down(per_hour: int) -> Price:
    """A price that a rule found, base units a GPU-hour: the tick at or below it."""
    return Price(per_hour // limits.PRICE_TICK * limits.PRICE_TICK)


def total(amounts: list[TokenAmount]) -> TokenAmount:
    """The sum of amounts, base units."""
    return TokenAmount(sum(amount.value for amount in amounts))


def cost_down(price: Price | TokenAmount, quantity: GpuSeconds) -> TokenAmount:
    """What is locked or paid for a quantity, rounded down: floor(price * GPU-seconds / 3600).

    A `TokenAmount` is a price of a GPU-hour that is finer than a tick.
    """
    return TokenAmount(price.value * quantity.value // _SECONDS_PER_HOUR)


def cost_up(price: Price, quantity: GpuSeconds) -> TokenAmount:
    """What a person is quoted, rounded up so that the bill never exceeds the quote."""
    return TokenAmount(-(-price.value * quantity.value // _SECONDS_PER_HOUR))


def per_hour_down(amount: TokenAmount, quantity: GpuSeconds) -> TokenAmount:
    """What a GPU-hour cost, where this was paid for a quantity: floor(amount * 3600 / quantity)."""
    return TokenAmount(amount.value * _SECONDS_PER_HOUR // quantity.value)


def share_down(amount: TokenAmount, share: BasisPoints) -> TokenAmount:
    """A fee: floor(amount * share / 10,000)."""
    return TokenAmount(amount.value * share.value // limits.BASIS_POINTS_ONE)


def share_up(amount: TokenAmount, share: BasisPoints) -> TokenAmount:
    """A penalty or a bond requirement: ceil(amount * share / 10,000)."""
    return TokenAmount(-(-amount.value * share.value // limits.BASIS_POINTS_ONE))


def unix_seconds(now: Instant) -> int:
    """A party's milliseconds as the chain's whole seconds, rounded down."""
    return now // 1000


def instant(at_s: int) -> Instant:
    """The chain's seconds as a party's milliseconds."""
    return at_s * 1000


_DECIMAL = re.compile(r"(\d{1,13})(?:\.(\d{1,18}))?", re.ASCII)
_WORD = re.compile(r"(\d+)([dhms])", re.ASCII)
_WORD_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse_tokens(text: str) -> TokenAmount:
    """Read "1.20" tokens exactly; raises ValueError (not a decimal, too many digits)."""
    return TokenAmount(_base_units(text, "an amount of tokens"))


def parse_price(text: str) -> Price:
    """Read "1.20" tokens per GPU-hour exactly; raises ValueError (not a decimal, off the tick)."""
    units = _base_units(text, "a price")
    if units % limits.PRICE_TICK:
        raise ValueError(f"a price has at most 3 digits after the point, found {text!r}")
    return Price(units)


def _base_units(text: str, what: str) -> int:
    found = _DECIMAL.fullmatch(text.strip())
    if found is None:
        raise ValueError(f'{what} is written like "1.20", found {text!r}')
    whole, fraction = found.group(1), found.group(2) or ""
    kept, rest = fraction[: limits.TOKEN_DECIMALS], fraction[limits.TOKEN_DECIMALS :]
    if rest.strip("0"):
        raise ValueError(
            f"{what} has at most {limits.TOKEN_DECIMALS} digits after the point, found {text!r}"
        )
    return int(whole) * 10**limits.TOKEN_DECIMALS + int(kept.ljust(limits.TOKEN_DECIMALS, "0"))


def format_tokens(amount: TokenAmount | Price | int, digits_min: int = 2) -> str:
    """Write base units as a decimal string of tokens, with no digit lost: 1200000 is "1.20"."""
    units = amount if isinstance(amount, int) else amount.value
    sign, units = ("-", -units) if units < 0 else ("", units)
    whole, fraction = divmod(units, 10**limits.TOKEN_DECIMALS)
    digits = f"{fraction:0{limits.TOKEN_DECIMALS}d}"
    kept = digits.rstrip("0").ljust(digits_min, "0")
    return f"{sign}{whole}.{kept}"


def parse_duration(word: str | int) -> int:
    """Seconds of "2h", "90s", "1h30m", "1d" or a plain number of seconds; raises ValueError."""
    if isinstance(word, int):
        seconds = word
    elif word.isascii() and word.strip().isdigit():
        seconds = int(word)
    else:
        text = word.strip().lower()
        parts = _WORD.findall(text)
        if not parts or "".join(n + unit for n, unit in parts) != text:
            raise ValueError(f'a duration is written like "2h", "90s" or "1h30m", found {word!r}')
        seconds = sum(int(n) * _WORD_SECONDS[unit] for n, unit in parts)
    if not 0 < seconds <= limits.DURATION_S_MAX:
        raise ValueError(f"a duration is 1 s to {limits.DURATION_S_MAX} s, found {seconds} s")
    return seconds


def format_duration(seconds: int) -> str:
    """Seconds as a word: 5400 is "1h30m"."""
    words = []
    for unit, size in _WORD_SECONDS.items():
        count, seconds = divmod(seconds, size)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words) or "0s"
