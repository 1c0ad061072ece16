"""The command tree of `cloud-gpu-verifier`."""

from __future__ import annotations

import typer

from verifier.cli.check import check as check_command
from verifier.cli.run import anchor as anchor_command
from verifier.cli.run import run as run_command

app = typer.Typer(
    name="cloud-gpu-verifier",
    help="Audit the results of verified leases; convict only together with another verifier.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _before() -> None:
    """Audit the results of verified leases; convict only together with another verifier."""


app.command("run")(run_command)
app.command("check")(check_command)
app.command("anchor")(anchor_command)
