"""Re-executions: which provider repeats a segment for a verifier, how long it takes, what it gives.

In production an ordinary lease of the audit account; here only its outcome, since leases have a
part of their own in every season.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud_gpu.protocol.audit import Evidence
from cloud_gpu.protocol.effects import Replay
from cloud_gpu.protocol.events import ReplayDone
from cloud_gpu.protocol.job import JobOutcome, ResultContent
from cloud_gpu.protocol.values import Address, Digest
from tests.simulation.actors import NodeActor, VerifierActor
from tests.simulation.scene import DEPLOYMENT
from verifier.comparison import compare

if TYPE_CHECKING:
    from tests.simulation.world import World


class Auditors:
    """Every provider, as an auditor of the others."""

    def __init__(self, world: World) -> None:
        self._world = world

    def perform(self, verifier: VerifierActor, replay: Replay) -> None:
        """Answer within a few seconds, as a job of a few seconds does."""
        epoch = verifier.epoch

        def end() -> None:
            if verifier.epoch == epoch and verifier.is_up:
                self._world.deliver(verifier, self._outcome(verifier, replay))

        self._world.at(self._world.rng.randint(800, 4_000), end)

    def _outcome(self, verifier: VerifierActor, replay: Replay) -> ReplayDone:
        ran = self._earlier(verifier, replay) or self._run(verifier, replay)
        leaf = replay.evidence.leaf
        if ran is None:
            return ReplayDone(
                lease=leaf.lease, batch_no=leaf.batch_no, i=leaf.i, auditor=None, result=None
            )
        auditor, content = ran
        verifier.runs[_name(replay.evidence), auditor] = content
        others = (replay.evidence.result.body.content, *replay.against)
        return ReplayDone(
            lease=leaf.lease,
            batch_no=leaf.batch_no,
            i=leaf.i,
            auditor=auditor,
            result=content.digest,
            content=content,
            compared=tuple(compare("bytes", content, other, {}) for other in others),
        )

    def _earlier(
        self, verifier: VerifierActor, replay: Replay
    ) -> tuple[Address, ResultContent] | None:
        name = _name(replay.evidence)
        for (leaf, auditor), content in sorted(verifier.runs.items()):
            if leaf == name and auditor not in replay.excluded:
                return auditor, content
        return None

    def _run(self, verifier: VerifierActor, replay: Replay) -> tuple[Address, ResultContent] | None:
        spec, rng = replay.evidence.spec.body, self._world.rng
        files = {file.sha256 for file in replay.evidence.result.body.outputs}
        peers = [peer for peer in (replay.peer, replay.also_peer) if peer is not None]
        if not any(self._world.network.can_fetch(verifier, peer, files) for peer in peers):
            return None
        free = [node for node in self._world.nodes if self._may_run(node, replay)]
        if not free or rng.random() < self._world.faults.bad_replay:
            return None
        node = rng.choice(free)
        output = node.seat.run(spec, rng)
        content = ResultContent(outcome=JobOutcome.EXITED, exit_code=0, outputs=(output,))
        return node.seat.wallet.address, content

    def _may_run(self, node: NodeActor, replay: Replay) -> bool:
        return node.is_up and node.seat.wallet.address not in replay.excluded


def _name(evidence: Evidence) -> Digest:
    return evidence.leaf.hash(DEPLOYMENT.chain_id, DEPLOYMENT.verification)
