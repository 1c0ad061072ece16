"""What a demo found out: the numbers for machines, and what is wrong with them.

They come from chain reads, from verifiers' records and from the sessions; nothing is computed
twice or filled in. `demo_tables` shows the same to people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloud_gpu.accounting import BatchKey, BatchLife, Books, Change, GasUse, LeaseLife
from cloud_gpu.cli.demo_sweep import Attempt, Standing, Trial
from cloud_gpu.cli.output import money, rate
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import format_tokens
from cloud_gpu.protocol.values import Address


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A daemon that was killed and started again."""

    name: str
    when: str
    away_s: float
    provider: Address | None = None
    """Whose daemon it was, if a provider's."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """One demo from start to end."""

    sweep: Sequence[Trial]
    attempts: Sequence[Attempt]
    accepted: Mapping[Trial, Attempt]
    standings: Mapping[LeaseKey, Standing]
    truth: Mapping[Trial, bytes]
    """Every trial's result as it was computed here."""
    lives: Sequence[LeaseLife]
    buyer: Address
    drawn: Mapping[BatchKey, tuple[int, ...]]
    """The audited segments of each batch."""
    crashes: Sequence[Crash]
    changes: Sequence[Change]
    names: Mapping[Address, str]
    books: Books
    """At the end."""
    gas: Sequence[GasUse]
    stand_ins: Sequence[str]
    seconds: float

    @property
    def leases(self) -> list[LeaseLife]:
        """The buyer's."""
        return [life for life in self.lives if life.buyer == self.buyer]

    @property
    def batches(self) -> list[BatchLife]:
        """Of the buyer's leases."""
        return [batch for life in self.leases for batch in life.batches]

    @property
    def refunded(self) -> list[LeaseLife]:
        """Leases whose provider failed, so that money came back."""
        return [life for life in self.leases if why_refunded(life)]

    @property
    def wrong_accepted(self) -> list[Trial]:
        """Trials whose accepted result is not what was computed here."""
        return [
            trial
            for trial, attempt in self.accepted.items()
            if attempt.written != self.truth.get(trial)
        ]

    @property
    def best(self) -> Attempt | None:
        """The accepted result that the sweep chooses: by validation, as the test set may not."""
        found = list(self.accepted.values())
        return max(found, key=lambda a: a.result["validated"], default=None)

    @property
    def slashed(self) -> list[Address]:
        """Providers whose bond was slashed."""
        return list(dict.fromkeys(life.key.provider for life in self.leases if life.fines))

    def lost_by(self, crash: Crash) -> str:
        """What a crash cost; empty: nothing."""
        stopped = [life for life in self.leases if life.stopped_at is not None]
        if any(life.key.provider == crash.provider for life in stopped):
            return "its lease; what ran there was run by others"
        return ""

    @property
    def problems(self) -> list[str]:
        """What is wrong with it; empty: nothing."""
        found = [
            f"{trial} has no accepted result" for trial in self.sweep if trial not in self.accepted
        ]
        found += [
            f"{trial}: no result to hold it against"
            for trial in self.sweep
            if trial not in self.truth
        ]
        found += [f"{trial}: a wrong result was accepted" for trial in self.wrong_accepted]
        for life in self.lives:
            if life.reason is None:
                found.append(f"lease {life.key.short} is open")
            elif life.held:
                found.append(f"lease {life.key.short} holds {format_tokens(life.held)} back")
        found += [
            f"{self.names[change.account]} gained {format_tokens(change.unexplained)} unexplained"
            for change in self.changes
            if change.unexplained
        ]
        if self.books.difference:
            found.append(f"LeaseBook holds {self.books.difference} base units more than it owes")
        if sum(change.difference for change in self.changes):
            found.append("tokens appeared or vanished")
        if not self.slashed:
            found.append("nobody was slashed, though a provider returned wrong results")
        if not any(life.stopped_at is not None for life in self.leases):
            found.append("the lease of the provider that died was not stopped")
        return found

    def payload(self) -> dict[str, Any]:
        """The demo's JSON."""
        best = self.best
        return {
            "jobs_completed": len(self.accepted),
            "jobs_wrong_accepted": len(self.wrong_accepted),
            "leases_opened": len(self.leases),
            "leases_refunded": len(self.refunded),
            "audits": sum(len(self.drawn.get(batch.key, ())) for batch in self.batches),
            "re_executions": len(self.lives) - len(self.leases),
            "slashed": len(self.slashed),
            "fines": money(sum(life.fines.value for life in self.leases)),
            "balance_difference": self.books.difference,
            "accuracy": best.result["accuracy"] if best else None,
            "cost": money(sum(cost_of(life) for life in self.leases)),
            "stand_ins": list(self.stand_ins),
            "seconds": round(self.seconds, 1),
            "gas": sum(use.gas for use in self.gas),
            "gas_by_step": {
                use.step: {"transactions": use.transactions, "gas": use.gas} for use in self.gas
            },
            "jobs": [self._job(attempt) for attempt in self.attempts],
            "leases": [self._lease(life) for life in self.leases],
            "batches": [self._batch(batch) for batch in self.batches],
            "crashes": [
                {
                    "daemon": crash.name,
                    "when": crash.when,
                    "away_s": round(crash.away_s, 1),
                    "lost": self.lost_by(crash),
                }
                for crash in self.crashes
            ],
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

    def _job(self, attempt: Attempt) -> dict[str, Any]:
        return {
            "trial": attempt.trial.number,
            "hidden": attempt.trial.hidden,
            "step": attempt.trial.step,
            "lease": str(attempt.lease),
            "provider": self.names[attempt.lease.provider],
            "seconds": round(attempt.seconds, 1),
            "cost": money(attempt.cost),
            "result": dict(attempt.result),
            "standing": str(self.standings.get(attempt.lease, Standing.PENDING)),
            "is_right": attempt.written == self.truth.get(attempt.trial),
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
            "refunded_pay": money(refunded_pay(life)),
            "compensation": money(life.penalty),
            "audit_share": money(life.audit_share),
            "end": life.reason.text if life.reason is not None else None,
            "why_refunded": why_refunded(life),
        }

    def _batch(self, batch: BatchLife) -> dict[str, Any]:
        return {
            "lease": str(batch.lease),
            "batch_no": batch.batch_no,
            "provider": self.names[batch.lease.provider],
            "results": batch.n,
            "audited": list(self.drawn.get(batch.key, ())),
            "convicted": [s.i for s in batch.accused if s.convicted_at is not None],
            "state": str(batch.state),
            "pay": money(batch.value),
            "to_provider": money(batch.provider),
            "refunded": money(batch.convicted),
            "forfeited": money(batch.forfeited),
            "fines": money(batch.fines),
        }


def refunded_pay(life: LeaseLife) -> int:
    """What of its pay came back to the buyer, base units."""
    back = life.convicted.value + life.inconclusive.value + life.returned.value
    return back + life.penalty.value


def cost_of(life: LeaseLife) -> int:
    """What a lease cost its buyer in the end, base units."""
    return life.paid.value + life.audit_share.value - refunded_pay(life)


def why_refunded(life: LeaseLife) -> str:
    """Why money came back that a sound lease would have cost; empty: none did."""
    if life.convicted:
        return "wrong results"
    if life.reason is not None and not life.reason.started:
        return "never began"
    if life.stopped_at is not None:
        return "provider went silent"
    return "audits without a verdict" if refunded_pay(life) else ""
