"""The demo, as a newcomer and a script see it: two at once, even sheets, nothing left behind."""

import json
import signal

import pytest

from tests.e2e.test_devnet import of_person
from tests.support.person import Person

pytestmark = pytest.mark.timeout(300)


def test_two_demos_at_once_come_out_even_and_leave_nothing(newcomer: Person) -> None:
    with newcomer.starts("demo", "--json") as one, newcomer.starts("demo", "--json") as two:
        for run in (one, two):
            out, err = run.communicate(timeout=240)
            assert run.returncode == 0, err
            check_story(out, err)
    assert list(newcomer.temporary.iterdir()) == []
    assert of_person(newcomer) == []


def check_story(out: str, err: str) -> None:
    (line,) = out.splitlines()
    told = json.loads(line)
    assert told["jobs_completed"] == 1
    assert told["leases_opened"] == 2
    assert told["leases_refunded"] == 1
    assert told["balance_difference"] == 0
    assert told["problems"] == []
    assert told["gas"] == sum(step["gas"] for step in told["gas_by_step"].values()) > 0
    assert {"openBatch", "begin", "refundUnstarted"} <= set(told["gas_by_step"])
    assert any("simulated" in text for text in told["stand_ins"])
    assert told["seconds"] < 120

    (job,) = told["jobs"]
    assert job["result"]["accuracy"] > 0.9
    assert job["result"]["tested_on"] == 360

    paid, lost = told["leases"]
    assert (paid["price"]["amount"], paid["gpus"]) == ("0.745", 2)
    assert 0 < float(paid["paid"]["amount"]) < float(paid["locked"]["amount"])
    assert paid["started_at"] is not None
    assert (lost["started_at"], lost["end"]) == (None, "provider no show")
    assert lost["refund"] == lost["locked"]
    assert float(lost["compensation"]["amount"]) > 0

    parties = {party["name"]: party for party in told["parties"]}
    assert set(parties) == {"buyer", "market", "provider 0", "provider 1"}
    assert round(sum(float(p["change"]["amount"]) for p in parties.values()), 6) == 0
    assert float(parties["provider 1"]["change"]["amount"]) > 0
    assert "renting" in err


def test_ctrl_c_in_the_middle_leaves_nothing(newcomer: Person) -> None:
    with newcomer.starts("demo") as run:
        assert run.stderr is not None
        for line in run.stderr:
            if "starting the market" in line:
                break
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    assert run.returncode == 130
    assert list(newcomer.temporary.iterdir()) == []
    assert of_person(newcomer) == []
