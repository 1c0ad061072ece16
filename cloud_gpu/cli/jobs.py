"""`cloud-gpu exec` and `logs`: commands inside a lease that is kept open."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import NoSuchThing
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.leases import LOST, Name, known
from cloud_gpu.cli.output import Format
from cloud_gpu.cli.run import variables

_PATTERN = frozenset("*?[")


def exec_(
    run: Invocation,
    name: Name,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, and its words.")
    ],
    put: Annotated[
        list[str] | None, typer.Option("--put", help="A file or folder to send first.")
    ] = None,
    get: Annotated[
        list[str] | None, typer.Option("--get", help="A file, folder or pattern to fetch.")
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; repeatable.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for it.")] = False,
) -> int:
    """Run a command in an open lease; its exit code is ours."""
    _require_open(run, name)
    here = Path.cwd()
    request = {
        "do": "run",
        "command": command,
        "env": variables(env or []),
        "put": [str(here / local) for local in put or []],
        "get": [[remote, str(_target(here, remote))] for remote in get or []],
        "detach": detach,
    }
    told = run.outside.leases().ask(name, request)
    number = next(told)["job"]
    run.say.progress(f"job {number}")
    if detach:
        run.say.result("job", {"lease": name, "job": number}, lambda: f"job {number}")
        run.say.next(f"cloud-gpu logs {name} {number} -f")
        return ExitCode.DONE
    try:
        return _shown(run, name, number, told)
    except KeyboardInterrupt:
        for _ in run.outside.leases().ask(name, {"do": "kill", "job": number}):
            pass  # a kill is not answered
        raise


def _target(here: Path, remote: str) -> Path:
    """Where a fetched path goes: the same path below the caller's folder."""
    return here if _PATTERN & set(remote) else here / remote


def logs(
    run: Invocation,
    name: Name,
    job: Annotated[int | None, typer.Argument(help="Its number; the newest if left out.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until it ends.")] = False,
) -> int:
    """Show what a job printed, from its first byte."""
    _require_open(run, name)
    told = run.outside.leases().ask(name, {"do": "logs", "job": job, "follow": follow})
    code = _shown(run, name, job, told)
    return code if follow else ExitCode.DONE


def _require_open(run: Invocation, name: str) -> None:
    record = known(run, name)
    if record["state"] != "open" or not run.outside.leases().is_kept(name):
        found = LOST if record["state"] == "open" else "it has ended"
        raise NoSuchThing(f"{name}: {found}", "an open lease", "cloud-gpu up --gpu GPU")


def _shown(
    run: Invocation, name: str, number: int | None, told: Iterable[Mapping[str, Any]]
) -> int:
    """Output to the streams of the same names, or into one JSON document; the exit code."""
    printed = {"stdout": "", "stderr": ""}
    end: dict[str, Any] = {}
    for part in told:
        if "missing" in part:
            numbers = ", ".join(map(str, part["missing"])) or "none"
            raise NoSuchThing(f"no job {number} in {name}", f"one of: {numbers}", "cloud-gpu show")
        if "stream" not in part:
            end = dict(part)
        elif run.form is Format.TABLE:
            stream = sys.stdout if part["stream"] == "stdout" else sys.stderr
            stream.write(part["text"])
            stream.flush()
        else:
            printed[part["stream"]] += part["text"]
    if failure := end.get("failure"):
        run.say.failed_elsewhere(failure["code"], failure)
        return ExitCode.RUN_FAILED
    if run.form is not Format.TABLE:
        payload = {"lease": name, "job": number, "running": not end, **end, **printed}
        run.say.result("job", payload, lambda: "")
    for path in end.get("fetched", ()):
        run.say.progress(f"fetched {path}")
    return int(end.get("exit_code") or 0)
