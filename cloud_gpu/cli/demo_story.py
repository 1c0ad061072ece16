"""What a demo found out, and how it is told: JSON for machines, tables for people.

Numbers come from chain reads and from the session; nothing is computed twice or filled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloud_gpu.accounting import Books, Change, GasUse, LeaseLife
from cloud_gpu.cli.output import money, rate
from cloud_gpu.protocol.units import TokenAmount, format_duration, format_tokens
from cloud_gpu.protocol.values import Address

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class FinishedJob:
    """One job that ran in a lease."""

    command: str
    exit_code: int
    seconds: float
    cost: TokenAmount
    result: Mapping[str, Any]
    """What it wrote: accuracy and so on."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """One demo from start to end."""

    jobs: Sequence[FinishedJob]
    lives: Sequence[LeaseLife]
    changes: Sequence[Change]
    names: Mapping[Address, str]
    books: Books
    """At the end."""
    gas: Sequence[GasUse]
    stand_ins: Sequence[str]
    seconds: float

    @property
    def refunded(self) -> list[LeaseLife]:
        """Leases that never began and whose money came back whole."""
        return [
            life
            for life in self.lives
            if life.reason is not None and not life.reason.started and life.refund == life.cap
        ]

    @property
    def problems(self) -> list[str]:
        """What is wrong with it; empty: nothing."""
        found = [f"{job.command} exited with {job.exit_code}" for job in self.jobs if job.exit_code]
        found += [f"lease {life.key.short} is open" for life in self.lives if life.reason is None]
        found += [
            f"{self.names[change.account]} gained {format_tokens(change.unexplained)} unexplained"
            for change in self.changes
            if change.unexplained
        ]
        if self.books.difference:
            found.append(f"LeaseBook holds {self.books.difference} base units more than it owes")
        if sum(change.difference for change in self.changes):
            found.append("tokens appeared or vanished")
        if not self.jobs:
            found.append("no job ran")
        if not self.refunded:
            found.append("the lease of the provider that died was not refunded")
        return found

    def payload(self) -> dict[str, Any]:
        """The demo's JSON."""
        return {
            "jobs_completed": sum(job.exit_code == 0 for job in self.jobs),
            "leases_opened": len(self.lives),
            "leases_refunded": len(self.refunded),
            "balance_difference": self.books.difference,
            "accuracy": self.jobs[0].result.get("accuracy") if self.jobs else None,
            "cost": money(sum(job.cost.value for job in self.jobs)),
            "stand_ins": list(self.stand_ins),
            "seconds": round(self.seconds, 1),
            "gas": sum(use.gas for use in self.gas),
            "gas_by_step": {
                use.step: {"transactions": use.transactions, "gas": use.gas} for use in self.gas
            },
            "jobs": [_job(job) for job in self.jobs],
            "leases": [self._lease(life) for life in self.lives],
            "parties": [
                {
                    "name": self.names[change.account],
                    "account": str(change.account),
                    "start": money(change.start),
                    "end": money(change.end),
                    "change": money(change.difference),
                    "why": {reason: money(amount) for reason, amount in change.why},
                }
                for change in self.changes
            ],
            "book": {"held": money(self.books.held), "owed": money(self.books.liabilities)},
            "problems": self.problems,
        }

    def _lease(self, life: LeaseLife) -> dict[str, Any]:
        return {
            "lease": str(life.key),
            "provider": self.names[life.key.provider],
            "gpu_class": life.gpu_class,
            "gpus": life.gpus,
            "price": rate(life.price),
            "locked": money(life.cap),
            "opened_at": life.opened_at,
            "started_at": life.started_at,
            "ended_at": life.closed_at,
            "paid": money(life.paid),
            "fee": money(life.fee),
            "refund": money(life.refund),
            "compensation": money(life.penalty),
            "end": life.reason.text if life.reason is not None else None,
        }

    def tables(self) -> Group:
        """For people."""
        from rich.console import Group

        parts: list[RenderableType] = [
            _jobs_table(self.jobs),
            self._lease_table(),
            self._sheet_table(),
            _gas_table(self.gas),
            "Stand-ins: " + "; ".join(self.stand_ins) + ".",
        ]
        return Group(*(part for pair in parts for part in (pair, "")))

    def _lease_table(self) -> Table:
        table = _table(
            "Leases",
            ("lease", "provider", "GPUs", "a GPU-hour", "locked", "began after"),
            ("ran", "paid", "of it fee", "refund", "from the bond", "ended by"),
        )
        for life in self.lives:
            began = life.started_at
            ran = (life.closed_at or 0) - began if began is not None else 0
            table.add_row(
                life.key.short,
                self.names[life.key.provider],
                f"{life.gpus} x {life.gpu_class}",
                format_tokens(life.price),
                format_tokens(life.cap),
                format_duration(began - life.opened_at) if began is not None else "never",
                format_duration(ran),
                format_tokens(life.paid),
                format_tokens(life.fee),
                format_tokens(life.refund),
                format_tokens(life.penalty),
                life.reason.text if life.reason is not None else "open",
            )
        return table

    def _sheet_table(self) -> Table:
        table = _table("Balance sheet, tokens", ("party", "start", "end", "change", "why"))
        for change in self.changes:
            table.add_row(
                self.names[change.account],
                format_tokens(change.start),
                format_tokens(change.end),
                _signed(change.difference),
                ", ".join(f"{reason} {_signed(amount)}" for reason, amount in change.why) or "-",
            )
        held, owed = format_tokens(self.books.held), format_tokens(self.books.liabilities)
        table.add_section()
        table.add_row(
            "LeaseBook",
            "",
            f"holds {held}",
            _signed(self.books.difference),
            f"owes {owed}: cash, bonds and locked money of all accounts",
        )
        return table


def _job(job: FinishedJob) -> dict[str, Any]:
    return {
        "command": job.command,
        "exit_code": job.exit_code,
        "seconds": round(job.seconds, 1),
        "cost": money(job.cost),
        "result": dict(job.result),
    }


def _jobs_table(jobs: Sequence[FinishedJob]) -> Table:
    table = _table("Jobs", ("command", "exit code", "seconds", "cost", "result"))
    for job in jobs:
        shown = ", ".join(f"{name} {value}" for name, value in job.result.items())
        table.add_row(
            job.command, str(job.exit_code), f"{job.seconds:.1f}", format_tokens(job.cost), shown
        )
    return table


def _gas_table(uses: Sequence[GasUse]) -> Table:
    table = _table("Gas of LeaseBook", ("step", "transactions", "gas", "each"))
    for use in uses:
        each = f"{use.gas // use.transactions:,}"
        table.add_row(use.step, str(use.transactions), f"{use.gas:,}", each)
    return table


def _table(title: str, *columns: tuple[str, ...]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in (name for part in columns for name in part):
        table.add_column(column, overflow="fold")
    return table


def _signed(amount: int) -> str:
    return f"+{format_tokens(amount)}" if amount > 0 else format_tokens(amount)
