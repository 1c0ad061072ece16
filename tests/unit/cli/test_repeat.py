"""`cloud-gpu repeat` as a process of its own: what it answers, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.job import JobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.values import Address
from tests.support.person import hear_interrupts
from tests.support.repeat_program import OUTPUT

EXCLUDED = str(Address(b"\x09" * 20))
LEASE = LeaseKey(provider=Address(b"\x01" * 20), index=0, seq=1)


@dataclass
class Repeat:
    """A process that is asked by its pipes."""

    process: subprocess.Popen[bytes]
    folder: Path

    def request(self, number: int, how: str, **change: Any) -> dict[str, Any]:
        spec = self.folder / f"{how}.json"
        spec.write_bytes(to_json(JobSpec(lease=LEASE, number=1, command=(how,), runtime_s_max=9)))
        request = {"id": number, "spec": str(spec), "inputs": str(self.folder), "gpu": "A100"}
        return {**request, "results": str(self.folder), "fetch_mib_max": 1, **change}

    def ask(self, *lines: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        for line in lines:
            raw = line if isinstance(line, bytes) else json.dumps(line).encode()
            self.process.stdin.write(raw + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def wait_until_said(self, text: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.decode().strip() == text:
                return
        raise AssertionError(f"it never said {text!r}")

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def repeat(tmp_path: Path) -> Iterator[Repeat]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.repeat_program"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hear_interrupts,
    ) as process:
        yield Repeat(process, tmp_path)
        process.kill()


def test_it_runs_several_side_by_side_and_answers_each_when_it_ends(repeat: Repeat) -> None:
    repeat.ask(repeat.request(1, "wait"))
    repeat.wait_until_said("1 runs wait")
    repeat.ask(repeat.request(2, "end", exclude_providers=[EXCLUDED]))
    repeat.wait_until_said(f"2 opened without {EXCLUDED}")
    second = repeat.answer()
    assert (second["kind"], second["id"], second["exit_code"]) == ("repeat", 2, 0)
    assert second["paid"] == {"amount": "1.50", "unit": "token"}
    assert [each["path"] for each in second["outputs"]] == ["out/a.txt", "out/b.bin"]
    assert second["fetched"] == [OUTPUT.sha256]  # the other one is too large
    assert (repeat.folder / OUTPUT.sha256).read_text() == "42"

    repeat.ask({"cancel": 1}, {"cancel": 7})
    repeat.wait_until_said("1 closed")
    first = repeat.answer()
    assert (first["kind"], first["id"], first["code"]) == ("error", 1, 130)
    repeat.end_input()
    assert repeat.process.wait() == 0


def test_what_runs_at_the_end_of_the_input_is_finished(repeat: Repeat) -> None:
    repeat.ask(repeat.request(1, "end"))
    repeat.end_input()
    assert repeat.answer()["id"] == 1
    assert repeat.process.wait() == 0


def test_a_job_that_fails_is_told_and_its_lease_closed(repeat: Repeat) -> None:
    repeat.ask(repeat.request(1, "refuse"))
    refused = repeat.answer()
    assert (refused["id"], refused["code"], refused["reason"]) == (1, 5, "no-match")
    assert (refused["found"], refused["needed"]) == ("gpu: none", "one")
    repeat.wait_until_said("1 closed")
    repeat.ask(repeat.request(2, "crash"))
    crashed = repeat.answer()
    assert (crashed["id"], crashed["code"], crashed["found"]) == (2, 1, "ZeroDivisionError: a bug")
    repeat.ask(repeat.request(3, "end"))
    assert repeat.answer()["kind"] == "repeat"


def test_a_wrong_line_is_answered_with_what_is_wrong(repeat: Repeat) -> None:
    cases: list[tuple[dict[str, Any] | bytes, int | None, str]] = [
        (b"[1]", None, "Expected `object`"),
        (b"{", None, "Input data was truncated"),
        (b'{"id": 4}', 4, "`spec`"),
        (repeat.request(5, "end", count=0), 5, "`$.count`"),
        (repeat.request(6, "end", surprise=0), 6, "`surprise`"),
        (repeat.request(7, "end", gpu="A100|"), 7, "--gpu"),
        (repeat.request(8, "end", duration="soon"), 8, "--duration"),
        (repeat.request(9, "end", spec="/nowhere.json"), 9, "/nowhere.json"),
        (b'{"cancel": "1"}', None, "`$.cancel`"),
    ]
    for line, number, named in cases:
        repeat.ask(line)
        answer = repeat.answer()
        assert (answer["kind"], answer["id"], answer["code"]) == ("error", number, 2)
        assert named in answer["found"]
    repeat.ask(repeat.request(6, "end"))
    assert repeat.answer()["kind"] == "repeat"


def test_an_id_that_runs_is_not_taken_twice(repeat: Repeat) -> None:
    repeat.ask(repeat.request(1, "wait"), repeat.request(1, "end"))
    assert "`$.id`" in repeat.answer()["found"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_leases(repeat: Repeat, number: signal.Signals, code: int) -> None:
    repeat.ask(repeat.request(1, "wait"), repeat.request(2, "wait"))
    for lease in (1, 2):
        repeat.wait_until_said(f"{lease} runs wait")
    repeat.process.send_signal(number)
    _, said = repeat.process.communicate(timeout=20)
    assert sorted(said.split(b"\n")[:2]) == [b"1 closed", b"2 closed"]
    assert repeat.process.returncode == code


def test_when_its_asker_was_killed_it_ends_its_leases_and_goes(repeat: Repeat) -> None:
    repeat.ask(repeat.request(1, "wait"))
    repeat.wait_until_said("1 runs wait")
    repeat.end_input()
    assert repeat.process.stdout is not None
    repeat.process.stdout.close()
    repeat.wait_until_said("1 closed")
    assert repeat.process.wait(20) == 0
