"""Has a segment re-executed: an ordinary lease of the audit account, by the buyer's own program.

`cloud-gpu repeat` runs as a process of its own, since a verifier shares nothing with buyers but
the protocol. A result that was had once is kept: after a restart nothing is paid for twice.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
import trio
from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_builtins, from_json, to_json
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import Replay
from cloud_gpu.protocol.errors import OutsideWorldError, SettingsInvalid
from cloud_gpu.protocol.events import ReplayDone
from cloud_gpu.protocol.job import ResultContent
from cloud_gpu.protocol.values import Address, Value
from verifier.adapters.files import Files, Source
from verifier.comparison import FILE_BYTES_MAX, compare, wanted

_PREFIX: Final = "CLOUD_GPU_"
_START_BY_S_MAX: Final = 60
_END_S: Final = 15
"""How long a process may take to end its lease when it is told to stop."""
_SAID_MAX: Final = 600


class ReplayFailed(OutsideWorldError):
    """Nobody ran it, or what ran it said nothing that can be read."""


class Ran(Value, frozen=True, kw_only=True):
    """One re-execution that gave something, as it is kept."""

    auditor: Address
    content: ResultContent


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How `cloud-gpu` is started: words before the command, and an environment with the account."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def find_program(environment: Mapping[str, str], **settings: str | Path) -> Program:
    """`cloud-gpu`, with these settings of a buyer's and none that this process was given.

    Raises SettingsInvalid: it is neither beside this interpreter nor on the PATH.
    """
    beside = str(Path(sys.executable).parent)
    path = shutil.which("cloud-gpu", path=os.pathsep.join((beside, environment.get("PATH", ""))))
    if path is None:
        raise SettingsInvalid("the program `cloud-gpu` is not installed beside this one")
    kept = {k: v for k, v in environment.items() if not k.startswith(_PREFIX)}
    own = {_PREFIX + name.upper(): str(_whole(value)) for name, value in settings.items()}
    return Program(words=(path,), environment=kept | own)


def _whole(value: str | Path) -> str | Path:
    return value.absolute() if isinstance(value, Path) else value


class Replays:
    """Carries out `Replay`, so many side by side."""

    def __init__(
        self,
        *,
        folder: Path,
        files: Files,
        program: Program,
        deployment: Deployment,
        post: Callable[[ReplayDone], None],
        at_once: int = 1,
    ) -> None:
        self._kept, self._files, self._program = folder / "replays", files, program
        self._work = folder / "work"
        self._deployment, self._post = deployment, post
        self._turns = trio.CapacityLimiter(at_once)
        self._log = structlog.get_logger(adapter="replay")
        shutil.rmtree(self._work, ignore_errors=True)
        for each in (self._kept, self._work):
            each.mkdir(parents=True, exist_ok=True)

    async def perform(self, replay: Replay) -> None:
        """Re-execute, compare, and post `ReplayDone`, in `within_s` whatever happens."""
        ran: Ran | None = None
        done = partial(self._done, replay)
        event = done(None, detail=f"it took longer than {replay.within_s} s")
        with trio.move_on_after(replay.within_s):
            try:
                ran = self._earlier(replay) or await self._run(replay)
                event = await self._compared(replay, ran)
            except OutsideWorldError as error:
                event = done(ran, detail=str(error)[:_SAID_MAX])
        self._log.info(
            "replayed",
            lease=str(event.lease),
            i=event.i,
            auditor=str(event.auditor),
            result=str(event.result),
            detail=event.detail,
        )
        self._post(event)

    def _done(self, replay: Replay, ran: Ran | None, detail: str = "") -> ReplayDone:
        leaf = replay.evidence.leaf
        return ReplayDone(
            lease=leaf.lease,
            batch_no=leaf.batch_no,
            i=leaf.i,
            auditor=ran.auditor if ran else None,
            result=ran.content.digest if ran else None,
            content=ran.content if ran else None,
            detail=detail,
        )

    # Results that were had before.

    def _folder(self, replay: Replay) -> Path:
        deployment = self._deployment
        leaf = replay.evidence.leaf.hash(deployment.chain_id, deployment.verification)
        return self._kept / leaf.raw.hex()

    def _earlier(self, replay: Replay) -> Ran | None:
        """One of an auditor that may run it: what was paid for before this process began."""
        for path in sorted(self._folder(replay).glob("*.json")):
            try:
                ran = from_json(path.read_bytes(), Ran)
            except (OSError, ValueError) as error:
                self._log.warning("replay_not_read", path=str(path), error=str(error))
                continue
            if ran.auditor not in replay.excluded:
                return ran
        return None

    def _keep(self, replay: Replay, ran: Ran) -> None:
        folder = self._folder(replay)
        folder.mkdir(exist_ok=True)
        path = folder / f"{ran.auditor}.json"
        aside = path.with_suffix(".new")
        aside.write_bytes(to_json(ran))
        aside.replace(path)

    # The lease.

    async def _run(self, replay: Replay) -> Ran:
        async with self._turns:
            with tempfile.TemporaryDirectory(dir=self._work) as folder:
                inputs, results = Path(folder, "inputs"), Path(folder, "results")
                for each in (inputs, results):
                    each.mkdir()
                await self._bring_inputs(replay, inputs)
                spec, body = Path(folder, "spec.json"), to_json(replay.evidence.spec.body)
                await trio.to_thread.run_sync(spec.write_bytes, body)
                ran = _read(await self._ask(replay, spec, inputs, results))
                await trio.to_thread.run_sync(self._take, results)
                self._keep(replay, ran)
                return ran

    def _take(self, results: Path) -> None:
        for path in results.iterdir():
            if self._files.store.put_file(path) != path.name:
                raise ReplayFailed(f"{path.name}: other bytes than the result names")

    async def _bring_inputs(self, replay: Replay, folder: Path) -> None:
        sources = _sources(replay)
        for file in replay.evidence.spec.body.inputs:
            await self._files.bring(file, sources)
            target = folder / file.sha256
            if not target.exists():
                path = self._files.store.path_of(file.sha256)
                await trio.to_thread.run_sync(shutil.copyfile, path, target)

    async def _ask(self, replay: Replay, spec: Path, inputs: Path, results: Path) -> dict[str, Any]:
        excluded = [word for each in replay.excluded for word in ("--exclude-provider", str(each))]
        words = [
            *self._program.words,
            *("repeat", str(spec), "--json", "--quiet", "--yes"),
            *("--gpu", replay.gpu_class, "--count", str(replay.gpus)),
            *("--inputs", str(inputs), "--results", str(results)),
            *("--duration", f"{replay.within_s}s"),
            *("--start-by", f"{min(_START_BY_S_MAX, max(10, replay.within_s // 4))}s"),
            *("--fetch-mib-max", str(FILE_BYTES_MAX // 2**20)),
            *excluded,
        ]
        try:
            ended = await trio.run_process(
                words,
                env=dict(self._program.environment),
                cwd=spec.parent,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                deliver_cancel=_interrupt,
            )
        except OSError as error:
            raise ReplayFailed(f"{words[0]} cannot be started: {error}") from error
        if ended.returncode:
            said = (ended.stderr or ended.stdout).decode(errors="replace").strip()
            raise ReplayFailed(f"exit code {ended.returncode}: {said[-_SAID_MAX:]}")
        try:
            answer: dict[str, Any] = json.loads(ended.stdout)
        except ValueError as error:
            raise ReplayFailed(f"its answer is no JSON: {error}") from error
        return answer

    # The comparison.

    async def _compared(self, replay: Replay, ran: Ran) -> ReplayDone:
        comparator = replay.evidence.spec.body.comparison
        results, compared = (replay.evidence.result.body.content, *replay.against), []
        sources = _sources(replay)
        for other in results:
            needed = wanted(comparator, other, ran.content)
            both = (*other.outputs, *ran.content.outputs)
            contents = await self._files.contents(needed, both, sources)
            # The committed result is held against the re-execution, not the other way round.
            found = await trio.to_thread.run_sync(compare, comparator, other, ran.content, contents)
            compared.append(replace(found, other=other))
        return replace(self._done(replay, ran), compared=tuple(compared))


def _sources(replay: Replay) -> list[Source]:
    also = (replay.also_addresses or replay.also_peer) if replay.also_peer else None
    return [replay.addresses or replay.peer, *([also] if also else [])]


def _read(answer: dict[str, Any]) -> Ran:
    try:
        outputs = answer["outputs"]
        content = {"outcome": answer["outcome"], "exit_code": answer["exit_code"]}
        return Ran(
            auditor=Address.parse(answer["provider"]),
            content=from_builtins({**content, "outputs": outputs}, ResultContent),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ReplayFailed(f"its answer says no result: {error}") from error


async def _interrupt(process: trio.Process) -> None:
    """As Ctrl-C: it ends its lease; then without asking."""
    process.send_signal(signal.SIGINT)
    with trio.CancelScope(deadline=trio.current_time() + _END_S, shield=True) as waiting:
        await process.wait()
    if waiting.cancelled_caught:
        process.kill()
