"""The demo, as a newcomer and a script see it: the liar convicted, even sheets, nothing left."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_devnet import of_person
from tests.support.person import COMMAND, Person

pytestmark = [pytest.mark.timeout(900), pytest.mark.alone]

MARKET = COMMAND.with_name("cloud-gpu-market")


def test_a_demo_with_crashes_loses_nothing_and_leaves_nothing(
    newcomer: Person, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    answer = newcomer.runs("demo", "--json", "--crashes", "--keep", str(kept), within_s=800)
    assert answer.code == 0, answer.err
    told = answer.json
    check_story(told)
    check_crashes(told)
    assert list(newcomer.temporary.iterdir()) == []
    assert of_person(newcomer) == []

    database = f"sqlite:///{kept / 'market-data' / 'market.sqlite3'}"
    replay = newcomer.runs_program([str(MARKET), "replay", "--database", database, "--json"])
    assert replay.code == 0, replay.err
    again = newcomer.runs("demo", "--keep", str(kept))
    assert again.code == 3
    assert "needed an empty folder" in again.err


def check_story(told: dict[str, Any]) -> None:
    assert told["problems"] == []
    assert (told["jobs_completed"], told["jobs_wrong_accepted"]) == (12, 0)
    assert told["balance_difference"] == 0
    assert (told["slashed"], told["audits"] > 3, told["re_executions"] > 3) == (1, True, True)
    assert told["gas"] == sum(step["gas"] for step in told["gas_by_step"].values()) > 0
    assert {"openPacked", "beginPacked", "commitBatch", "convict"} <= set(told["gas_by_step"])
    assert any("simulated" in text for text in told["stand_ins"])
    assert any("wrong-results" in text for text in told["stand_ins"])
    assert told["accuracy"] > 0.9

    why = {lease["provider"]: lease["why_refunded"] for lease in told["leases"][:4]}
    assert why["provider 2"] == "wrong results"
    assert why["provider 3"] == "provider went silent"
    lies = [job for job in told["jobs"] if job["provider"] == "provider 2"]
    assert lies
    assert {(job["standing"], job["is_right"]) for job in lies} == {("convicted", False)}

    parties = {party["name"]: party for party in told["parties"]}
    assert {"buyer", "market", "verifier 0", "verifier 1", "nobody (burnt)"} <= set(parties)
    assert round(sum(float(p["change"]["amount"]) for p in parties.values()), 6) == 0
    assert float(parties["provider 0"]["change"]["amount"]) > 0
    assert float(parties["provider 2"]["change"]["amount"]) < 0
    burnt = parties["nobody (burnt)"]["why"]
    bounties = [
        float(p["why"]["bounty"]["amount"]) for p in told["parties"] if "bounty" in p["why"]
    ]
    assert bounties
    assert float(burnt["fines"]["amount"]) > 0
    # A tenth of what was taken is the bounty, the rest nobody's.
    fines = float(burnt["fines"]["amount"]) + sum(bounties)
    assert round(fines - float(told["fines"]["amount"]), 6) == 0


def check_crashes(told: dict[str, Any]) -> None:
    died = {crash["daemon"]: crash["when"] for crash in told["crashes"]}
    assert died.pop("node-3") == "while working"
    assert set(died) == {"market", "node-0", "verifier-1"}
    lost = {crash["daemon"]: crash["lost"] for crash in told["crashes"]}
    assert lost["node-3"]
    assert (lost["market"], lost["verifier-1"]) == ("", "")


@pytest.mark.parametrize("moment", ["starting the market", "not audited yet"])
def test_ctrl_c_in_the_middle_leaves_nothing(newcomer: Person, moment: str) -> None:
    with newcomer.starts("demo") as run:
        assert run.stderr is not None
        for line in run.stderr:
            if moment in line:
                break
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=90)
    assert run.returncode == 130
    assert list(newcomer.temporary.iterdir()) == []
    assert of_person(newcomer) == []
