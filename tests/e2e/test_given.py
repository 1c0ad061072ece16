"""A lease that a group buy opens is waited for, started and used from the command line."""

import pytest

from cloud_gpu.cli.exits import ExitCode
from tests.support.person import Person

pytestmark = pytest.mark.timeout(300)


def test_a_group_buys_lease_is_started_by_who_waits_for_it(buyer: Person) -> None:
    opened = buyer.runs(
        *("group", "open", "--gpu", "RTX4090:1", "--price", "0.80", "--duration", "5m"),
        *("--goal", "1", "--deadline", "10m", "--json"),
    )
    assert opened.code == 0, opened.err
    campaign = opened.json["campaign"]
    with buyer.starts("take", campaign, "--name", "together", "--timeout", "3m") as waiting:
        assert waiting.stderr is not None
        for line in waiting.stderr:
            if line.startswith("waiting until the lease opens"):
                break
        pledged = buyer.runs("group", "pledge", campaign, "--yes")
        assert pledged.code == 0, pledged.err
        out, err = waiting.communicate(timeout=180)
        assert waiting.returncode == 0, out + err
    ran = buyer.runs("exec", "together", "--", "sh", "-c", "echo $((6 * 7))")
    assert (ran.code, ran.out) == (0, "42\n"), ran.err
    ended = buyer.runs("down", "together", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["bill"]["settled"] is True

    (lease,) = buyer.runs("group", "show", campaign, "--json").json["leases"]
    late = buyer.runs("take", lease, "--json")
    assert late.code == ExitCode.REJECTED
    assert late.json["needed"] == "a funded lease before its start"


def test_what_names_nothing_to_take_is_said(buyer: Person) -> None:
    wrong = buyer.runs("take", "0x12", "--json")
    assert wrong.code == ExitCode.USAGE
    assert "a campaign's id, or a contract's number" in wrong.json["found"]
