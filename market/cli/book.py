"""`cloud-gpu-market book`: what is on offer, and which bids wait for what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cloud_gpu.protocol.codec import to_builtins
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.orders import Bid, SignedAdvert
from cloud_gpu.protocol.units import format_duration, format_tokens
from market.cli.options import Config, DatabaseUrl, database_url, outside_of


def book(
    context: typer.Context,
    config: Config = None,
    database: DatabaseUrl = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Rows of each side.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the book as the public tables have it."""
    outside = outside_of(context)
    page = outside.book(database_url(outside, config, database), limit)
    if as_json:
        waiting = [{"bid": to_builtins(bid), "report": to_builtins(it)} for bid, it in page.waiting]
        print(json.dumps({"asks": [to_builtins(ask) for ask in page.asks], "waiting": waiting}))
        return
    console = Console()
    console.print(_asks(page.asks))
    console.print(_bids(page.waiting))


def _asks(adverts: Sequence[SignedAdvert]) -> Table:
    table = Table("tokens/GPU-h", "GPUs", "product", "machine", "longest", title="Asks")
    for advert in adverts:
        ask, profile = advert.body.ask.payload, advert.body.profile
        table.add_row(
            format_tokens(ask.min_price_per_hour),
            f"{len(profile.gpus)} x {profile.gpu_class}",
            str(ask.product),
            f"{ask.provider}/{ask.index}",
            format_duration(ask.max_duration),
        )
    return table


def _bids(waiting: Sequence[tuple[Bid, BidReport]]) -> Table:
    table = Table("tokens/GPU-h", "GPUs", "product", "for", "waits because", title="Waiting bids")
    for bid, report in waiting:
        table.add_row(
            format_tokens(bid.max_price_per_hour),
            str(bid.count),
            str(bid.product),
            format_duration(bid.duration),
            str(report.rejection or "its round has not ended"),
        )
    return table
