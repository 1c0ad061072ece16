"""The machine rooms: what a node's runtime does, and what a job returns there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud_gpu.protocol.effects import (
    KillJob,
    PauseContainer,
    PrepareContainer,
    ProbeMachine,
    ProviderEffect,
    RemoveContainer,
    ResumeContainer,
    StartJob,
)
from cloud_gpu.protocol.events import (
    ContainerFailed,
    ContainerReady,
    JobExited,
    JobStarted,
    MachineProbed,
)
from cloud_gpu.protocol.job import JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.values import Digest
from tests.simulation.actors import EMPTY, NodeActor
from tests.simulation.scene import profile, truth

if TYPE_CHECKING:
    from tests.simulation.world import World


class Rooms:
    """All nodes' runtimes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.wrong: set[tuple[LeaseKey, Digest]] = set()
        """Jobs of which a provider returned something else than they give."""

    def perform(self, node: NodeActor, effect: ProviderEffect) -> None:
        """What a node's runtime is told."""
        room, later = node.room, self._world.network.later
        match effect:
            case ProbeMachine(index=index):
                probed = MachineProbed(
                    machine=node.seat.machine(index), profile=profile(), healthy=True
                )
                later(node, 5, probed)
            case PrepareContainer(lease=lease):
                if self._world.rng.random() < self._world.faults.bad_container:
                    later(node, 300, ContainerFailed(lease=lease, detail="no space"))
                    return
                room.prepared.add(lease)
                later(node, 300, ContainerReady(lease=lease, report=room.report(lease)))
            case StartJob(spec=spec):
                self._start(node, spec)
            case KillJob(lease=_, job=job):
                if job in room.running:
                    self._end(node, room.running[job], JobOutcome.KILLED)
            case PauseContainer(lease=lease):
                room.paused.add(lease)
            case ResumeContainer(lease=lease):
                room.paused.discard(lease)
            case RemoveContainer(lease=lease):
                room.prepared.discard(lease)
                room.paused.discard(lease)
                room.running = {k: s for k, s in room.running.items() if s.lease != lease}
            case _:
                pass

    def _start(self, node: NodeActor, spec: JobSpec) -> None:
        if spec.id in node.room.running or spec.lease not in node.room.prepared:
            return
        node.room.running[spec.id] = spec
        self._world.network.later(node, 1, JobStarted(lease=spec.lease, job=spec.id))
        self._world.at(int(spec.command[1]), lambda: self._end(node, spec, JobOutcome.EXITED))

    def _end(self, node: NodeActor, spec: JobSpec, outcome: JobOutcome) -> None:
        if spec.id not in node.room.running or node.has_vanished:
            return
        if spec.lease in node.room.paused and outcome is JobOutcome.EXITED:
            self._world.at(500, lambda: self._end(node, spec, outcome))
            return
        if not node.is_up:  # the supervisor of the job outlives the daemon and reports later
            self._world.at(1_000, lambda: self._end(node, spec, outcome))
            return
        del node.room.running[spec.id]
        output = node.seat.run(spec, self._world.rng)
        if output != truth(spec):
            self.wrong.add((spec.lease, spec.id))
        exited = JobExited(
            lease=spec.lease,
            job=spec.id,
            outcome=outcome,
            exit_code=0,
            detail="",
            outputs=(output,),
            stdout=EMPTY,
            stderr=EMPTY,
            log_cut=False,
            started_at=self._world.now - int(spec.command[1]),
            ended_at=self._world.now,
        )
        self._world.deliver(node, exited)
