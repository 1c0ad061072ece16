"""A demo's story as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud_gpu.accounting import BatchLife
from cloud_gpu.cli.demo_story import Story, cost_of, refunded_pay, why_refunded
from cloud_gpu.cli.demo_sweep import Standing
from cloud_gpu.protocol.units import format_duration, format_tokens

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table


def tables_of(story: Story) -> Group:
    """Results, leases, audits, crashes, the balance sheet, gas."""
    from rich.console import Group

    parts: list[RenderableType] = [_results(story), _leases(story), _audits(story)]
    if story.crashes:
        parts.append(_crashes(story))
    parts += [_sheet(story), _gas(story), _closing(story)]
    return Group(*(part for pair in parts for part in (pair, "")))


def _results(story: Story) -> Table:
    table = _table(
        "Results of the sweep",
        ("training", "validated", "accuracy", "provider"),
        ("seconds", "cost", "standing"),
    )
    for attempt in sorted(story.attempts, key=lambda a: a.trial.number):
        standing = story.standings.get(attempt.lease, Standing.PENDING)
        is_best = story.best is attempt
        table.add_row(
            str(attempt.trial),
            str(attempt.result["validated"]),
            str(attempt.result["accuracy"]),
            story.names[attempt.lease.provider],
            f"{attempt.seconds:.1f}",
            format_tokens(attempt.cost),
            f"{standing}, the best" if is_best else str(standing),
        )
    return table


def _leases(story: Story) -> Table:
    table = _table(
        "Leases",
        ("lease", "provider", "a GPU-hour", "locked", "ran", "ended by"),
        ("pay", "to audits", "came back", "cost", "refunded because"),
    )
    for life in story.leases:
        began = life.started_at
        table.add_row(
            life.key.short,
            story.names[life.key.provider],
            format_tokens(life.price),
            format_tokens(life.cap),
            format_duration((life.closed_at or 0) - began) if began is not None else "never",
            life.reason.text if life.reason is not None else "open",
            format_tokens(life.paid),
            format_tokens(life.audit_share),
            format_tokens(life.refund.value + refunded_pay(life)),
            format_tokens(cost_of(life)),
            why_refunded(life) or "-",
        )
    return table


def _audits(story: Story) -> Table:
    table = _table(
        "Audits",
        ("lease", "provider", "results", "audited", "found"),
        ("pay held", "to provider", "to buyer", "burnt", "fine"),
    )
    for batch in story.batches:
        table.add_row(
            batch.lease.short,
            story.names[batch.lease.provider],
            str(batch.n),
            str(len(story.drawn.get(batch.key, ()))),
            _found(batch),
            format_tokens(batch.value),
            format_tokens(batch.provider),
            format_tokens(batch.convicted + batch.inconclusive),
            format_tokens(batch.forfeited),
            format_tokens(batch.fines),
        )
    return table


def _found(batch: BatchLife) -> str:
    convicted = sum(segment.convicted_at is not None for segment in batch.accused)
    if convicted:
        return f"{convicted} wrong, by two verifiers' word"
    return "all repeated alike" if batch.state == "final" else str(batch.state)


def _crashes(story: Story) -> Table:
    table = _table("Crashes", ("daemon", "killed", "away, seconds", "lost"))
    for crash in story.crashes:
        lost = story.lost_by(crash) or "nothing"
        table.add_row(crash.name, crash.when, f"{crash.away_s:.1f}", lost)
    return table


def _sheet(story: Story) -> Table:
    table = _table("Balance sheet, tokens", ("party", "start", "end", "change", "why"))
    for change in story.changes:
        table.add_row(
            story.names[change.account],
            format_tokens(change.start),
            format_tokens(change.end),
            _signed(change.difference),
            ", ".join(f"{reason} {_signed(amount)}" for reason, amount in change.why) or "-",
        )
    held, owed = format_tokens(story.books.held), format_tokens(story.books.liabilities)
    table.add_section()
    table.add_row(
        "LeaseBook",
        "",
        f"holds {held}",
        _signed(story.books.difference),
        f"owes {owed}: cash, bonds, pay that is locked or held",
    )
    return table


def _gas(story: Story) -> Table:
    table = _table("Gas", ("contract", "step", "transactions", "gas", "each"))
    for use in story.gas:
        each = f"{use.gas // use.transactions:,}"
        table.add_row(use.contract, use.step, str(use.transactions), f"{use.gas:,}", each)
    return table


def _closing(story: Story) -> str:
    right = len(story.accepted) - len(story.wrong_accepted)
    repeated = len(story.lives) - len(story.leases)
    return (
        f"{right} of {len(story.sweep)} results are what this machine computes, too;"
        f" {repeated} leases repeated work for audits. {story.seconds:.0f} s.\n"
        f"Stand-ins: {'; '.join(story.stand_ins)}."
    )


def _table(title: str, *columns: tuple[str, ...]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in (name for part in columns for name in part):
        table.add_column(column, overflow="fold")
    return table


def _signed(amount: int) -> str:
    return f"+{format_tokens(amount)}" if amount > 0 else format_tokens(amount)
