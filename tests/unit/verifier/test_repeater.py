"""The one process that repeats jobs for a verifier: who gets which answer, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from verifier.adapters.repeater import Program, Repeater, ReplayFailed, open_repeater

SCRIPT = r"""
import json, os, sys
held = {}
def tell(kind, id, **more):
    print(json.dumps({"kind": kind, "id": id, "pid": os.getpid(), **more}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "cancel" in asked:
        with open("cancelled", "a") as file:
            file.write(f"{held.pop(asked['cancel'])}\n")
        tell("error", asked["cancel"], code=130, reason="cancelled", found="", needed="")
        continue
    match asked["how"]:
        case "hold":
            held[asked["id"]] = asked["name"]
            open(asked["name"], "w").close()
        case "noise":
            sys.stderr.write("noise " * 200_000)
            tell("repeat", asked["id"], size=len(asked["large"]))
        case "die":
            sys.exit("it broke")
        case "garble":
            print("what?", flush=True)
        case "refuse":
            tell("error", asked["id"], code=asked["code"], reason="r", found="f", needed="n")
        case _:
            tell("repeat", asked["id"])
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return Program(words=(sys.executable, str(script)), environment=os.environ)


@pytest.fixture
async def repeater(program: Program, tmp_path: Path) -> AsyncIterator[Repeater]:
    async with open_repeater(program, tmp_path) as opened:
        yield opened


async def hold(repeater: Repeater, folder: Path, nursery: trio.Nursery, name: str) -> Any:
    """Ask for what takes for ever; what became of it, once it is known, in a list."""
    became: list[str] = []

    async def asked() -> None:
        try:
            await repeater.ask(how="hold", name=name)
        except ReplayFailed as error:
            became.append(str(error))

    nursery.start_soon(asked)
    while not (folder / name).exists():
        await trio.lowlevel.checkpoint()
    return became


async def test_one_process_serves_all_and_whoever_is_cancelled_ends_only_its_own(
    repeater: Repeater, tmp_path: Path
) -> None:
    first = await repeater.ask(how="end")
    async with trio.open_nursery() as others:
        await hold(repeater, tmp_path, others, "other")
        async with trio.open_nursery() as nursery:
            await hold(repeater, tmp_path, nursery, "own")
            nursery.cancel_scope.cancel()
        assert (tmp_path / "cancelled").read_text() == "own\n"
        assert (await repeater.ask(how="end"))["pid"] == first["pid"]
        others.cancel_scope.cancel()
    assert (tmp_path / "cancelled").read_text() == "own\nother\n"


async def test_when_it_dies_those_who_wait_are_told_and_the_next_one_starts_another(
    repeater: Repeater, tmp_path: Path
) -> None:
    first = await repeater.ask(how="end")
    async with trio.open_nursery() as nursery:
        became = await hold(repeater, tmp_path, nursery, "other")
        with pytest.raises(ReplayFailed, match="exit code 1: it broke"):
            await repeater.ask(how="die")
    assert became == ["it ended, exit code 1: it broke"]
    assert (await repeater.ask(how="end"))["pid"] != first["pid"]


async def test_what_cannot_be_read_ends_it(repeater: Repeater) -> None:
    with pytest.raises(ReplayFailed, match="cannot be read"):
        await repeater.ask(how="garble")
    assert (await repeater.ask(how="end"))["kind"] == "repeat"


async def test_an_error_is_told_and_without_its_chain_it_is_started_anew(
    repeater: Repeater,
) -> None:
    first = await repeater.ask(how="end")
    for code in (5, 8):
        assert (await repeater.ask(how="end"))["pid"] == first["pid"]
        with pytest.raises(ReplayFailed, match=f"exit code {code}: r: f; needed n"):
            await repeater.ask(how="refuse", code=code)
    assert (await repeater.ask(how="end"))["pid"] != first["pid"]


async def test_full_pipes_stop_nobody(repeater: Repeater) -> None:
    large = "x" * 300_000
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lambda: repeater.ask(how="noise", large=large))


async def test_idle_it_is_ended(program: Program, tmp_path: Path) -> None:
    async with open_repeater(program, tmp_path, idle_s=0) as repeater:
        first = await repeater.ask(how="end")
        await wait_all_tasks_blocked()
        assert (await repeater.ask(how="end"))["pid"] != first["pid"]


async def test_a_program_that_is_not_there_fails_the_one_who_asks(tmp_path: Path) -> None:
    program = Program(words=(str(tmp_path / "nowhere"),), environment={})
    async with open_repeater(program, tmp_path) as repeater:
        for _ in range(2):
            with pytest.raises(ReplayFailed, match="cannot be started"):
                await repeater.ask(how="end")


async def test_with_the_daemon_its_process_ends(program: Program, tmp_path: Path) -> None:
    async with open_repeater(program, tmp_path) as repeater:
        pid = (await repeater.ask(how="end"))["pid"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
