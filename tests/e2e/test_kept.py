"""A lease that stays open: commands in it, output that is read again, an end and a bill."""

from pathlib import Path

import pytest

from cloud_gpu.cli.exits import ExitCode
from tests.support.person import Person

pytestmark = pytest.mark.timeout(180)


def test_a_lease_is_opened_used_twice_and_ended_with_a_bill(buyer: Person, tmp_path: Path) -> None:
    before = buyer.runs("wallet", "show", "--json").json["vault"]["amount"]
    words = ("--gpu", "A100", "--count", "2", "--duration", "10m", "--yes", "--json")
    opened = buyer.runs("up", *words, "--name", "mine")
    assert opened.code == 0, opened.err
    assert (opened.json["state"], opened.json["gpus"]) == ("open", 2)

    (tmp_path / "in.txt").write_text("into the lease\n")
    script = "cat in.txt > out.txt; echo done; echo bad >&2; exit 4"
    ran = buyer.runs(
        *("exec", "mine", "--put", "in.txt", "--get", "out.txt", "--", "sh", "-c", script),
        folder=tmp_path,
    )
    assert (ran.code, ran.out) == (4, "done\n")
    assert "bad\n" in ran.err
    assert (tmp_path / "out.txt").read_text() == "into the lease\n"

    again = buyer.runs("exec", "mine", "--detach", "--json", "--", "sh", "-c", "cat out.txt")
    assert again.json["job"] == 2
    read = buyer.runs("logs", "mine", "2", "-f")
    assert (read.code, read.out) == (0, "into the lease\n")  # the first job's file is still there

    (row,) = buyer.runs("ps", "--json").json["items"]
    assert (row["name"], row["state"]) == ("mine", "open")
    jobs = buyer.runs("show", "mine", "--json").json["jobs"]
    assert [(job["state"], job["exit_code"]) for job in jobs] == [("ended", 4), ("ended", 0)]

    ended = buyer.runs("down", "mine", "--json")
    assert (ended.code, ended.json["state"]) == (0, "ended")
    bill = ended.json["bill"]
    assert bill["settled"] is True
    after = buyer.runs("wallet", "show", "--json").json["vault"]["amount"]
    assert round(float(before) - float(after), 6) == float(bill["paid"]["amount"])
    assert buyer.runs("down", "mine").code == 0
    assert buyer.runs("exec", "mine", "--", "true").code == ExitCode.NO_SUCH_THING


def test_what_cannot_be_opened_leaves_no_name_behind(buyer: Person) -> None:
    refused = buyer.runs("up", "--gpu", "MI300X", "--yes", "--json", "--name", "none")
    assert refused.code == ExitCode.NO_MATCH
    assert refused.json["needed"] == "1x MI300X"
    assert buyer.runs("show", "none").code == ExitCode.NO_SUCH_THING


def test_a_bid_that_nobody_fills_can_be_seen_and_taken_back(buyer: Person) -> None:
    words = ("--gpu", "A100", "--count", "2", "--max-price", "0.50", "--start-by", "10m")
    placed = buyer.runs("bid", "place", *words, "--yes", "--json")
    assert placed.code == 0, placed.err
    bid = placed.json["items"][0]["bid"]
    seen = buyer.runs("bid", "show", bid, "--json").json
    assert seen["state"] == "pending"
    listed = buyer.runs("bid", "ls", "--json").json["items"]
    assert bid in [row["bid"] for row in listed]
    cancelled = buyer.runs("bid", "cancel", bid, "--yes", "--json")
    assert cancelled.code == 0, cancelled.err
    assert cancelled.json["voided_on_chain"] is True
    assert buyer.runs("bid", "show", bid, "--json").json["state"] == "cancelled"
    unknown = buyer.runs("bid", "show", "0x" + "00" * 32)
    assert unknown.code == ExitCode.NO_SUCH_THING
