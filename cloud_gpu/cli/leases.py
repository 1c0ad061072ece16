"""`cloud-gpu up`, `down`, `ps`, `show`: leases that stay open between commands, by name."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cloud_gpu.cli.confirming import confirm
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import NoSuchThing, StillWaiting
from cloud_gpu.cli.invocation import Invocation, seconds
from cloud_gpu.cli.keeping import LeaseKeeper
from cloud_gpu.cli.output import money, rate
from cloud_gpu.cli.requirements import (
    AuditBps,
    Count,
    Duration,
    ExcludeProvider,
    Gpu,
    Interruptible,
    Isolation,
    MaxPrice,
    Provider,
    Region,
    StartBy,
    Verified,
    flags,
    requirement,
    wishes,
)
from cloud_gpu.cli.trading import table_of
from cloud_gpu.protocol.errors import OutsideWorldError
from cloud_gpu.protocol.units import format_duration, format_tokens

if TYPE_CHECKING:
    from rich.table import Table

    from cloud_gpu.cli.outside import OpenSession
    from cloud_gpu.outcomes import Bill

_IDLE_S: Final = 15 * 60

IdleTimeout = Annotated[
    int,
    typer.Option(
        "--idle-timeout",
        parser=seconds,
        metavar="DURATION",
        show_default="15m",
        help="End it when unused for so long.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name; `cloud-gpu ps` lists them.")]


def up(
    run: Invocation,
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
    interruptible: Interruptible = False,
    name: Annotated[str | None, typer.Option("--name", help="How to call it.")] = None,
    idle_timeout: IdleTimeout = _IDLE_S,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Keep it here; Ctrl-C ends it.")
    ] = False,
) -> int:
    """Open a lease and keep it open: `exec` runs commands in it, `down` ends it."""
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
        interruptible=interruptible,
    )
    desk = run.outside.leases()
    name = name or desk.free_name()
    if not foreground:
        most = format_tokens(request.most)
        confirm(run, f"Lock up to {most} tokens for {request.count} x {gpu}?")
        words = ["--name", name, "--max-price", settings.max_price]
        words += ["--idle-timeout", str(idle_timeout)]
        words += ["--timeout", str(run.wait)] if run.wait else []
        return opened(run, name, ["up", "--foreground", "--json", "--yes", *words, *flags(request)])
    record: dict[str, Any] = {"name": name, "market": settings.market, "state": "open"}
    with desk.keeping(name):
        wanted = wishes(request) | {"open_timeout": run.wait}
        with run.outside.session(settings, run.say.progress, **wanted) as session:
            record |= facts_of(session, request.duration)
            keep(run, session, record, idle_timeout)
        assert session.bill is not None, "a session that was left has a bill"
        record |= {"state": "ended", "bill": bill_of(session.bill)}
        desk.note(name, record)
    run.say.result("lease", record, lambda: f"{name} has ended.")
    return ExitCode.DONE


def keep(run: Invocation, session: OpenSession, record: dict[str, Any], idle_s: int) -> None:
    """Answer other commands about an open lease, until it should end."""
    desk, keeper, name = run.outside.leases(), LeaseKeeper(session, idle_s), str(record["name"])
    with desk.answering(name, keeper.answer):
        desk.note(name, record)
        run.say.progress(f"{name} is open")
        try:
            keeper.wait()
        except KeyboardInterrupt:
            keeper.ended_by = "interrupted"
    run.say.progress(f"{name} ends: {keeper.ended_by}")


def facts_of(session: OpenSession, duration: int) -> dict[str, Any]:
    """What is noted of an open lease; `duration` in seconds."""
    lease = session.lease
    opened_at = time.time_ns() // 1_000_000
    return {
        "lease": str(lease.funded.lease),
        "provider": str(lease.funded.lease.provider),
        "gpu_class": lease.report.profile.gpu_class,
        "gpus": lease.gpus,
        "simulated": lease.report.profile.simulated,
        "runtime": lease.report.runtime,
        "price": rate(lease.funded.price),
        "per_hour": money(session.cost().per_hour),
        "locked": money(lease.funded.cap),
        "opened_at": opened_at,
        "funded_until": opened_at + duration * 1000,
    }


def bill_of(bill: Bill) -> dict[str, Any]:
    """What a lease cost."""
    return {
        "seconds": bill.ran_s,
        "paid": money(bill.paid),
        "refund": money(bill.refund),
        "settled": bill.settled,
        "end": bill.reason.text,
        "note": bill.note,
    }


def opened(run: Invocation, name: str, words: list[str]) -> int:
    """Start the keeper in the background and wait until the lease is usable."""
    desk = run.outside.leases()
    if desk.is_kept(name):
        row = desk.record(name) or {"name": name}
        run.say.progress(f"{name} is open already")
        run.say.result("lease", row, lambda: _details(row))
        return ExitCode.DONE
    desk.forget(name)
    keeper = desk.start_keeper(name, words)
    try:
        while True:
            for line in keeper.news():
                run.say.progress(line)
            record = desk.record(name)
            if record is not None:
                break
            if keeper.exit_code() is not None:
                return _failed(run, name, keeper.result(), keeper.exit_code() or 0)
            time.sleep(0.1)
    except KeyboardInterrupt:
        keeper.interrupt()
        raise
    run.say.result("lease", record, lambda: _details(record))
    run.say.next(f"cloud-gpu exec {name} -- COMMAND; cloud-gpu down {name}")
    return ExitCode.DONE


def _failed(run: Invocation, name: str, result: str, code: int) -> int:
    """The keeper's own error, as ours."""
    run.outside.leases().forget(name)
    error = json.loads(result.splitlines()[-1]) if result.strip() else {}
    words = {key: str(error.get(key, "")) for key in ("reason", "found", "needed", "next")}
    run.say.failed_elsewhere(code, words)
    return code


def down(run: Invocation, name: Name) -> int:
    """End a lease now; what was not used comes back."""
    desk, record = run.outside.leases(), known(run, name)
    if record["state"] != "open":
        run.say.progress(f"{name} had ended already")
    elif desk.is_kept(name):
        for _ in desk.ask(name, {"do": "down"}):
            pass  # it has nothing to say before it is done
        run.say.progress(f"ending {name}")
        deadline = time.monotonic() + run.wait_s
        while desk.is_kept(name):
            if time.monotonic() > deadline:
                raise StillWaiting(f"{name} is still ending", "its bill", "cloud-gpu ps")
            time.sleep(0.1)
        record = known(run, name)
    row = _row(run, name, record)
    run.say.result("lease", row, lambda: _details(row))
    return ExitCode.DONE


def ps(
    run: Invocation,
    everything: Annotated[bool, typer.Option("--all", help="Ended ones too.")] = False,
) -> None:
    """List the leases that are kept open from here."""
    desk = run.outside.leases()
    rows = [
        _row(run, name, record)
        for name in desk.names()
        if (record := desk.record(name)) is not None
    ]
    shown = [row for row in rows if everything or row["state"] != "ended"]
    run.say.results("lease", shown, lambda: _table(shown))


def show(run: Invocation, name: Name) -> None:
    """Say all about one lease: cost so far, jobs, funded until, how it ended."""
    row = _row(run, name, known(run, name), jobs=True)
    run.say.result("lease", row, lambda: _details(row))


def known(run: Invocation, name: str) -> dict[str, Any]:
    """A lease's record. Raises NoSuchThing."""
    record = run.outside.leases().record(name)
    if record is None:
        names = ", ".join(run.outside.leases().names()) or "no lease"
        raise NoSuchThing(f"no lease {name!r}", f"one of: {names}", "cloud-gpu ps --all")
    return record


def _row(
    run: Invocation, name: str, record: Mapping[str, Any], *, jobs: bool = False
) -> dict[str, Any]:
    """A record, and what its keeper says now."""
    desk, row = run.outside.leases(), dict(record)
    if row["state"] != "open":
        return row
    if not desk.is_kept(name):
        return {**row, "state": "lost", "note": LOST}
    try:
        (live,) = desk.ask(name, {"do": "status"})
    except (OutsideWorldError, ValueError):
        return {**row, "state": "ending"}
    row |= {"accrued": live["accrued"], "jobs_running": 0}
    if live["releasable_at"]:
        row |= {"releasable_at": live["releasable_at"], "note": NOTICED}
    row["jobs_running"] = sum(job["state"] == "running" for job in live["jobs"])
    return {**row, "jobs": live["jobs"]} if jobs else row


NOTICED = "its provider gave notice: it may end from `releasable_at` on"
LOST = "its keeper died: the provider is paid no more, and closes it; what is left comes back"


def _table(rows: list[dict[str, Any]]) -> Table:
    shown = []
    for row in rows:
        until_ms = min(row["funded_until"], row.get("releasable_at", row["funded_until"]))
        left_s = max(0, until_ms // 1000 - int(time.time()))
        cost = row.get("bill", {}).get("paid") or row.get("accrued") or {}
        shown.append(
            (
                row["name"],
                row["state"],
                f"{row['gpus']} x {row['gpu_class']}",
                row["per_hour"]["amount"],
                cost.get("amount", ""),
                format_duration(left_s) if row["state"] == "open" else "",
                str(row.get("jobs_running", "")),
            )
        )
    return table_of(("name", "state", "GPUs", "an hour", "so far", "funded for", "jobs"), shown)


def _details(row: Mapping[str, Any]) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in row.items():
        if name == "jobs":
            for job in value:
                code = "" if job["exit_code"] is None else f" ({job['exit_code']})"
                table.add_row(f"job {job['job']}", f"{job['state']}{code}: {job['command']}")
        elif isinstance(value, dict) and "unit" in value:
            table.add_row(name, f"{value['amount']} {value['unit']}")
        elif isinstance(value, dict):
            for key, held in value.items():
                table.add_row(key, held["amount"] if isinstance(held, dict) else str(held))
        else:
            table.add_row(name, str(value))
    return table
