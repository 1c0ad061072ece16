"""What becomes of a daemon's command line: one line of text for a failure, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import typer

from cloud_gpu.protocol.errors import CloudGpuError

_USAGE: Final = 2
_INTERRUPTED: Final = 130


def run_command_line(app: typer.Typer, name: str, outside: object, arguments: Sequence[str]) -> int:
    """Run one command line of `app`, which finds `outside` as its object; its exit code."""
    try:
        code = app(args=list(arguments), prog_name=name, obj=outside, standalone_mode=False)
    except typer.Exit as wanted:
        return wanted.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except typer.TyperException as error:
        say = getattr(error, "format_message", None)
        sys.stderr.write(f"{say() if callable(say) else error}\n")
        return _USAGE
    except BrokenPipeError:
        return 0  # the reader has read enough
    except CloudGpuError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return code if isinstance(code, int) else 0
