"""Words of an order of futures: what each may be, and what is said of a wrong one."""

from typing import Any

import pytest

from cloud_gpu.bidding import WordUnclear
from cloud_gpu.ordering import future_wish, product_meant, read_series
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import BasisPoints, Price
from cloud_gpu.protocol.utc import format_utc, parse_utc

DAY_S = 86_400


def product(number: int, gpu_class: str, gpus: int, region: str = "") -> Product:
    return Product(
        id=number,
        gpu_class=GpuClass(gpu_class),
        slice_gpus=gpus,
        region_group=region,
        min_bond=BasisPoints(1_000),
        notice=0,
        penalty=BasisPoints(1_000),
        flags=0,
    )


PRODUCTS = (
    product(1, "A100-SXM4-80GB", 1),
    product(2, "A100-SXM4-80GB", 2),
    product(3, "H100-SXM5-80GB", 8, "EU"),
)
NOW = parse_utc("2026-12-01T10:30")
WORDS: dict[str, Any] = {
    "is_buy": True,
    "product": 1,
    "start": "2026-12-08",
    "length": "1d",
    "units": 2,
    "limit": "1.20",
    "at": NOW,
}


def test_words_become_a_request() -> None:
    request = future_wish(**WORDS, stands="10m")
    at = parse_utc("2026-12-08T00:00Z")
    assert request.series == Series(product=1, window_start=at, window_seconds=DAY_S)
    assert (request.units, request.limit, request.stands_s) == (2, Price(1_200_000), 600)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"start": "tomorrow"}, "start", "2026-12-08T16:00"),
        ({"start": "tomorrow"}, "start", 'or a duration from now, like "3d"'),
        ({"start": "2026-12-08T01:00"}, "start", "2026-12-08T00:00Z or 2026-12-09T00:00Z"),
        ({"start": "2026-12-08", "length": "7d"}, "start", "Thursdays"),
        ({"length": "2h"}, "length", "1h, 4h, 1d, 7d"),
        ({"length": "long"}, "length", "found 'long'"),
        ({"units": 0}, "units", "1 to 64"),
        ({"units": 65}, "units", "1 to 64"),
        ({"limit": "1.2345"}, "max_price", "at most 3 digits"),
        ({"limit": "0"}, "max_price", "found 0"),
        ({"is_buy": False, "limit": "dear"}, "min_price", "found 'dear'"),
        ({"stands": "2d"}, "stands", "1d at most"),
    ],
)
def test_a_wrong_word_is_named_with_what_it_may_be(
    changes: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(WordUnclear, match="found") as caught:
        future_wish(**{**WORDS, **changes})
    assert caught.value.field == field
    assert said in caught.value.problem


@pytest.mark.parametrize(
    ("words", "number"), [("2", 2), (3, 3), ("A100:2", 2), ("a100 sxm4:1", 1), ("H100", 3)]
)
def test_a_product_is_meant_by_number_or_by_class_and_count(words: str | int, number: int) -> None:
    assert product_meant(words, PRODUCTS).id == number


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("A100", "which is 2 products"),
        ("B200", "3 (8x H100-SXM5-80GB, EU)"),
        ("9", "found '9', needed one of: 1 (1x A100"),
        ("A100 region=EU", "words of a class and a count"),
        ("A100:80GB:2", "words of a class and a count"),
        ("A100 ???", "found"),
    ],
)
def test_a_product_that_is_not_one_is_told_with_those_there_are(words: str, said: str) -> None:
    with pytest.raises(WordUnclear) as caught:
        product_meant(words, PRODUCTS)
    assert said in str(caught.value)


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert parse_utc("2026-12-08T02:00+02:00") == parse_utc("2026-12-08") == parse_utc("20261208")
    assert format_utc(parse_utc("2026-12-08T16:00:05")) == "2026-12-08T16:00:05Z"
    for wrong in ("2026-12-08T16:00:00.5", "1969-01-01", "2200-01-01", "8 Dec"):
        with pytest.raises(ValueError, match="a time is"):
            parse_utc(wrong)


def test_a_week_starts_on_thursday() -> None:
    series = read_series(product=1, start="2026-12-10", length="7d", at=NOW)
    assert series.window_end - series.window_start == 7 * DAY_S


@pytest.mark.parametrize(
    ("start", "length", "begins"),
    [
        ("7d", "1d", "2026-12-09"),
        ("30m", "1h", "2026-12-01T11:00"),
        ("90m", "4h", "2026-12-01T12:00"),
        ("1d", "7d", "2026-12-03"),
    ],
)
def test_a_start_in_so_long_is_the_first_window_from_then_on(
    start: str, length: str, begins: str
) -> None:
    series = read_series(product=1, start=start, length=length, at=NOW)
    assert series.window_start == parse_utc(begins)
