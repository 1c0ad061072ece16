"""`cloud-gpu-market replay`: all matches again, from the journal alone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cloud_gpu.protocol.codec import from_json
from market.cli.options import Config, DatabaseUrl, database_url, outside_of
from market.replaying import ReplayedState


def replay(
    context: typer.Context,
    config: Config = None,
    database: DatabaseUrl = "",
    as_json: Annotated[
        bool,
        typer.Option("--json", help="A line of JSON for each match, then one for the whole."),
    ] = False,
) -> None:
    """Verify the journal and compute every match again: the same bytes on every machine.

    Needs the database alone, or a copy of it; no key, no chain, and the daemon may run. Ends with
    an error at the first entry that was changed, or report that is not what the journal says.
    """
    line = b""
    for line in outside_of(context).replay(database_url(outside_of(context), config, database)):
        if as_json:
            sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
    if not as_json:
        _show(from_json(line, ReplayedState))


def _show(found: ReplayedState) -> None:
    table = Table(show_header=False)
    for name, value in (
        ("rounds", found.rounds),
        ("orders", found.orders),
        ("matches", found.matches),
        ("head", found.head),
        ("state", found.state),
        ("result", "the same, byte for byte"),
    ):
        table.add_row(name, str(value))
    console = Console()
    console.print(table)
    console.print(
        f"{found.events} journal entries follow from each other, and {found.reports} reports of"
        " bids and leases are what they imply."
    )
