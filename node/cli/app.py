"""The command tree of `cloud-gpu-node`, and what becomes of a failure: one line, an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import typer

from cloud_gpu.protocol.errors import CloudGpuError
from node.cli.doctor import doctor
from node.cli.drain import drain
from node.cli.outside import Outside
from node.cli.probe import probe
from node.cli.run import run as run_command
from node.cli.status import status

_USAGE: Final = 2
_INTERRUPTED: Final = 130

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
app.command("doctor")(doctor)


def run(outside: Outside, arguments: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    try:
        code = app(
            args=list(arguments), prog_name="cloud-gpu-node", obj=outside, standalone_mode=False
        )
    except typer.Exit as wanted:
        return wanted.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except typer.TyperException as error:
        say = getattr(error, "format_message", None)
        print(say() if callable(say) else error, file=sys.stderr)
        return _USAGE
    except BrokenPipeError:
        return 0  # the reader has read enough
    except CloudGpuError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return code if isinstance(code, int) else 0
