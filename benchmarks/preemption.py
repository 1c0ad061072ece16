"""The preemption threshold on a real week: thrash, goodput and revenue at 1.0, 0.9, 0.8 and 0.6.

Twelve machines are let to a week of one-GPU tasks of Alibaba's public cluster-trace-gpu-v2023:
latency-sensitive ones (LS) take firm machines, best-effort ones (BE) interruptible ones. Who is
told, and what is offered as what, is `node.notices`' decision; prices and patience are assumed. The
peer is a fixed split, eight firm and four interruptible. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloud_gpu.protocol.lease import LeaseFlags, LeaseKey, LeaseState, LeaseTerms
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address
from node.ledger import LeaseOnChain
from node.notices import paying_least, room_below

TRACE: Final = Path(__file__).parent / "traces" / "one_gpu_tasks.csv"
MACHINES: Final = 12
SPLIT_FIRM: Final = 8
"""Of the peer, by the load of the two kinds: 7.6 and 2.8 machines."""
THRESHOLDS: Final = (10_000, 9_000, 8_000, 6_000)
FIRM, SPARE = "LS", "BE"
PER_HOUR: Final = {FIRM: 1_200_000, SPARE: 700_000}
"""Base units. Assumed."""
NOTICE_S, PATIENCE_S, RESTART_S = 600, 3_600, 300
"""Of the product; how long a task waits before it goes elsewhere; what an interruption costs it."""
PROVIDER = Address(b"\x11" * 20)


@dataclass(slots=True)
class Task:
    """What wants a machine."""

    kind: str
    left_s: int
    since: int
    """When it began to wait."""


@dataclass(slots=True)
class Running:
    """A lease of a machine."""

    task: Task
    since: int
    seq: int
    told_until: int = 0
    """When its notice has run; 0: it has none."""

    def on_chain(self, machine: int) -> LeaseOnChain:
        """As the node's policy sees it."""
        terms = LeaseTerms(
            key=LeaseKey(provider=PROVIDER, index=machine, seq=self.seq),
            buyer=PROVIDER,
            cap=TokenAmount(PER_HOUR[self.task.kind]),
            duration=3_600,
            start_deadline=self.since,
            market_id=1,
            opened_at=self.since,
            flags=LeaseFlags.INTERRUPTIBLE if self.task.kind == SPARE else 0,
        )
        return LeaseOnChain(
            terms=terms,
            state=LeaseState.ACTIVE,
            started_at=self.since,
            releasable_at=self.told_until,
        )


@dataclass
class Week:
    """One provider's week under one policy; None: the fixed split."""

    threshold: BasisPoints | None
    now: int = 0
    machines: list[Running | None] = field(default_factory=lambda: [None] * MACHINES)
    waiting: dict[str, deque[Task]] = field(default_factory=lambda: {FIRM: deque(), SPARE: deque()})
    seen: dict[str, int] = field(default_factory=lambda: {FIRM: 0, SPARE: 0})
    started: dict[str, int] = field(default_factory=lambda: {FIRM: 0, SPARE: 0})
    paid_s: dict[str, int] = field(default_factory=lambda: {FIRM: 0, SPARE: 0})
    interruptions: int = 0
    leases: int = 0

    def play(self, tasks: list[tuple[int, int, str]]) -> None:
        """From the first task to the last one's arrival."""
        arrivals = deque(tasks)
        ends: list[tuple[int, int, int]] = []
        while arrivals:
            self.now = min(arrivals[0][0], ends[0][0] if ends else arrivals[0][0])
            while arrivals and arrivals[0][0] == self.now:
                _, duration, kind = arrivals.popleft()
                self.seen[kind] += 1
                self.waiting[kind].append(Task(kind, duration, self.now))
            while ends and ends[0][0] == self.now:
                _, machine, seq = heapq.heappop(ends)
                held = self.machines[machine]
                if held is not None and held.seq == seq:
                    self.end(machine, held)
            for machine, held in self.serve() + self.tell():
                until = held.since + held.task.left_s
                until = min(until, held.told_until or until)
                heapq.heappush(ends, (until, machine, held.seq))
        for machine, held in enumerate(self.machines):
            if held is not None:
                self.end(machine, held)

    def end(self, machine: int, held: Running) -> None:
        """Its task is done, or was taken its machine, or the week is over."""
        ran_s = self.now - held.since
        self.paid_s[held.task.kind] += ran_s
        self.machines[machine] = None
        if held.told_until and ran_s < held.task.left_s:
            self.interruptions += 1
            left_s = held.task.left_s - ran_s + RESTART_S
            self.waiting[SPARE].appendleft(Task(SPARE, left_s, self.now))

    def serve(self) -> list[tuple[int, Running]]:
        """Let what is free to who waits, firm ones first."""
        begun = []
        for kind in (FIRM, SPARE):
            queue = self.waiting[kind]
            while queue:
                if queue[0].since + PATIENCE_S < self.now:
                    queue.popleft()
                    continue
                machine = self.offered(kind)
                if machine is None:
                    break
                task = queue.popleft()
                self.started[kind] += 1
                self.leases += 1
                held = self.machines[machine] = Running(task, self.now, self.leases)
                begun.append((machine, held))
        return begun

    def room(self, threshold: BasisPoints) -> int:
        """How many more machines may be used below the threshold."""
        staying = sum(held is not None and not held.told_until for held in self.machines)
        return room_below(threshold, MACHINES, staying)

    def offered(self, kind: str) -> int | None:
        """A free machine that is offered so."""
        free = [machine for machine, held in enumerate(self.machines) if held is None]
        if self.threshold is None:
            free = [each for each in free if (each < SPLIT_FIRM) == (kind == FIRM)]
        else:
            spare = min(len(free), max(0, self.room(self.threshold)))
            free = free[:spare] if kind == SPARE else free[spare:]
        return free[0] if free else None

    def tell(self) -> list[tuple[int, Running]]:
        """Give notice to who pays least, where too many machines are used."""
        if self.threshold is None or (room := self.room(self.threshold)) >= 0:
            return []
        held = {i: each for i, each in enumerate(self.machines) if each is not None}
        told = paying_least([each.on_chain(i) for i, each in held.items()], (), -room)
        for key in told:
            held[key.index].told_until = self.now + NOTICE_S
        return [(key.index, held[key.index]) for key in told]

    def figures(self) -> dict[str, float]:
        """Shares, and tokens for each machine and hour."""
        capacity_s = MACHINES * self.now
        useful_s = sum(self.paid_s.values()) - RESTART_S * self.interruptions
        revenue = sum(PER_HOUR[kind] * paid for kind, paid in self.paid_s.items())
        return {
            "firm_served": round(self.started[FIRM] / self.seen[FIRM], 4),
            "interruptions": self.interruptions,
            "thrash": round(RESTART_S * self.interruptions / max(1, self.paid_s[SPARE]), 4),
            "goodput": round(useful_s / capacity_s, 4),
            "revenue_per_machine_hour": round(revenue / 1e6 / capacity_s, 4),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    with TRACE.open() as rows:
        tasks = [
            (int(row["created_s"]), int(row["duration_s"]), row["qos"])
            for row in csv.DictReader(rows)
        ]
    found = {}
    print(f"{'policy':>12} {'firm served':>12} {'interrupted':>12} {'thrash':>8} {'goodput':>8}"
          f" {'tokens/machine-h':>17}")  # fmt: skip
    for threshold in (None, *THRESHOLDS):
        week = Week(None if threshold is None else BasisPoints(threshold))
        week.play(tasks)
        name = "split" if threshold is None else f"{threshold / 10_000:.1f}"
        found[name] = row = week.figures()
        print(f"{name:>12} {row['firm_served']:>12.1%} {row['interruptions']:>12}"
              f" {row['thrash']:>8.2%} {row['goodput']:>8.1%}"
              f" {row['revenue_per_machine_hour']:>17.3f}")  # fmt: skip
    split = found["split"]["revenue_per_machine_hour"]
    for row in found.values():
        row["revenue_ratio_to_split"] = round(row["revenue_per_machine_hour"] / split, 3)
    print(json.dumps({"benchmark": "preemption", "tasks": len(tasks), "policies": found}))


if __name__ == "__main__":
    main()
