"""`cloud-gpu run … -- COMMAND`: rent, put, run, get, stop, settle; the remote exit code is ours."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.cli.confirming import confirm
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import UsageWrong, failure_of, refused_here
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.output import Format, money, rate
from cloud_gpu.cli.requirements import (
    AuditBps,
    Count,
    Duration,
    ExcludeProvider,
    Gpu,
    Interruptible,
    Isolation,
    MaxPrice,
    OneRound,
    Provider,
    Region,
    StartBy,
    Verified,
    requirement,
    wishes,
)
from cloud_gpu.protocol.errors import CloudGpuError, RunError
from cloud_gpu.protocol.units import format_tokens

if TYPE_CHECKING:
    from cloud_gpu.bidding import LeaseRequest
    from cloud_gpu.cli.outside import OpenSession
    from cloud_gpu.outcomes import Bill, RunResult
    from cloud_gpu.settings import Settings


def run(
    run: Invocation,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, and its words.")
    ],
    gpu: Gpu,
    count: Count = 1,
    max_price: MaxPrice = None,
    duration: Duration = "1h",
    start_by: StartBy = "60s",
    region: Region = None,
    isolation: Isolation = None,
    verified: Verified = False,
    audit_bps: AuditBps = None,
    exclude_provider: ExcludeProvider = None,
    provider: Provider = None,
    one_round: OneRound = False,
    interruptible: Interruptible = False,
    put: Annotated[
        list[str] | None, typer.Option("--put", help="A file or folder to send; repeatable.")
    ] = None,
    get: Annotated[
        list[str] | None, typer.Option("--get", help="A file, folder or pattern to fetch.")
    ] = None,
    install: Annotated[
        list[str] | None, typer.Option("--install", help='A package: "torch==2.0.1".')
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; repeatable.")] = None,
) -> int:
    """Rent GPUs for one command; everything that is not used comes back."""
    settings = run.settings(max_price=max_price)
    request = requirement(
        settings,
        gpu=gpu,
        count=count,
        duration=duration,
        start_by=start_by,
        region=region,
        isolation=isolation,
        verified=verified,
        audit_bps=audit_bps,
        exclude_provider=exclude_provider,
        provider=provider,
        one_round=one_round,
        interruptible=interruptible,
    )
    environment = variables(env or [])
    confirm(run, f"Lock up to {format_tokens(request.most)} tokens for {request.count} x {gpu}?")
    try:
        result, bill = _rented(run, settings, request, command, environment, put, get, install)
    except CloudGpuError as error:
        failure = failure_of(error)
        run.say.failure(failure)
        return failure.code if isinstance(error, RunError) else ExitCode.RUN_FAILED
    except (OSError, ValueError) as error:
        run.say.failure(failure_of(refused_here(error)))
        return ExitCode.RUN_FAILED
    _tell(run, result, bill)
    return result.code


def _rented(
    run: Invocation,
    settings: Settings,
    request: LeaseRequest,
    command: list[str],
    environment: dict[str, str],
    put: list[str] | None,
    get: list[str] | None,
    install: list[str] | None,
) -> tuple[RunResult, Bill | None]:
    words = wishes(request) | {"open_timeout": run.wait}
    with run.outside.session(settings, run.say.progress, **words) as session:
        if install:
            session.install(*install)
        for local in put or []:
            session.put(local)
        run.say.progress(f"running {shlex.join(command)}")
        live = run.form is Format.TABLE
        result = session.run(command, env=environment, check=False, stream=live)
        for remote in get or []:
            for path in session.get(remote):
                run.say.progress(f"fetched {path}")
        held: OpenSession = session
    return result, held.bill


def _tell(run: Invocation, result: RunResult, bill: Bill | None) -> None:
    if run.form is Format.TABLE:
        sys.stdout.flush()
        run.say.progress(f"exit code {result.code} after {result.duration_s:.1f} s")
        return  # the session has told its bill
    payload: dict[str, Any] = {
        "exit_code": result.code,
        "outcome": str(result.outcome),
        "seconds": round(result.duration_s, 3),
        "stdout": result.stdout,
        "stderr": result.stderr,
        "outputs": [{"path": f.path, "sha256": f.sha256, "size": f.size} for f in result.outputs],
        "cost": money(result.cost),
    }
    if bill is not None:
        payload |= {"lease": str(bill.lease), "gpu_class": bill.gpu_class, "gpus": bill.gpus}
        payload["price"] = rate(bill.price)
        payload["paid"], payload["refund"] = money(bill.paid), money(bill.refund)
        payload["settled"], payload["end"] = bill.settled, bill.reason.text
    run.say.result("run", payload, lambda: "")


def variables(pairs: list[str]) -> dict[str, str]:
    """NAME=VALUE words as a mapping. Raises UsageWrong."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageWrong(f"--env: found {pair!r}, needed NAME=VALUE")
        found[name] = value
    return found
