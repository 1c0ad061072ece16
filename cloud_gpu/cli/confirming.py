"""Asking before tokens move: a person at a terminal is asked, a script must say --yes."""

from __future__ import annotations

import sys

import typer

from cloud_gpu.cli.failures import UsageWrong
from cloud_gpu.cli.invocation import Invocation


def confirm(run: Invocation, question: str) -> None:
    """Go on only with consent. Raises UsageWrong without a terminal, typer.Abort on a no."""
    if run.yes:
        return
    if not sys.stdin.isatty():
        raise UsageWrong(f"{question} There is no terminal to ask at: add --yes to agree")
    typer.confirm(question, abort=True, err=True)
