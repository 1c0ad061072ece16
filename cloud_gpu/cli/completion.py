"""`cloud-gpu completion SHELL`: prints the script that makes Tab complete commands and flags."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Final

import typer
from typer import completion as shells

from cloud_gpu.cli.invocation import Invocation

VARIABLE: Final = "_CLOUD_GPU_COMPLETE"
"""Set by the shell's script when it asks for words: the parser looks for this name."""


class Shell(StrEnum):
    """Shells that typer knows."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    run: Invocation, shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]
) -> None:
    """Print a completion script: `source <(cloud-gpu completion bash)`."""
    del run  # a script, whatever the output format
    script = shells.get_completion_script(  # type: ignore[attr-defined]  # re-exported there
        prog_name="cloud-gpu", complete_var=VARIABLE, shell=shell.value
    )
    sys.stdout.write(script + "\n")


def prepare() -> None:
    """Let the parser answer a shell that asks for words."""
    shells.completion_init()  # type: ignore[attr-defined]  # re-exported there
