"""Has a segment re-executed: an ordinary lease of the audit account, by the buyer's own program.

A result that was had once is kept: after a restart nothing is paid for twice.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
import trio
from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_builtins, from_json, to_json
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import Replay
from cloud_gpu.protocol.errors import OutsideWorldError
from cloud_gpu.protocol.events import ReplayDone
from cloud_gpu.protocol.job import ResultContent
from cloud_gpu.protocol.values import Address, Value
from verifier.adapters.files import Files, Source
from verifier.adapters.repeater import Repeater, ReplayFailed
from verifier.comparison import FILE_BYTES_MAX, compare, wanted

_START_BY_S_MAX: Final = 60
_SAID_MAX: Final = 600


class Ran(Value, frozen=True, kw_only=True):
    """One re-execution that gave something, as it is kept."""

    auditor: Address
    content: ResultContent


class Replays:
    """Carries out `Replay`, so many side by side."""

    def __init__(
        self,
        *,
        folder: Path,
        files: Files,
        repeater: Repeater,
        deployment: Deployment,
        post: Callable[[ReplayDone], None],
        at_once: int = 1,
    ) -> None:
        folder = folder.absolute()  # the repeater may work elsewhere
        self._kept, self._files, self._repeater = folder / "replays", files, repeater
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
        return await self._repeater.ask(
            spec=str(spec),
            inputs=str(inputs),
            results=str(results),
            gpu=replay.gpu_class,
            count=replay.gpus,
            duration=f"{replay.within_s}s",
            start_by=f"{min(_START_BY_S_MAX, max(10, replay.within_s // 4))}s",
            exclude_providers=[str(each) for each in replay.excluded],
            fetch_mib_max=FILE_BYTES_MAX // 2**20,
        )

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
