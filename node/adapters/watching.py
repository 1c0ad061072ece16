"""Watches running jobs, whatever runs them: tells what they print as they print it, then their end.

Watching may stop and begin again with a new daemon: everything is read from the job's folder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
import trio

from cloud_gpu.protocol.events import JobExited, JobStarted
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.values import Digest
from node.adapters.job_folders import STREAMS, JobFolder, Post
from node.adapters.supervisor import Ending

_LOOK_S: Final = 0.1
_AGAIN_S: Final = 5.0
_log = structlog.get_logger(adapter="watching")


@dataclass(slots=True)
class _Watch:
    folder: JobFolder
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_over: trio.Event = field(default_factory=trio.Event)


class Watchers:
    """One task for each job that runs."""

    def __init__(self, nursery: trio.Nursery, post: Post) -> None:
        self._nursery, self._post = nursery, post
        self._watched: dict[Digest, _Watch] = {}

    def has(self, job: Digest) -> bool:
        """Whether a job is watched, or about to be."""
        return job in self._watched

    def claim(self, folder: JobFolder) -> None:
        """Nobody else starts this job from now on."""
        self._watched[folder.job] = _Watch(folder)

    def give_up(self, job: Digest) -> None:
        """It was not started after all."""
        self._watched.pop(job).is_over.set()

    def begin(
        self,
        job: Digest,
        ended: Callable[[], Awaitable[Ending]],
        finish: Callable[[Ending], JobExited],
    ) -> None:
        """Watch a claimed job until `ended` returns; `finish` then collects it, in a thread."""
        watch = self._watched[job]
        self._post(JobStarted(lease=watch.folder.lease, job=job))
        self._nursery.start_soon(self._watch, watch, ended, finish)

    async def settle(self, lease: LeaseKey, within_s: float) -> None:
        """Wait for the ends of a lease's jobs, then watch no more."""
        watches = [each for each in self._watched.values() if each.folder.lease == lease]
        with trio.move_on_after(within_s):
            for watch in watches:
                await watch.is_over.wait()
        for watch in watches:
            watch.scope.cancel()
            await watch.is_over.wait()

    async def _watch(
        self,
        watch: _Watch,
        ended: Callable[[], Awaitable[Ending]],
        finish: Callable[[Ending], JobExited],
    ) -> None:
        offsets = dict.fromkeys(STREAMS, 0)
        try:
            with watch.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tail, watch.folder, offsets)
                    ending = await ended()
                    nursery.cancel_scope.cancel()
                self._tell_new(watch.folder, offsets)
                self._post(await self._finished(ending, finish))
        finally:
            self._watched.pop(watch.folder.job, None)
            watch.is_over.set()

    async def _finished(self, ending: Ending, finish: Callable[[Ending], JobExited]) -> JobExited:
        """Collect, as often as it takes: a full disk is no reason to lose a result."""
        while True:
            try:
                return await trio.to_thread.run_sync(finish, ending)
            except OSError as error:
                _log.error("job_not_collected", error=str(error), again_in_s=_AGAIN_S)
                await trio.sleep(_AGAIN_S)

    async def _tail(self, folder: JobFolder, offsets: dict[str, int]) -> None:
        while True:
            self._tell_new(folder, offsets)
            await trio.sleep(_LOOK_S)

    def _tell_new(self, folder: JobFolder, offsets: dict[str, int]) -> None:
        for stream in STREAMS:
            for event in folder.printed(stream, offsets[stream]):
                offsets[stream] += len(event.chunk)
                self._post(event)
