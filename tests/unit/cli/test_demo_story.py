"""A demo that did not come out even says so, in words, in its JSON and in its exit code."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from cloud_gpu.accounting import Books, GasUse, Holding, LeaseLife, explain
from cloud_gpu.cli.demo_story import FinishedJob, Story
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address

PROVIDER, BUYER = (Address(bytes([n]) * 20) for n in (1, 2))
CAP = TokenAmount(100_000)


def life(seq: int, paid: int, reason: LeaseEndReason | None) -> LeaseLife:
    started = reason is None or reason.started
    return LeaseLife(
        key=LeaseKey(provider=PROVIDER, index=0, seq=seq),
        buyer=BUYER,
        gpu_class=GpuClass("A100-SXM4-40GB"),
        gpus=2,
        price=Price(745_000),
        cap=CAP,
        duration=600,
        market_id=0,
        opened_at=100,
        started_at=101 if started else None,
        closed_at=110 if reason is not None else None,
        paid=TokenAmount(paid),
        reason=reason,
    )


def books(provider: int, buyer: int) -> Books:
    holdings = {
        account: Holding(wallet=0, cash=cash, bond=0, escrow=0)
        for account, cash in ((PROVIDER, provider), (BUYER, buyer))
    }
    return Books(block=9, holdings=holdings, held=provider + buyer)


def story() -> Story:
    lives = [life(1, 300, LeaseEndReason.STOPPED), life(2, 0, LeaseEndReason.PROVIDER_NO_SHOW)]
    job = FinishedJob(
        command="python train.py",
        exit_code=0,
        seconds=5.0,
        cost=TokenAmount(250),
        result={"accuracy": 0.96},
    )
    after = books(1_300, 700)
    return Story(
        jobs=[job],
        lives=lives,
        changes=explain(books(1_000, 1_000), after, lives, {}),
        names={PROVIDER: "provider 0", BUYER: "buyer"},
        books=after,
        gas=[GasUse(step="openBatch", transactions=2, gas=140_000)],
        stand_ins=["simulated GPUs"],
        seconds=30.04,
    )


def test_a_sound_demo_has_no_problem_and_all_its_numbers() -> None:
    told = story().payload()
    assert told["problems"] == []
    assert (told["jobs_completed"], told["leases_opened"], told["leases_refunded"]) == (1, 2, 1)
    assert (told["balance_difference"], told["gas"], told["seconds"]) == (0, 140_000, 30.0)
    assert (told["accuracy"], told["cost"]["amount"]) == (0.96, "0.00025")
    assert told["parties"][0]["change"] == {"amount": "0.0003", "unit": "token"}


def spoilt(found: Story, what: str) -> Story:
    changes: dict[str, Any] = {
        "job": {"jobs": [replace(found.jobs[0], exit_code=1)]},
        "no job": {"jobs": []},
        "open lease": {"lives": [*found.lives, life(3, 0, None)]},
        "no refund": {"lives": found.lives[:1]},
        "book": {"books": replace(found.books, held=found.books.held - 1)},
        "leak": {"changes": [replace(found.changes[0], end=1_301), found.changes[1]]},
    }
    return replace(found, **changes[what])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("job", "python train.py exited with 1"),
        ("no job", "no job ran"),
        ("open lease", "is open"),
        ("no refund", "was not refunded"),
        ("book", "LeaseBook holds -1 base units more than it owes"),
        ("leak", "tokens appeared or vanished"),
    ],
)
def test_each_thing_that_can_be_wrong_is_a_problem(what: str, said: str) -> None:
    assert any(said in problem for problem in spoilt(story(), what).problems)


def test_people_see_every_party_lease_and_step() -> None:
    console = Console(width=200, no_color=True)
    with console.capture() as shown:
        console.print(story().tables())
    for word in ("provider 0", "buyer", "openBatch", "provider no show", "0.745", "simulated GPUs"):
        assert word in shown.get()
