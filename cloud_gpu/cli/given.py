"""`cloud-gpu take`: take up a lease that a future or a group buy opens, and keep it open."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import UsageWrong
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.leases import bill_of, facts_of, keep, opened
from cloud_gpu.cli.trading import digest_of
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.taking import Given


def take(
    run: Invocation,
    lease: Annotated[
        str,
        typer.Argument(
            metavar="LEASE|CAMPAIGN|CONTRACT", help="A lease's name, or what will open one."
        ),
    ],
    nth: Annotated[
        int, typer.Option("--nth", min=1, help="Which of those that it opens for you.")
    ] = 1,
    name: Annotated[str | None, typer.Option("--name", help="How to call it.")] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Keep it here; Ctrl-C ends it.")
    ] = False,
) -> int:
    """Take up a lease that a future or a group buy opens for you, and keep it open to its end.

    Start it before the lease opens: whoever misses the start deadline pays a no-show. `exec` runs
    commands in it. Ending a future's lease early (`down`) costs margin for the time that is left.
    """
    wanted = _given(run, lease, nth - 1)
    settings, desk = run.settings(), run.outside.leases()
    name = name or desk.free_name()
    if not foreground:
        words = ["take", lease, "--nth", str(nth), "--foreground", "--json", "--name", name]
        words += ["--timeout", str(run.wait)] if run.wait else []
        return opened(run, name, words)
    record: dict[str, Any] = {"name": name, "market": settings.market, "state": "open"}
    with desk.keeping(name):
        given = run.outside.given_session(settings, run.say.progress, wanted, run.wait)
        with given as session:
            duration = session.lease.funded.duration
            record |= facts_of(session, duration)
            keep(run, session, record, duration)
        assert session.bill is not None, "a session that was left has a bill"
        record |= {"state": "ended", "bill": bill_of(session.bill)}
        desk.note(name, record)
    run.say.result("lease", record, lambda: f"{name} has ended.")
    return ExitCode.DONE


def _given(run: Invocation, word: str, place: int) -> LeaseKey | Given:
    try:
        if "/" in word:
            return LeaseKey.parse(word)
        if word.isascii() and word.isdigit():
            return Given.of_contract(int(word), place)
        pledged = [known["campaign"] for known in run.outside.remembered("pledges")]
        return Given(opened_by=digest_of(word, "CAMPAIGN", pledged), place=place)
    except (ValueError, UsageWrong) as error:
        raise UsageWrong(
            f"found {word!r}, needed a lease (0x…/3/1), a campaign's id, or a contract's number:"
            f" {error}"
        ) from error
