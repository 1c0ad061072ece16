"""`cloud-gpu-node doctor`: every thing that a node needs, checked in order, each with its fix."""

from __future__ import annotations

import json

import typer

from node.cli.options import AsJson, Config
from node.cli.outside import Outside

_NOT_WELL = 8


def doctor(ctx: typer.Context, config: Config, as_json: AsJson = False) -> None:
    """Check settings, keys, chain, machines, hardware, engine and disk."""
    outside: Outside = ctx.obj
    findings = list(outside.examine(outside.load(config)))
    if as_json:
        checks = [
            {"check": each.check, "ok": each.ok, "found": each.found, "next": each.next}
            for each in findings
        ]
        print(json.dumps({"schema": 1, "ok": all(e.ok for e in findings), "checks": checks}))
    else:
        for each in findings:
            print(f"{'ok' if each.ok else 'NO':3} {each.check:12} {each.found}")
            if each.next:
                print(f"{'':16} {each.next}")
    if not all(each.ok for each in findings):
        raise typer.Exit(_NOT_WELL)
