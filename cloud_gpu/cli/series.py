"""`cloud-gpu future series`, `book`, `curve`: what is traded for which window, at what price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.output import money, rate
from cloud_gpu.cli.trading import (
    Length,
    MaybeProduct,
    Product,
    Start,
    opened_trader,
    table_of,
)
from cloud_gpu.ordering import product_words, window_words
from cloud_gpu.protocol.future_reports import Level, SeriesReport
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.units import format_tokens
from cloud_gpu.protocol.utc import format_utc

if TYPE_CHECKING:
    from rich.table import Table


def series(run: Invocation, gpu: MaybeProduct = None) -> None:
    """List the windows that somebody trades, each with its best prices."""
    with opened_trader(run, run.settings()) as trader:
        products = trader.products()
        wanted = None if gpu is None else trader.product(gpu).id
        names = {product.id: product_words(product) for product in products}
        rows = [_series_row(each, names) for each in trader.market.series(wanted)]
    run.say.results("series", rows, lambda: _series_table(rows))
    if not rows:
        run.say.progress("Nobody has an order now. Products: " + "; ".join(names.values()))
        run.say.next("cloud-gpu future buy --gpu PRODUCT --start DAY --length 1d --dry-run")


def book(run: Invocation, gpu: Product, start: Start, length: Length) -> None:
    """Show what is wanted and offered in one series, as of the end of its last batch."""
    with opened_trader(run, run.settings()) as trader:
        wanted = trader.window(gpu, start=start, length=length)
        found = next((s for s in trader.market.series(wanted.product) if s.series == wanted), None)
        deadline = trader.deadline(wanted)
    if found is None:
        found = SeriesReport(series=wanted, deadline=deadline, buys=(), sells=())
    row = {
        **_window(wanted),
        "deadline": format_utc(deadline),
        "buys": [_level(each) for each in found.buys],
        "sells": [_level(each) for each in found.sells],
        "last": None if found.last is None else rate(found.last.price),
    }
    run.say.result("future-book", row, lambda: _book_table(found))
    if not found.buys and not found.sells:
        run.say.progress(f"Nobody has an order there; it is traded until {format_utc(deadline)}.")


def curve(run: Invocation, gpu: Product) -> None:
    """Show what a GPU-hour costs on coming days, by futures, and lately, by leases."""
    with opened_trader(run, run.settings()) as trader:
        product = trader.product(gpu)
        points = trader.market.curve(product.id)
        index = next((p for p in trader.market.index() if p.gpu_class == product.gpu_class), None)
    rows = [
        {"day": format_utc(p.day), "price": money(p.per_hour), "illiquid": p.is_illiquid}
        for p in points
    ]
    payload: dict[str, Any] = {
        "product": product.id,
        "gpu_class": product.gpu_class,
        "index": None if index is None else money(index.per_hour),
        "stale": None if index is None else index.is_stale,
        "days": rows,
    }
    run.say.result("curve", payload, lambda: _curve_table(rows))
    if index is not None:
        held = ", stale" if index.is_stale else ""
        run.say.progress(f"Lately, by leases: {format_tokens(index.per_hour)} a GPU-hour{held}.")
    if not rows:
        run.say.progress(f"No future of product {product_words(product)} was traded yet.")
        run.say.next("cloud-gpu future series")


def series_words(series: Series) -> str:
    """For people: "from 2026-12-08T00:00Z for 1d"."""
    return f"from {format_utc(series.window_start)} for {window_words(series.window_seconds)}"


def _window(series: Series) -> dict[str, Any]:
    return {
        "product": series.product,
        "start": format_utc(series.window_start),
        "length": window_words(series.window_seconds),
    }


def _level(level: Level) -> dict[str, Any]:
    return {"price": rate(level.price), "units": level.units}


def _series_row(report: SeriesReport, names: dict[int, str]) -> dict[str, Any]:
    return {
        **_window(report.series),
        "gpus": names.get(report.series.product, ""),
        "buy": _level(report.buys[0]) if report.buys else None,
        "sell": _level(report.sells[0]) if report.sells else None,
        "last": None if report.last is None else rate(report.last.price),
        "deadline": format_utc(report.deadline),
    }


def _series_table(rows: list[dict[str, Any]]) -> Table:
    return table_of(
        ("product", "window", "best buy", "best sell", "last"),
        [
            (
                row["gpus"],
                f"{row['start']} {row['length']}\nuntil {row['deadline']}",
                _best(row["buy"]),
                _best(row["sell"]),
                (row["last"] or {}).get("amount", ""),
            )
            for row in rows
        ],
    )


def _best(level: dict[str, Any] | None) -> str:
    return "" if level is None else f"{level['price']['amount']} ({level['units']})"


def _book_table(report: SeriesReport) -> Table:
    levels = [("sell", each) for each in report.sells[::-1]] + [("buy", b) for b in report.buys]
    return table_of(
        ("", "a GPU-hour", "units"),
        [(side, format_tokens(each.price), str(each.units)) for side, each in levels],
    )


def _curve_table(rows: list[dict[str, Any]]) -> Table:
    return table_of(
        ("day", "a GPU-hour", ""),
        [
            (row["day"], row["price"]["amount"], "illiquid" if row["illiquid"] else "")
            for row in rows
        ],
    )
