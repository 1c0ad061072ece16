"""`cloud-gpu-market replay`: all matches again, from the journal or from what was published."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import SettingsInvalid
from market.audit.auditing import Audited
from market.audit.replaying import ReplayedState
from market.cli.files import AnyMarket, HeaderFiles, ReceiptFiles, headers_in, receipts_in
from market.cli.options import Config, DatabaseUrl, database_url, outside_of
from market.cli.verifying import verify


def replay(
    context: typer.Context,
    config: Config = None,
    database: DatabaseUrl = "",
    source: Annotated[
        str,
        typer.Option(
            "--verify",
            metavar="SOURCE",
            help="Instead of a journal: published rounds, at a market's URL, in a file or folder.",
            show_default=False,
        ),
    ] = "",
    market: AnyMarket = "",
    receipts: ReceiptFiles = None,
    headers: HeaderFiles = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Of --verify: also write the rounds there.", show_default=False),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="A line of JSON for each match, then one for the whole."),
    ] = False,
) -> None:
    """Verify the log and compute every match again: the same bytes on every machine.

    From a journal: needs the database alone, or a copy of it; no key, no chain, and the daemon may
    run. With --verify: needs what the market published, and nothing else. Ends with an error at
    the first entry, round or report that is not what follows from those before it.
    """
    outside = outside_of(context)
    held = headers_in(headers)
    if source:
        found = verify(
            outside.rounds(source),
            market=market,
            receipts=receipts_in(receipts),
            held=held,
            keep=keep,
        )
        if as_json:
            sys.stdout.buffer.write(to_json(found) + b"\n")
        else:
            _show_audited(found)
        return
    if receipts or keep or market:
        raise SettingsInvalid("--market, --receipt and --keep belong to --verify SOURCE")
    line = b""
    for line in outside.replay(database_url(outside, config, database), held):
        if as_json:
            sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
    if not as_json:
        _show(from_json(line, ReplayedState))


def _show(found: ReplayedState) -> None:
    _print_table(
        ("rounds", found.rounds),
        ("orders", found.orders),
        ("matches", found.matches),
        ("head", found.head),
        ("state", found.state),
        ("result", "the same, byte for byte"),
    )
    Console().print(
        f"{found.events} journal entries follow from each other, and {found.reports} reports of"
        f" orders, leases and contracts and {found.published} published rounds are what they imply."
    )


def _show_audited(found: Audited) -> None:
    _print_table(
        ("market", found.market),
        ("rounds", found.rounds),
        ("orders", found.orders),
        ("matches", found.matches),
        ("newest header", found.head),
        ("journal", f"{found.journal} entries, head {found.journal_head}"),
        ("receipts", f"{found.receipts} found, {found.waiting} younger than the rounds"),
        ("result", "what was published follows from it"),
    )


def _print_table(*rows: tuple[str, object]) -> None:
    table = Table(show_header=False)
    for name, value in rows:
        table.add_row(name, str(value))
    Console().print(table)
