"""`cloud-gpu auction`: what block auctions paid, and whom they left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.cli.failures import NoSuchThing, UsageWrong
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.output import money, rate
from cloud_gpu.cli.trading import SHOWN_DIGITS, table_of
from cloud_gpu.protocol.auctions import AuctionClass, AuctionReport
from cloud_gpu.protocol.utc import format_utc, parse_utc

if TYPE_CHECKING:
    from rich.table import Table

_OWN = "its own"
"""Of matches that no one price suits."""


def ls(run: Invocation) -> None:
    """List the last auctions: how much was matched, at what prices."""
    found = run.ask(run.settings(), lambda client: client.auctions())
    rows = [_row(report) for report in found]
    run.say.results("auction", rows, lambda: _auctions_table(rows))
    if not rows:
        run.say.progress("No block auction has cleared here yet.")


def show(
    run: Invocation,
    window: Annotated[
        str,
        typer.Argument(metavar="WINDOW", help='When it closed: "2026-12-08T16:00Z"; or the last.'),
    ] = "last",
) -> None:
    """Show every bid of an auction: what it pays, or why it got nothing."""
    closed = None if window == "last" else _closed(window)
    found = run.ask(run.settings(), lambda client: client.auctions(closed))
    if not found:
        raise NoSuchThing("no auction", "one that has cleared", "cloud-gpu bid place --block")
    report = found[0]
    row = {**_row(report), "bids": _bids(report)}
    run.say.result("auction", row, lambda: _bids_table(row["bids"]))


def _closed(window: str) -> int:
    try:
        return parse_utc(window)
    except ValueError as error:
        raise UsageWrong(f"WINDOW: {error}; or last") from error


def _row(report: AuctionReport) -> dict[str, Any]:
    return {
        "window": format_utc(report.window),
        "asks": report.asks,
        "matched": sum(len(each.fills) for each in report.classes),
        "surplus": money(report.surplus),
        "prices": [_price(each) for each in report.classes],
        "losses": dict(Counter(str(loss.why) for loss in report.losses)),
    }


def _price(one: AuctionClass) -> dict[str, Any]:
    return {
        "product": one.product,
        "gpu_class": one.gpu_class,
        "regions": list(one.regions),
        "price": None if one.price is None else rate(one.price),
    }


def _bids(report: AuctionReport) -> list[dict[str, Any]]:
    won = [
        {"bid": str(fill.bid), "price": rate(fill.price), "machines": len(fill.asks), "why": ""}
        for one in report.classes
        for fill in one.fills
    ]
    lost = [
        {"bid": str(loss.bid), "price": None, "machines": 0, "why": str(loss.why)}
        for loss in report.losses
    ]
    return won + lost


def _auctions_table(rows: list[dict[str, Any]]) -> Table:
    return table_of(
        ("closed", "matched", "left out", "a GPU-hour"),
        [
            (
                row["window"],
                str(row["matched"]),
                ", ".join(f"{count} {why}" for why, count in sorted(row["losses"].items())),
                "\n".join(_words(each) for each in row["prices"]),
            )
            for row in rows
        ],
    )


def _words(price: dict[str, Any]) -> str:
    amount = _OWN if price["price"] is None else price["price"]["amount"]
    where = f" in {', '.join(each or 'no region' for each in price['regions'])}"
    return f"{price['gpu_class']}{where if price['regions'] else ''}: {amount}"


def _bids_table(rows: list[dict[str, Any]]) -> Table:
    return table_of(
        ("bid", "a GPU-hour", "machines", "left out for"),
        [
            (
                row["bid"][:SHOWN_DIGITS],
                (row["price"] or {}).get("amount", ""),
                str(row["machines"]),
                row["why"],
            )
            for row in rows
        ],
    )
