"""The command tree of `cloud-gpu-market`."""

from __future__ import annotations

import typer

from market.cli.api import api
from market.cli.book import book
from market.cli.prove import check, prove
from market.cli.replay import replay
from market.cli.run import run as run_command

app = typer.Typer(
    name="cloud-gpu-market",
    help="Match asks with bids, in rounds that anybody can compute again.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _before() -> None:
    """Match asks with bids, in rounds that anybody can compute again."""


app.command("run")(run_command)
app.command("api")(api)
app.command("replay")(replay)
app.command("prove")(prove)
app.command("check-proof")(check)
app.command("book")(book)
