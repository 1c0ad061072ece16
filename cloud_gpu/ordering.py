"""From a person's words to an order of futures: product, window, machines, limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloud_gpu.bidding import WordUnclear
from cloud_gpu.moments import read_moment
from cloud_gpu.protocol import limits
from cloud_gpu.protocol.futures import UNITS_MAX, WINDOWS_S, Series
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import Price, format_duration, parse_duration, parse_price
from cloud_gpu.protocol.utc import format_utc
from cloud_gpu.protocol.values import Value
from cloud_gpu.query import Query, Span
from cloud_gpu.query_text import QueryUnclear, parse_query

STANDS_S: Final = 3_600
"""How long an order stands where nobody says so."""


class FutureRequest(Value, frozen=True, kw_only=True):
    """What one order of futures must be. Made from a person's words by `future_wish`."""

    is_buy: bool
    series: Series
    units: int
    """Machines of the product."""
    limit: Price
    """The most that a buyer pays, the least that a seller takes, for a GPU-hour."""
    stands_s: int = STANDS_S
    """Seconds until the order expires."""


def future_wish(
    *,
    is_buy: bool,
    product: int,
    start: str,
    length: str | int,
    units: int,
    limit: str,
    stands: str | int = STANDS_S,
    at: int,
) -> FutureRequest:
    """Read a person's words at a time, Unix seconds.

    Raises `WordUnclear` naming the word, what was found and needed.
    """
    if not 1 <= units <= UNITS_MAX:
        raise WordUnclear("units", f"found {units}, needed 1 to {UNITS_MAX} machines")
    name = "max_price" if is_buy else "min_price"
    try:
        price = parse_price(limit)
    except ValueError as error:
        raise WordUnclear(name, str(error)) from error
    if not price:
        raise WordUnclear(name, 'found 0, needed tokens a GPU-hour, like "1.20"')
    series = read_series(product=product, start=start, length=length, at=at)
    return FutureRequest(
        is_buy=is_buy, series=series, units=units, limit=price, stands_s=read_stands(stands)
    )


def read_stands(word: str | int) -> int:
    """How long an order stands, seconds. Raises `WordUnclear`."""
    try:
        found = parse_duration(word)
    except ValueError as error:
        raise WordUnclear("stands", str(error)) from error
    if found > limits.ORDER_LIFE_S_MAX:
        most = format_duration(limits.ORDER_LIFE_S_MAX)
        raise WordUnclear("stands", f"found {word}, needed {most} at most: renew it while wanted")
    return found


def read_series(*, product: int, start: str, length: str | int, at: int) -> Series:
    """A product's window, read at a time, Unix seconds.

    `start` is a UTC time, or a duration: the first window that begins so long from now or later.
    Raises `WordUnclear`: no such length, no such start (the nearest two).
    """
    try:
        seconds = parse_duration(length)
    except ValueError as error:
        raise WordUnclear("length", str(error)) from error
    if seconds not in WINDOWS_S:
        traded = ", ".join(window_words(each) for each in WINDOWS_S)
        raise WordUnclear("length", f"found {length}, needed one of {traded}")
    begins = read_moment("start", start, at, step=seconds)
    before = begins - begins % seconds
    if begins != before:
        near = f"{format_utc(before)} or {format_utc(before + seconds)}"
        weeks = " (weeks start on Thursdays)" if seconds == max(WINDOWS_S) else ""
        raise WordUnclear(
            "start",
            f"found {format_utc(begins)}, needed the start of a {window_words(seconds)}"
            f" window{weeks}: {near}",
        )
    return Series(product=product, window_start=begins, window_seconds=seconds)


def window_words(seconds: int) -> str:
    """A window's length as `read_series` takes it: "7d"."""
    return format_duration(seconds)


def product_meant(words: str | int, products: Sequence[Product]) -> Product:
    """The one product of a number or of words like "A100:80GB:2". Raises `WordUnclear`."""
    text = str(words).strip()
    if text.isascii() and text.isdigit():
        meant = [each for each in products if each.id == int(text)]
    else:
        try:
            query = parse_query(text)
        except QueryUnclear as error:
            raise WordUnclear("gpu_type", str(error)) from error
        named = tuple((name, Span()) for name, _ in query.classes)
        if query != Query(classes=named, count=query.count):
            raise WordUnclear(
                "gpu_type", f'found {text!r}, needed words of a class and a count: "A100:2"'
            )
        meant = [
            each
            for each in products
            if query.wants(each.gpu_class) and query.count in (None, each.slice_gpus)
        ]
    if len(meant) == 1:
        return meant[0]
    listed = "; ".join(product_words(each) for each in meant or products)
    needed = f"one of: {listed}" if listed else "a product, and none is registered on this chain"
    count = f"found {text!r}, which is {len(meant)} products" if meant else f"found {text!r}"
    raise WordUnclear("gpu_type", f"{count}, needed {needed}")


def product_words(product: Product) -> str:
    """ "3 (2x A100-SXM4-80GB, EU)": its number first, which names it alone."""
    region = f", {product.region_group}" if product.region_group else ""
    return f"{product.id} ({product.slice_gpus}x {product.gpu_class}{region})"
