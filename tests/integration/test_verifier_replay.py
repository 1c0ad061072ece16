"""A segment re-executed for real: on a devnet, in a lease of the audit account, by `cloud-gpu`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.protocol.adapters.artifact_exchange import ArtifactExchange
from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.adapters.gossip import OverlaySettings, open_overlay
from cloud_gpu.protocol.adapters.keystore import load_key, new_secret
from cloud_gpu.protocol.audit import VerdictResult
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import Replay
from cloud_gpu.protocol.events import ReplayDone
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.values import Address
from tests.support.person import Person
from tests.unit.verifier.builders import DEPLOYMENT, Batch, Work, content_of, file
from verifier.adapters.files import Files
from verifier.adapters.repeater import Program, find_program, open_repeater
from verifier.adapters.replay import Replays

pytestmark = pytest.mark.timeout(240)

PROGRAM = b"""
import pathlib, sys
pathlib.Path("out").mkdir()
pathlib.Path("out/a.txt").write_text(pathlib.Path("words.txt").read_text() + sys.argv[1])
"""
WORDS = b"the answer is "
RIGHT = file("out/a.txt", b"the answer is 42")
WRONG = file("out/a.txt", b"the answer is 41")


@dataclass(frozen=True)
class Place:
    """A devnet, and one class that several of its providers have."""

    program: Program
    gpu_class: GpuClass
    providers: tuple[Address, ...]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    person = Person(tmp_path_factory.mktemp("audit-account"))
    up = person.runs("devnet", "up", "--nodes", "3", "--runtime", "process", "--json")
    assert up.code == 0, up.err
    context = (person.home / "config/cloud-gpu/contexts/devnet.toml").read_text()
    settings = dict(line.split(" = ", 1) for line in context.splitlines() if " = " in line)
    program = find_program(os.environ, **{k: v.strip('"') for k, v in settings.items()})
    listed = person.runs("ls", "--count", "1", "--json").json["items"]
    by_class: dict[str, list[str]] = {}
    for item in listed:
        by_class.setdefault(item["gpu_class"], []).append(item["provider"])
    gpu_class, providers = max(by_class.items(), key=lambda pair: len(set(pair[1])))
    assert len(set(providers)) >= 2, by_class
    addresses = tuple(Address.parse(each) for each in dict.fromkeys(providers))
    yield Place(program, GpuClass(gpu_class), addresses)
    assert person.runs("devnet", "down").code == 0


@dataclass
class Bench:
    """A verifier's adapters on an overlay of their own, and what they posted."""

    replays: Replays
    store: ArtifactStore
    done: list[ReplayDone]

    async def run(self, replay: Replay) -> ReplayDone:
        await self.replays.perform(replay)
        return self.done[-1]


@pytest.fixture
async def bench(place: Place, tmp_path: Path) -> AsyncIterator[Bench]:
    done: list[ReplayDone] = []
    store = ArtifactStore(tmp_path / "artifacts", 2**24)
    async with (
        open_repeater(place.program, tmp_path) as repeater,
        open_overlay(OverlaySettings(topics=()), new_secret()) as overlay,
    ):
        replays = Replays(
            folder=tmp_path,
            files=Files(store, ArtifactExchange(overlay, store, lambda *_: False)),
            repeater=repeater,
            deployment=DEPLOYMENT,
            post=done.append,
            at_once=2,
        )
        yield Bench(replays, store, done)


def replay_of(place: Place, **change: Any) -> Replay:
    """A segment whose committed result is wrong."""
    batch = Batch("accused", [Work(outputs=(WRONG,), runtime_s_max=30)])
    evidence = batch.evidence(0)
    body = replace(
        evidence.spec.body,
        command=("python3", "program.py", "42"),
        inputs=(file("program.py", PROGRAM), file("words.txt", WORDS)),
    )
    evidence = replace(evidence, spec=replace(evidence.spec, body=body))
    replay = Replay(
        evidence=evidence,
        peer=PeerId("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"),
        addresses=(),
        excluded=(place.providers[0],),
        gpu_class=place.gpu_class,
        gpus=1,
        within_s=60,
    )
    return replace(replay, **change)


async def test_another_provider_repeats_it_and_the_results_are_compared(
    place: Place, bench: Bench
) -> None:
    for content in (PROGRAM, WORDS):
        bench.store.put_bytes(content)
    replay = replay_of(place, against=(content_of(RIGHT),))
    done = await bench.run(replay)
    assert done.content == content_of(RIGHT), done.detail
    assert done.auditor in place.providers[1:]
    assert [(c.other, c.verdict) for c in done.compared] == [
        (content_of(WRONG), VerdictResult.MISMATCH),
        (content_of(RIGHT), VerdictResult.MATCH),
    ]
    assert bench.store.has(RIGHT.sha256)  # for the other verifier

    # After a restart nothing is paid for twice; who may not run it again does not count.
    with trio.fail_after(3):  # less than any lease takes
        again = await bench.run(replay)
    assert again == done
    assert done.auditor is not None
    everyone = replay_of(place, excluded=place.providers, within_s=40)
    nobody = await bench.run(everyone)
    assert (nobody.auditor, nobody.content) == (None, None)
    assert "no-match" in nobody.detail


async def test_a_file_that_nobody_has_fails_it(place: Place, bench: Bench) -> None:
    bench.store.put_bytes(PROGRAM)
    done = await bench.run(replay_of(place))
    assert done.content is None
    assert done.detail


async def test_it_ends_in_the_time_that_it_has(place: Place, bench: Bench) -> None:
    for content in (PROGRAM, WORDS):
        bench.store.put_bytes(content)
    with trio.fail_after(60):
        done = await bench.run(replay_of(place, within_s=2))
    assert done.content is None
    assert "longer than 2 s" in done.detail


async def test_a_cancelled_one_ends_its_lease_while_others_go_on(
    place: Place, tmp_path: Path
) -> None:
    def request(name: str, program: str) -> dict[str, Any]:
        command = ("python3", "-c", program)
        body = replace(replay_of(place).evidence.spec.body, command=command, inputs=())
        (tmp_path / name).write_bytes(to_json(body))
        folder = str(tmp_path)
        files = {"spec": str(tmp_path / name), "inputs": folder, "results": folder}
        return {**files, "gpu": place.gpu_class, "duration": "60s", "start_by": "20s"}

    settings = {k: place.program.environment[f"CLOUD_GPU_{k}"] for k in ("MARKET", "KEYSTORE")}
    password = Path(place.program.environment["CLOUD_GPU_PASSWORD_FILE"])
    account = load_key(Path(settings["KEYSTORE"]), password).address

    async with (
        open_repeater(place.program, tmp_path) as repeater,
        HttpMarket(settings["MARKET"]) as market,
    ):

        async def wait_for_active(count: int, within_s: float) -> None:
            """The market follows the chain a little later."""
            with trio.fail_after(within_s):
                while sum(is_active(each) for each in await market.leases(account)) != count:
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            long = request("long", "import time; time.sleep(50)")
            nursery.start_soon(lambda: repeater.ask(**long))
            await wait_for_active(1, within_s=40)
            short = await repeater.ask(**request("short", "print(1)"))
            assert short["exit_code"] == 0
            await wait_for_active(1, within_s=20)
            nursery.cancel_scope.cancel()
        await wait_for_active(0, within_s=20)


def is_active(lease: LeaseReport) -> bool:
    return lease.state is LeaseState.ACTIVE
