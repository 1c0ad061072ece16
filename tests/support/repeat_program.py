"""`cloud-gpu repeat` as a process, with a pretended client: what it does is said on stderr.

The first word of a job's command says how it goes: "end", "wait" for ever, "refuse", "crash".
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from cloud_gpu.cli.app import run
from cloud_gpu.outcomes import RunResult
from cloud_gpu.protocol.errors import NoMatch, Rejection, RejectReason
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings

OUTPUT = FileRef(path="out/a.txt", sha256="ab" * 32, size=2)
LARGE = FileRef(path="out/b.bin", sha256="cd" * 32, size=5 * 2**20)


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class PretendLease:
    def __init__(self, number: int) -> None:
        key = LeaseKey(provider=Address(b"\x07" * 20), index=0, seq=number)
        self.number, self.funded = number, SimpleNamespace(lease=key)

    async def repeat(self, spec: JobSpec, inputs: Path) -> RunResult:
        say(f"{self.number} runs {spec.command[0]}")
        match spec.command[0]:
            case "wait":
                await trio.sleep_forever()
            case "refuse":
                reason = RejectReason.NO_MATCH
                raise NoMatch(Rejection(reason=reason, field="gpu", found="none", needed="one"))
            case "crash":
                raise ZeroDivisionError("a bug")
            case _:
                pass
        return RunResult(
            code=0,
            outcome=JobOutcome.EXITED,
            stdout="",
            stderr="",
            duration_s=1.0,
            outputs=(OUTPUT, LARGE),
            cost=TokenAmount(1),
        )

    async def get(self, path: str, target: Path) -> None:
        await trio.Path(target).write_text("42")

    async def close(self, within_s: float = 90) -> Any:
        await trio.lowlevel.checkpoint()
        say(f"{self.number} closed")
        return SimpleNamespace(paid=TokenAmount(1_500_000))


class PretendClient:
    opened = 0

    async def open(self, request: Any, **_: Any) -> PretendLease:
        self.opened += 1
        say(f"{self.opened} opened without {','.join(map(str, request.excluded_providers))}")
        return PretendLease(self.opened)


class World:
    def settings(self, flags: Any) -> Settings:
        return Settings(max_price="1.00", context="test", market="http://127.0.0.1:1")

    def ask(self, settings: Settings, work: Any, say: Any, within_s: Any) -> Any:
        return trio.run(work, PretendClient())


if __name__ == "__main__":
    sys.exit(run(World(), ["repeat", *sys.argv[1:]]))  # type: ignore[arg-type]
