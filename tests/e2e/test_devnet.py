"""A devnet comes up once, says so when asked again, goes without a trace, and survives a crash."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from cloud_gpu.cli.exits import ExitCode
from tests.support.person import COMMAND, Person

pytestmark = pytest.mark.timeout(240)

UP = ("devnet", "up", "--nodes", "1", "--runtime", "process")


def of_person(person: Person) -> list[psutil.Process]:
    """Processes that this person's commands left."""
    home, found = str(person.home), []
    for process in psutil.process_iter():
        try:
            if any(home in word for word in process.cmdline()) or home in process.cwd():
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_it_comes_up_once_and_goes_without_a_trace(newcomer: Person) -> None:
    first = newcomer.runs(*UP, "--json")
    assert first.code == 0, first.err
    assert first.json["started"] is True
    context = Path(first.json["context"])
    again = newcomer.runs(*UP, "--json")
    assert (again.code, again.json["started"]) == (0, False)
    assert again.json["market"] == first.json["market"]
    assert context.exists()

    assert newcomer.runs("devnet", "status").code == 0
    assert newcomer.runs("devnet", "down", "--json").json["was_running"] is True
    assert newcomer.runs("devnet", "status").code == ExitCode.NO_SUCH_THING
    assert not context.exists()
    assert not Path(first.json["folder"]).exists()
    assert of_person(newcomer) == []
    assert newcomer.runs("devnet", "down", "--json").json["was_running"] is False


def test_after_a_crash_the_next_one_starts_clean(newcomer: Person) -> None:
    first = newcomer.runs(*UP, "--json")
    assert first.code == 0, first.err
    keepers = [p for p in of_person(newcomer) if "cloud_gpu.adapters.devnet_keeper" in p.cmdline()]
    assert len(keepers) == 1
    keepers[0].send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while of_person(newcomer):
        assert time.monotonic() < deadline, "the keeper's children outlived it"
        time.sleep(0.1)

    assert newcomer.runs("devnet", "status").code == ExitCode.NO_SUCH_THING
    second = newcomer.runs(*UP, "--json")
    assert second.code == 0, second.err
    assert second.json["started"] is True
    assert second.json["started_at"] > first.json["started_at"]
    assert newcomer.runs("devnet", "down").code == 0
    assert of_person(newcomer) == []


def test_a_devnet_that_lost_its_market_says_so(newcomer: Person) -> None:
    up = newcomer.runs(*UP, "--json")
    assert up.code == 0, up.err
    state = json.loads(Path(up.json["folder"], "devnet.json").read_text())
    (market,) = [child for child in state["children"] if child["name"] == "market"]
    os.kill(market["pid"], signal.SIGKILL)

    status = newcomer.runs("devnet", "status", "--json")
    assert (status.code, status.json["ended"]) == (ExitCode.UNAVAILABLE, ["market"])
    again = newcomer.runs(*UP)
    assert again.code == ExitCode.UNAVAILABLE
    assert "runs without market" in again.err
    assert "devnet down" in again.err
    config = f"{up.json['folder']}/market.toml"
    assert f"cloud-gpu-market run --config {config}" in again.err

    program = COMMAND.with_name("cloud-gpu-market")
    words = [str(program), "run", "--config", config]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=newcomer.everything) as by_hand:
        assert by_hand.stdout is not None
        assert json.loads(by_hand.stdout.readline())["ready"] is True
        assert newcomer.runs("devnet", "status", "--json").json["ended"] == []
        assert newcomer.runs("ls").code == 0
        by_hand.terminate()
    assert newcomer.runs("devnet", "down").code == 0


def test_a_config_folder_that_cannot_be_written_is_found_before_anything_starts(
    newcomer: Person,
) -> None:
    (newcomer.home / "config").write_text("a file where a folder should be")
    began = time.monotonic()
    up = newcomer.runs(*UP)
    assert up.code == ExitCode.SETTINGS
    assert "cannot be written" in up.err
    assert "starting" not in up.err
    assert time.monotonic() - began < 30
    assert not (newcomer.home / "share" / "cloud-gpu" / "devnet").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: a full disk (only root can mount one)")
def test_a_full_disk_is_named_as_the_reason(newcomer: Person) -> None:
    share = newcomer.home / "share"
    share.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(share)], check=True)
    try:
        up = newcomer.runs(*UP)
        assert up.code == ExitCode.UNAVAILABLE, up.err
        assert "is full" in up.err or "No space left" in up.err
        assert newcomer.runs("devnet", "status").code == ExitCode.NO_SUCH_THING
    finally:
        subprocess.run(["umount", "-l", str(share)], check=True)
    assert of_person(newcomer) == []
