"""The command tree of `cloud-gpu-node`."""

from __future__ import annotations

import typer

from node.cli.doctor import doctor
from node.cli.drain import drain
from node.cli.notice import notice
from node.cli.probe import probe
from node.cli.run import run as run_command
from node.cli.status import status

app = typer.Typer(
    name="cloud-gpu-node",
    help="Rent out this machine's GPUs on markets that nobody has to trust.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _before() -> None:
    """Rent out this machine's GPUs on markets that nobody has to trust."""


app.command("run")(run_command)
app.command("probe")(probe)
app.command("status")(status)
app.command("drain")(drain)
app.command("notice")(notice)
app.command("doctor")(doctor)
