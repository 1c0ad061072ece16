"""A demo that did not come out even says so, in words, in its JSON and in its exit code."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from cloud_gpu.accounting import (
    AccusedSegment,
    BatchLife,
    Books,
    GasUse,
    Holding,
    LeaseLife,
    explain,
)
from cloud_gpu.cli.demo_story import Crash, Story
from cloud_gpu.cli.demo_sweep import Attempt, Standing, Trial, standing, trials
from cloud_gpu.cli.demo_tables import tables_of
from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address

HONEST, LIAR, SILENT, BUYER, AUDITS = (Address(bytes([n]) * 20) for n in range(1, 6))
GRID = trials(1)[:2]
GOOD, BAD = b'{"validated": 0.95, "accuracy": 0.96}', b'{"validated": 0.9999, "accuracy": 0.9999}'


def batch(provider: Address, state: BatchState | None, **changes: Any) -> BatchLife:
    found = BatchLife(
        lease=LeaseKey(provider=provider, index=0, seq=1),
        batch_no=0,
        n=1,
        value=TokenAmount(300),
        locked=TokenAmount(6_000),
        committed_at=120,
        drawn_at=123,
        finalised_at=150 if state else None,
        ended_as=state,
        provider=TokenAmount(300 if state is BatchState.FINAL else 0),
    )
    return replace(found, **changes)


def convicted() -> BatchLife:
    segment = AccusedSegment(
        i=0,
        accused_at=130,
        until=138,
        convicted_at=139,
        refund=TokenAmount(300),
        fine=TokenAmount(6_000),
    )
    return batch(LIAR, BatchState.PARTIAL, accused=(segment,))


def life(
    provider: Address, *batches: BatchLife, buyer: Address = BUYER, **changes: Any
) -> LeaseLife:
    found = LeaseLife(
        key=LeaseKey(provider=provider, index=0, seq=1),
        buyer=buyer,
        gpu_class=GpuClass("RTX4090-24GB"),
        gpus=1,
        price=Price(400_000),
        cap=TokenAmount(66_666),
        duration=600,
        market_id=0,
        opened_at=100,
        started_at=101,
        closed_at=110,
        paid=TokenAmount(300),
        reason=LeaseEndReason.STOPPED,
        verified=bool(batches),
        batches=batches,
    )
    return replace(found, **changes)


def attempt(trial: Trial, provider: Address, written: bytes) -> Attempt:
    key = LeaseKey(provider=provider, index=0, seq=1)
    cost = TokenAmount(250)
    return Attempt(trial=trial, lease=key, seconds=2.0, cost=cost, written=written)


def books(**cash: int) -> Books:
    accounts = {"honest": HONEST, "liar": LIAR, "silent": SILENT, "buyer": BUYER, "audits": AUDITS}
    holdings = {
        account: Holding(wallet=0, cash=cash.get(name, 10_000), bond=0, escrow=0)
        for name, account in accounts.items()
    }
    held = sum(holding.cash for holding in holdings.values())
    return Books(block=9, holdings=holdings, held=held, burnt=cash.get("burnt", 0))


def story() -> Story:
    lives = [
        life(HONEST, batch(HONEST, BatchState.FINAL)),
        life(LIAR, convicted()),
        life(SILENT, stopped_at=108, paid=TokenAmount(0)),
        life(HONEST, buyer=AUDITS, key=LeaseKey(provider=HONEST, index=1, seq=1)),
    ]
    first, second = GRID
    good = attempt(first, HONEST, GOOD), attempt(second, HONEST, GOOD)
    after = books(honest=10_600, liar=4_000, buyer=9_700, audits=9_700, burnt=6_000)
    return Story(
        sweep=GRID,
        attempts=[good[0], attempt(second, LIAR, BAD), good[1]],
        accepted=dict(zip(GRID, good, strict=True)),
        standings={a.lease: Standing.ACCEPTED for a in good},
        truth=dict.fromkeys(GRID, GOOD),
        lives=lives,
        buyer=BUYER,
        drawn={each.key: (0,) for each in (batch(HONEST, None), batch(LIAR, None))},
        crashes=[
            Crash(name="market", when="while jobs run", away_s=4.2),
            Crash(name="node-3", when="while working", away_s=9.9, provider=SILENT),
        ],
        changes=explain(books(), after, lives, {}),
        names={
            HONEST: "provider 0",
            LIAR: "provider 2",
            SILENT: "provider 3",
            BUYER: "buyer",
            AUDITS: "verifier 0",
            Address(bytes.fromhex("dead".rjust(40, "0"))): "nobody (burnt)",
        },
        books=after,
        gas=[GasUse(step="openBatch", transactions=2, gas=140_000)],
        stand_ins=["simulated GPUs"],
        seconds=30.04,
    )


def test_a_sound_demo_has_no_problem_and_all_its_numbers() -> None:
    told = story().payload()
    assert told["problems"] == []
    assert (told["jobs_completed"], told["jobs_wrong_accepted"]) == (2, 0)
    assert (told["leases_opened"], told["leases_refunded"]) == (3, 2)
    assert (told["audits"], told["re_executions"], told["slashed"]) == (2, 1, 1)
    assert told["fines"] == {"amount": "0.006", "unit": "token"}
    assert (told["balance_difference"], told["gas"], told["seconds"]) == (0, 140_000, 30.0)
    assert (told["accuracy"], told["cost"]["amount"]) == (0.96, "0.0003")
    assert [lease["why_refunded"] for lease in told["leases"]] == [
        "",
        "wrong results",
        "provider went silent",
    ]
    assert [crash["lost"] for crash in told["crashes"]] == [
        "",
        "its lease; what ran there was run by others",
    ]
    assert [job["is_right"] for job in told["jobs"]] == [True, False, True]


def spoilt(found: Story, what: str) -> Story:
    first, second = GRID
    open_lease = life(SILENT, reason=None, key=LeaseKey(provider=SILENT, index=1, seq=1))
    changes: dict[str, Any] = {
        "missing": {"accepted": {first: found.accepted[first]}},
        "wrong": {"accepted": {**found.accepted, second: attempt(second, LIAR, BAD)}},
        "no truth": {"truth": {first: GOOD}},
        "open lease": {"lives": [*found.lives, open_lease]},
        "held": {"lives": [*found.lives[:1], life(LIAR, batch(LIAR, None)), *found.lives[2:]]},
        "unslashed": {"lives": [found.lives[0], *found.lives[2:]]},
        "no death": {"lives": [*found.lives[:2], found.lives[3]]},
        "book": {"books": replace(found.books, held=found.books.held - 1)},
        "leak": {"changes": [replace(found.changes[0], end=20_000), *found.changes[1:]]},
    }
    return replace(found, **changes[what])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("missing", "has no accepted result"),
        ("wrong", "a wrong result was accepted"),
        ("no truth", "no result to hold it against"),
        ("open lease", "is open"),
        ("held", "holds 0.0003 back"),
        ("unslashed", "nobody was slashed"),
        ("no death", "was not stopped"),
        ("book", "LeaseBook holds -1 base units more than it owes"),
        ("leak", "tokens appeared or vanished"),
    ],
)
def test_each_thing_that_can_be_wrong_is_a_problem(what: str, said: str) -> None:
    assert any(said in problem for problem in spoilt(story(), what).problems)


def test_people_see_every_party_lease_audit_and_crash() -> None:
    console = Console(width=220, no_color=True)
    with console.capture() as shown:
        console.print(tables_of(story()))
    words = ["provider 0", "verifier 0", "nobody (burnt)", "openBatch", "simulated GPUs"]
    words += ["1 wrong, by two verifiers' word", "all repeated alike", "provider went silent"]
    words += ["the best", "while jobs run", "2 of 2 results are what this machine computes"]
    for word in words:
        assert word in shown.get(), word


@pytest.mark.parametrize(
    ("found", "results", "said"),
    [
        (life(HONEST, batch(HONEST, BatchState.FINAL)), 1, Standing.ACCEPTED),
        (life(HONEST, batch(HONEST, BatchState.FINAL)), 2, Standing.UNVERIFIED),
        (life(HONEST, batch(HONEST, None)), 1, Standing.PENDING),
        (life(LIAR, convicted()), 1, Standing.CONVICTED),
        (life(HONEST, batch(HONEST, BatchState.PARTIAL)), 1, Standing.UNVERIFIED),
        (life(HONEST, batch(HONEST, BatchState.FINAL_UNVERIFIED)), 1, Standing.UNVERIFIED),
        (life(HONEST, reason=None, verified=True), 1, Standing.PENDING),
        (life(HONEST, verified=True), 1, Standing.PENDING),
        (life(HONEST, verified=True, returned=TokenAmount(300)), 1, Standing.UNVERIFIED),
        (life(HONEST, verified=True, paid=TokenAmount(0)), 1, Standing.UNVERIFIED),
    ],
)
def test_a_result_counts_once_its_lease_passed_its_audits(
    found: LeaseLife, results: int, said: Standing
) -> None:
    assert standing(found, results) is said


def test_an_accusation_is_enough_to_compute_again_until_it_is_contested() -> None:
    accused = AccusedSegment(i=0, accused_at=130, until=138)
    assert standing(life(LIAR, batch(LIAR, None, accused=(accused,))), 1) is Standing.CONVICTED
    contested = replace(accused, contested_at=133)
    assert standing(life(LIAR, batch(LIAR, None, accused=(contested,))), 1) is Standing.PENDING
