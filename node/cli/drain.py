"""`cloud-gpu-node drain`: no new leases; those that run go on to their end."""

from __future__ import annotations

import typer

from node.cli.options import Config
from node.cli.outside import Outside


def drain(ctx: typer.Context, config: Config) -> None:
    """Tell the daemon to offer nothing any more, until it is started again."""
    outside: Outside = ctx.obj
    settings = outside.load(config)
    outside.ask(settings, "drain")
    leases = outside.ask(settings, "status")["leases"]
    running = sum(lease["state"] != "closed" for lease in leases)
    print(f"draining; {running} leases still run")
    if running:
        print("Next: cloud-gpu-node status, until none does")
