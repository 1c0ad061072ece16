"""A kept lease's jobs: any number of readers, output from the first byte, one honest end."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_gpu.cli.keeping import LeaseKeeper
from cloud_gpu.outcomes import Cost, RunResult
from cloud_gpu.protocol.errors import LeaseInterrupted
from cloud_gpu.protocol.job import JobOutcome
from cloud_gpu.protocol.units import Price, TokenAmount


class PretendJob:
    """Prints what the test lets it print."""

    def __init__(self, code: int = 0, error: Exception | None = None) -> None:
        self.code, self.error = code, error
        self.may_end = threading.Event()
        self.killed = False

    @property
    def running(self) -> bool:
        return not self.may_end.is_set()

    def logs(self, stream: str = "stdout") -> Iterator[str]:
        yield f"{stream} begins\n"
        self.may_end.wait(20)
        yield f"{stream} ends\n"

    def wait(self, *, check: bool = False) -> RunResult:
        self.may_end.wait(20)
        if self.error is not None:
            raise self.error
        return RunResult(
            code=self.code,
            outcome=JobOutcome.EXITED,
            stdout="",
            stderr="",
            duration_s=1.5,
            outputs=(),
            cost=TokenAmount(5),
        )

    def kill(self) -> None:
        self.killed = True
        self.may_end.set()


class PretendSession:
    bill = None

    def __init__(self, *jobs: PretendJob) -> None:
        self.jobs = list(jobs)
        self.lease = SimpleNamespace(ending=False, releasable_at=0, outlook="")
        self.had_put: list[Path] = []

    def put(self, local: str | Path, remote: str | None = None) -> tuple[str, ...]:
        self.had_put.append(Path(local))
        return ()

    def get(self, remote: str, local: str | Path | None = None) -> tuple[Path, ...]:
        return (Path(str(local)),)

    def popen(self, command: Any, env: Any = None) -> PretendJob:
        return self.jobs.pop(0)

    def cost(self) -> Cost:
        amount = TokenAmount(7)
        return Cost(accrued=amount, promised=amount, cap=amount, price=Price(1_000), gpus=1)


def keeper_of(*jobs: PretendJob, idle_s: int = 60) -> tuple[LeaseKeeper, PretendSession]:
    session = PretendSession(*jobs)
    return LeaseKeeper(session, idle_s), session  # type: ignore[arg-type]


def answers(keeper: LeaseKeeper, **request: Any) -> list[Any]:
    return list(keeper.answer(request))


def texts(told: list[Any]) -> set[str]:
    return {part["text"] for part in told if "text" in part}


def test_a_command_streams_both_outputs_and_ends_with_its_code_and_cost() -> None:
    job = PretendJob(code=3)
    keeper, session = keeper_of(job)
    told = keeper.answer({"do": "run", "command": ["x"], "put": ["/a"], "get": [["b", "/c/b"]]})
    assert next(told) == {"job": 1}
    assert {next(told)["text"], next(told)["text"]} == {"stdout begins\n", "stderr begins\n"}
    job.may_end.set()
    *rest, end = told
    assert texts(rest) == {"stdout ends\n", "stderr ends\n"}
    assert end == {
        "exit_code": 3,
        "outcome": "exited",
        "seconds": 1.5,
        "cost": {"amount": "0.000005", "unit": "token"},
        "fetched": ["/c/b"],
    }
    assert session.had_put == [Path("/a")]


def test_a_detached_command_is_read_later_from_its_first_byte() -> None:
    job = PretendJob()
    keeper, _ = keeper_of(job)
    assert answers(keeper, do="run", command=["x"], detach=True)[0] == {"job": 1}
    followed: list[Any] = []
    reader = threading.Thread(
        target=lambda: followed.extend(answers(keeper, do="logs", job=1, follow=True))
    )
    reader.start()
    job.may_end.set()
    reader.join(20)
    assert len(texts(followed)) == 4
    assert followed[-1]["exit_code"] == 0
    assert texts(answers(keeper, do="logs")) == texts(followed)  # the newest job, again in full


def test_an_interrupted_lease_is_a_failure_with_its_reason_not_an_exit_code() -> None:
    job = PretendJob(error=LeaseInterrupted("health", "the node gave up"))
    job.may_end.set()
    keeper, _ = keeper_of(job)
    *_, end = answers(keeper, do="run", command=["x"])
    assert (end["failure"]["reason"], end["failure"]["code"]) == ("health", 10)


def test_a_running_job_can_be_killed_and_an_unknown_one_is_named() -> None:
    job = PretendJob()
    keeper, _ = keeper_of(job)
    answers(keeper, do="run", command=["x"], detach=True)
    assert answers(keeper, do="logs", job=4) == [{"missing": [1]}]
    answers(keeper, do="kill", job=1)
    assert answers(keeper, do="logs", follow=True)[-1]["exit_code"] == 0
    assert job.killed


def test_status_tells_cost_and_jobs() -> None:
    job = PretendJob()
    keeper, _ = keeper_of(job)
    answers(keeper, do="run", command=["sleep", "9"], detach=True)
    (status,) = answers(keeper, do="status")
    assert status["accrued"] == {"amount": "0.000007", "unit": "token"}
    assert [(row["job"], row["state"], row["command"]) for row in status["jobs"]] == [
        (1, "running", "sleep 9")
    ]
    job.may_end.set()


@pytest.mark.parametrize("what", ["down", "over", "idle"])
def test_the_lease_is_kept_until_it_is_told_over_or_unused(what: str) -> None:
    keeper, session = keeper_of(idle_s=0 if what == "idle" else 60)
    waiting = threading.Thread(target=keeper.wait)
    waiting.start()
    if what == "down":
        answers(keeper, do="down")
    elif what == "over":
        session.lease.ending = True
    waiting.join(20)
    assert not waiting.is_alive()
    assert (
        keeper.ended_by
        == {
            "down": "asked for",
            "over": "the lease is over",
            "idle": "nobody used it for 0 s",
        }[what]
    )
