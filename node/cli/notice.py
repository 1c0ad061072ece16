"""`cloud-gpu-node notice`: an interruptible lease is released for nothing, once it was told."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cloud_gpu.protocol.codec import from_builtins
from cloud_gpu.protocol.errors import Rejected, Rejection
from cloud_gpu.protocol.utc import format_utc
from node.cli.options import AsJson, Config
from node.cli.outside import Outside
from node.notices import NoticeOutlook

Target = Annotated[
    str,
    typer.Argument(metavar="LEASE|MACHINE", help='As `status` names them: "3/7", or "3".'),
]


def notice(ctx: typer.Context, target: Target, config: Config, as_json: AsJson = False) -> None:
    """Give notice to an interruptible lease; the daemon releases it when the notice has run."""
    outside: Outside = ctx.obj
    answer = outside.ask(outside.load(config), f"notice {target}")
    if "reason" in answer:
        raise Rejected(from_builtins(answer, Rejection))
    if as_json:
        print(json.dumps({"schema": 1, **answer}))
        return
    found = from_builtins(answer, NoticeOutlook)
    name = f"lease {found.lease.index}/{found.lease.seq}"
    if found.ends_at <= found.releasable_at:
        print(f"{name} ends by itself at {format_utc(found.ends_at)}, before notice has run")
    else:
        given = "was given notice" if found.is_given else "is given notice"
        print(f"{name} {given}; it is released at {format_utc(found.releasable_at)} or soon after")
    print("Next: cloud-gpu-node status")
