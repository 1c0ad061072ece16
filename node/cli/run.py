"""`cloud-gpu-node run`: the daemon, in the foreground."""

from __future__ import annotations

import typer

from node.cli.options import Config
from node.cli.outside import Outside


def run(ctx: typer.Context, config: Config) -> None:
    """Rent out the machines of a settings file until SIGTERM.

    Prints one JSON line on stdout when it is ready; logs go to stderr.
    """
    outside: Outside = ctx.obj
    raise typer.Exit(outside.serve(outside.load(config)))
