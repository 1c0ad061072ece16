"""A job's supervisor beside the daemon that started it."""

import json
from multiprocessing import get_context
from pathlib import Path

from node.adapters import supervisor
from node.adapters.job_folders import replace

ROUNDS = 200


def supervise(path: str) -> None:
    for _ in range(ROUNDS):
        supervisor._write(path, {"pid": 1})


def test_both_name_the_supervisor_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pid.json"
    other = get_context("spawn").Process(target=supervise, args=(str(path),))
    other.start()
    while not path.exists() and other.is_alive():
        other.join(0.01)
    while other.is_alive():
        replace(path, json.dumps({"pid": 1}).encode())
    other.join()
    assert other.exitcode == 0
    assert [found.name for found in tmp_path.iterdir()] == ["pid.json"]
    assert json.loads(path.read_text()) == {"pid": 1}
