"""`cloud-gpu-market api`: processes that take orders beside the matchmaker."""

from __future__ import annotations

from typing import Annotated

import typer

from cloud_gpu.protocol.errors import SettingsInvalid
from market.cli.options import Config, load, outside_of

WORKERS_MAX = 256


def api(
    context: typer.Context,
    config: Config = None,
    workers: Annotated[
        int, typer.Option(min=1, max=WORKERS_MAX, help="Processes; about one a core.")
    ] = 2,
) -> None:
    """Serve the API from the market's database, until SIGTERM or Ctrl-C.

    `run` goes on matching, beside it or on another machine. Prints one JSON line on stdout when
    all processes serve; logs go to stderr.
    """
    if config is None:
        raise SettingsInvalid("--config is needed: the settings that `run` has, a TOML file")
    outside = outside_of(context)
    raise typer.Exit(outside.serve_api(load(outside, config), workers))
