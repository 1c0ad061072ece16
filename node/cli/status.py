"""`cloud-gpu-node status`: machines, leases and money of the running daemon."""

from __future__ import annotations

import json
from typing import Any

import typer

from cloud_gpu.protocol.units import format_tokens
from node.cli.options import AsJson, Config
from node.cli.outside import Outside


def status(ctx: typer.Context, config: Config, as_json: AsJson = False) -> None:
    """Ask the daemon of this settings file how it is."""
    outside: Outside = ctx.obj
    found = outside.ask(outside.load(config), "status")
    if as_json:
        print(json.dumps({"schema": 1, **found}))
        return
    state = "draining" if found["is_draining"] else "open"
    if found["is_catching_up"]:
        state = "reading the chain"
    print(f"provider {found['provider']}, peer {found['peer']}: {state}")
    for machine in found["machines"]:
        print(f"machine {machine['index']}: {_machine_in_words(machine, found['leases'])}")
    for lease in found["leases"]:
        print(f"lease {_name(lease)}: {_lease_in_words(lease)}")


def _machine_in_words(machine: dict[str, Any], leases: list[dict[str, Any]]) -> str:
    if not machine["is_healthy"]:
        return "not healthy; see `cloud-gpu-node probe`"
    if machine["is_offered"]:
        return f"on offer, for lease {machine['next_seq']}"
    busy = [
        lease
        for lease in leases
        if lease["lease"]["index"] == machine["index"] and lease["state"] != "closed"
    ]
    return f"leased: {_name(busy[0])}" if busy else "healthy, not on offer"


def _lease_in_words(lease: dict[str, Any]) -> str:
    words = [lease["state"] or "not on chain yet"]
    words.append(f"{format_tokens(lease['voucher'])} of {format_tokens(lease['cap'])} vouchered")
    if lease["jobs_running"]:
        words.append(f"{lease['jobs_running']} jobs" + (" paused" if lease["is_paused"] else ""))
    if lease["ended"]:
        words.append(f"work ended: {lease['ended']}")
    return ", ".join(words)


def _name(lease: dict[str, Any]) -> str:
    return f"{lease['lease']['index']}/{lease['lease']['seq']}"
