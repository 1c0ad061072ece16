"""The command tree of `cloud-gpu-market`, and what becomes of a failure: one line, an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import typer

from cloud_gpu.protocol.errors import CloudGpuError
from market.cli.book import book
from market.cli.outside import Outside
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
app.command("replay")(replay)
app.command("book")(book)


def run(outside: Outside, arguments: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = app(
            args=list(arguments), prog_name="cloud-gpu-market", obj=outside, standalone_mode=False
        )
    except typer.Exit as wanted:
        return wanted.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except BrokenPipeError:  # the reader had enough
        return 0
    except CloudGpuError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return code if isinstance(code, int) else 0
