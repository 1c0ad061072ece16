"""`cloud-gpu-verifier run`: the daemon, in the foreground; `anchor`: what a deployer must know."""

from __future__ import annotations

import json

import typer

from verifier.cli.options import AsJson, Config
from verifier.cli.outside import Outside


def run(ctx: typer.Context, config: Config) -> None:
    """Audit verified leases until SIGTERM.

    Prints one JSON line on stdout when it is ready; logs go to stderr.
    """
    outside: Outside = ctx.obj
    raise typer.Exit(outside.serve(outside.load(config)))


def anchor(ctx: typer.Context, config: Config, as_json: AsJson = False) -> None:
    """Print the anchor of this verifier's hash chain, which the contract is constructed with.

    The chain's seed is drawn and kept if the settings' preimages_file does not exist.
    """
    outside: Outside = ctx.obj
    settings = outside.load(config)
    found = str(outside.anchor(settings))
    print(json.dumps({"anchor": found, "length": settings.preimages}) if as_json else found)
