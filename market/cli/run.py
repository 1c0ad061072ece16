"""`cloud-gpu-market run`: the daemon."""

from __future__ import annotations

import typer

from cloud_gpu.protocol.errors import SettingsInvalid
from market.cli.options import Config, load, outside_of


def run(context: typer.Context, config: Config = None) -> None:
    """Match orders and post the openings, until SIGTERM or Ctrl-C.

    Prints one JSON line on stdout when it is ready; logs go to stderr.
    """
    if config is None:
        raise SettingsInvalid("--config is needed: the market's settings, a TOML file")
    outside = outside_of(context)
    raise typer.Exit(outside.serve(load(outside, config)))
