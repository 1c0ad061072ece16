"""What a user gets back says money in tokens and keeps it as whole base units."""

from cloud_gpu.outcomes import RunResult
from cloud_gpu.protocol.job import JobOutcome
from cloud_gpu.protocol.units import TokenAmount


def result(outcome: JobOutcome = JobOutcome.EXITED, code: int = 0, detail: str = "") -> RunResult:
    return RunResult(
        code=code,
        outcome=outcome,
        stdout="much\n" * 1_000,
        stderr="",
        duration_s=90.25,
        outputs=(),
        cost=TokenAmount(31_042),
        detail=detail,
    )


def test_a_result_says_its_cost_in_tokens_and_not_what_it_printed() -> None:
    done = result()
    assert str(done) == f"{done}" == "exit code 0 after 90.2 s: 0.031042 tokens"
    assert done.cost == TokenAmount(31_042)
    assert done.cost_text == "0.031042"


def test_a_result_of_a_job_that_did_not_end_by_itself_says_how() -> None:
    late = result(JobOutcome.TIMED_OUT, code=137, detail="it ran too long")
    assert str(late) == f"{late.outcome} after 90.2 s: 0.031042 tokens; it ran too long"
