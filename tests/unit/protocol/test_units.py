"""Quantities keep their unit, and money is rounded in one direction only."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol import limits, units
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount

prices = st.integers(0, limits.PRICE_MAX // limits.PRICE_TICK).map(
    lambda ticks: Price(ticks * limits.PRICE_TICK)
)
quantities = st.integers(0, 65_535 * 3600).map(GpuSeconds)


@pytest.mark.parametrize("step", [operator.add, operator.sub, operator.lt, operator.le])
def test_quantities_when_units_differ_then_do_not_mix(
    step: Callable[[object, object], object],
) -> None:
    with pytest.raises(TypeError, match="do not mix"):
        step(TokenAmount(2), GpuSeconds(1))
    with pytest.raises(TypeError):
        step(TokenAmount(2), 1)


def test_quantities_when_equal_numbers_of_other_unit_then_not_equal() -> None:
    assert TokenAmount(1) != GpuSeconds(1)
    assert TokenAmount(1) != 1
    assert len({TokenAmount(1), GpuSeconds(1), TokenAmount(1)}) == 2


@pytest.mark.parametrize("wrong", [-1, limits.AMOUNT_MAX + 1, 1.0, True, "1", None])
def test_amount_when_not_a_whole_number_in_range_then_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="TokenAmount"):
        TokenAmount(wrong)  # type: ignore[arg-type]


def test_subtraction_when_below_zero_then_refused() -> None:
    with pytest.raises(ValueError, match="found -1"):
        TokenAmount(1) - TokenAmount(2)


def test_price_when_off_the_tick_then_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 1000"):
        Price(1_200_001)


def test_quantity_when_assigned_then_refused() -> None:
    with pytest.raises(AttributeError):
        TokenAmount(1).value = 2


@given(prices, quantities)
def test_cost_when_rounded_then_quote_is_at_most_one_unit_above_pay(
    price: Price, quantity: GpuSeconds
) -> None:
    exact = price.value * quantity.value
    down, up = units.cost_down(price, quantity).value, units.cost_up(price, quantity).value
    assert down * 3600 <= exact <= up * 3600
    assert up - down == (exact % 3600 != 0)


@given(st.integers(0, 2**48), st.integers(0, 65_535))
def test_share_when_rounded_then_fee_floors_and_penalty_ceils(amount: int, bps: int) -> None:
    down = units.share_down(TokenAmount(amount), BasisPoints(bps)).value
    up = units.share_up(TokenAmount(amount), BasisPoints(bps)).value
    assert down * 10_000 <= amount * bps <= up * 10_000
    assert up - down == (amount * bps % 10_000 != 0)


@pytest.mark.parametrize(
    ("text", "base_units"),
    [
        ("1.20", 1_200_000),
        ("0.001", 1_000),
        ("3", 3_000_000),
        ("0", 0),
        ("1.2000000000", 1_200_000),
    ],
)
def test_price_when_written_as_decimal_then_read_exactly(text: str, base_units: int) -> None:
    assert units.parse_price(text) == Price(base_units)


@pytest.mark.parametrize(
    "text", ["", "1,20", "-1", "1e3", "0x10", "1.2.3", "NaN", "\u0661", "1.0001", "9" * 14]
)
def test_price_when_no_plain_decimal_or_too_fine_then_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"price|Price"):
        units.parse_price(text)


def test_tokens_when_finer_than_a_base_unit_then_refused() -> None:
    with pytest.raises(ValueError, match="at most 6 digits"):
        units.parse_tokens("0.0000001")


@given(st.integers(0, limits.AMOUNT_MAX))
def test_tokens_when_formatted_and_parsed_then_unchanged(base_units: int) -> None:
    amount = TokenAmount(base_units)
    if base_units < 10**19:
        assert units.parse_tokens(units.format_tokens(amount)) == amount


def test_tokens_when_formatted_then_two_digits_at_least_and_sign_kept() -> None:
    assert units.format_tokens(TokenAmount(1_200_000)) == "1.20"
    assert units.format_tokens(TokenAmount(1)) == "0.000001"
    assert units.format_tokens(-2_500_000) == "-2.50"


@pytest.mark.parametrize(
    ("word", "seconds"),
    [("2h", 7200), ("90s", 90), ("1h30m", 5400), ("1d", 86_400), (" 45 ", 45), (60, 60)],
)
def test_duration_when_a_word_or_seconds_then_read(word: str | int, seconds: int) -> None:
    assert units.parse_duration(word) == seconds


@pytest.mark.parametrize("word", ["", "0", "h", "1.5h", "2 h", "10x", "-1", -5, "9999999d"])
def test_duration_when_no_duration_then_refused(word: str | int) -> None:
    with pytest.raises(ValueError, match="duration"):
        units.parse_duration(word)


@given(st.integers(1, limits.DURATION_S_MAX))
def test_duration_when_formatted_and_parsed_then_unchanged(seconds: int) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds


def test_instant_when_converted_then_floors_to_seconds() -> None:
    assert units.unix_seconds(1_999) == 1
    assert units.instant(2) == 2_000
