"""`cloud-gpu-verifier check`: recompute draw, proofs and signatures of a batch from public data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from verifier.cli.options import AsJson
from verifier.cli.outside import Audited, Outside

_FAILED: Final = 1


def check(
    ctx: typer.Context,
    deployment: Annotated[Path, typer.Option(help="The deployment's JSON file.")],
    rpc: Annotated[str, typer.Option(help="URL of an EVM node of its chain.")],
    record: Annotated[
        Path | None, typer.Option(help="The batch's record, as a verifier published it.")
    ] = None,
    verifier: Annotated[
        str | None, typer.Option(help="Multiaddr of a verifier that is asked for it instead.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help='Which batch: "provider/index/seq#batch".')
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check an audit again. Exit code 1: something in it is not as it should be."""
    outside: Outside = ctx.obj
    if (record is None) == (verifier is None) or (verifier is None) != (batch is None):
        raise typer.BadParameter("needed --record FILE, or --verifier MULTIADDR with --batch NAME")
    checks = outside.check(
        Audited(deployment=deployment, rpc=rpc, record=record, verifier=verifier, batch=batch)
    )
    is_ok = all(each.ok for each in checks)
    if as_json:
        rows = [{"what": each.what, "ok": each.ok, "detail": each.detail} for each in checks]
        print(json.dumps({"ok": is_ok, "checks": rows}))
    else:
        for each in checks:
            print(f"{'ok ' if each.ok else 'BAD'}  {each.what:<14} {each.detail}")
    raise typer.Exit(0 if is_ok else _FAILED)
