"""`cloud-gpu devnet`: one devnet of this person on this machine, in the background or here."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.outside import DevnetView
from cloud_gpu.protocol.errors import OutsideWorldError, SettingsInvalid

if TYPE_CHECKING:
    from rich.table import Table

CONTEXT = "devnet"


class Runtime(StrEnum):
    """What a devnet's nodes run jobs in."""

    AUTO = "auto"
    RUNC = "runc"
    RUNSC = "runsc"
    PROCESS = "process"


def up(
    run: Invocation,
    nodes: Annotated[
        int, typer.Option(min=1, max=64, help="Pretend providers; from 3 on, two verifiers, too.")
    ] = 2,
    runtime: Annotated[
        Runtime, typer.Option(help="What jobs run in; auto: Docker where an engine answers.")
    ] = Runtime.AUTO,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay here; Ctrl-C ends it.")
    ] = False,
) -> int:
    """Start a devnet, and use it from now on."""
    desk = run.outside.devnet()
    run.outside.require_contexts()  # a devnet that nobody finds is no use
    if foreground:
        try:
            ready = partial(_ready, run, started=True)
            desk.keep(nodes, runtime, run.say.progress, ready)
        finally:
            run.outside.forget_context(CONTEXT)
        return 0
    view, started = desk.up(nodes, runtime, run.say.progress, run.wait_s)
    if view.ended:
        raise OutsideWorldError(_unwell(view))
    try:
        _ready(run, view, started=started)
    except SettingsInvalid:  # its disk filled up meanwhile
        if started:
            desk.down(run.say.progress)
        raise
    if not started and view.nodes != nodes:
        run.say.progress(f"It has {view.nodes} nodes; `cloud-gpu devnet down` first for {nodes}.")
    return 0


def down(run: Invocation) -> int:
    """End the devnet and remove its data. Fine when none runs."""
    ran = run.outside.devnet().down(run.say.progress)
    run.outside.forget_context(CONTEXT)
    run.say.result("devnet", {"running": False, "was_running": ran}, lambda: _words(ran))
    return 0


def status(run: Invocation) -> int:
    """Say whether it runs, and where."""
    view = run.outside.devnet().status()
    if view is None:
        run.say.result("devnet", {"running": False}, lambda: "No devnet runs.")
        run.say.next("cloud-gpu devnet up")
        return ExitCode.NO_SUCH_THING
    run.say.result("devnet", _payload(view), lambda: _table(view))
    if view.ended:
        run.say.progress(_unwell(view))
        return ExitCode.UNAVAILABLE
    return 0


def _unwell(view: DevnetView) -> str:
    which = ", ".join(view.ended)
    again = [
        f" `cloud-gpu-{name.partition('-')[0]} run --config {view.folder}/{name}.toml` starts"
        f" {name} again;"
        for name in view.ended
        if name != "chain"
    ]
    return (
        f"the devnet in {view.folder} runs without {which}; their logs lie there."
        f"{''.join(again)} `cloud-gpu devnet down`, then `cloud-gpu devnet up` starts a new devnet"
    )


def _ready(run: Invocation, view: DevnetView, *, started: bool) -> None:
    values = {
        "market": view.market,
        "rpc": view.rpc,
        "deployment": view.deployment,
        "keystore": view.keystore,
        "password_file": view.password_file,
        "max_price": view.max_price,
    }
    path = run.outside.use_context(CONTEXT, values)
    run.say.progress("The devnet is up." if started else "A devnet already runs.")
    run.say.progress(f"Settings: {path}")
    run.say.result(
        "devnet", {**_payload(view), "started": started, "context": path}, lambda: _table(view)
    )
    run.say.next('cloud-gpu run --gpu A100 --count 2 --yes -- sh -c "nvidia-smi || echo hi"')


def _payload(view: DevnetView) -> dict[str, Any]:
    return {
        "running": True,
        "market": view.market,
        "rpc": view.rpc,
        "nodes": view.nodes,
        "ended": list(view.ended),
        "deployment": view.deployment,
        "folder": view.folder,
        "started_at": view.started_at,
        "stand_ins": list(view.stand_ins),
    }


def _words(ran: bool) -> str:
    return "The devnet is down." if ran else "No devnet ran."


def _table(view: DevnetView) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in (
        ("market", view.market),
        ("chain", view.rpc),
        ("nodes", str(view.nodes)),
        ("data", view.folder),
        *(("ended", name) for name in view.ended),
        *(("stand-in", text) for text in view.stand_ins),
    ):
        table.add_row(name, value)
    return table
