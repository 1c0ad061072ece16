"""`cloud-gpu-market replay`: all matches again, from the journal alone."""

from __future__ import annotations

import sys

import typer

from market.cli.options import Config, DatabaseUrl, database_url, outside_of


def replay(context: typer.Context, config: Config = None, database: DatabaseUrl = "") -> None:
    """Verify the journal and compute every match again.

    One line of JSON for each match, then one with the state's hash: the same bytes every time,
    on every machine. May be run beside the daemon.
    """
    outside = outside_of(context)
    for line in outside.replay(database_url(outside, config, database)):
        sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
