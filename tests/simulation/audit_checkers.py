"""What must hold of audits: money, locks, who is convicted and who is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloud_gpu.protocol.audit import BatchState, Leaf
from cloud_gpu.protocol.calls import AccuseSegment
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchCommitted,
    BatchFinalised,
    ChainEvent,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.testing.simulated_chain import Block
from tests.simulation.actors import NodeActor
from verifier.ledger import BatchId

if TYPE_CHECKING:
    from tests.simulation.world import World

OPEN = (BatchState.COMMITTED, BatchState.DRAWN, BatchState.ACCUSED)
SETTLING_S = 5
"""What is committed so long after the last fault has had no fault of anybody in its way."""


class AuditCheckers:
    """Invariants over held pay, batches and bonds of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._burnt: dict[Digest, int] = {world.chain.head.hash: 0}
        """Base units burnt up to a block, by its hash: a reorganisation burns nothing."""
        self._accused: dict[tuple[BatchId, int], Leaf] = {}
        self._nodes = {node.seat.wallet.address: node for node in world.nodes}

    def after_block(self) -> int:
        """Only proved liars are convicted, locks are those of open batches; what was burnt."""
        new: list[Block] = []
        for block in reversed(self._world.chain.blocks):
            if block.hash in self._burnt:
                break
            new.append(block)
        for block in reversed(new):
            parent = self._world.chain.blocks[block.number - 1]
            self._burnt[block.hash] = self._burnt[parent.hash] + self._look_at(block)
        self._locks_are_of_open_batches()
        return self._burnt[self._world.chain.head.hash]

    def _look_at(self, block: Block) -> int:
        for transaction in block.transactions:
            if isinstance(transaction.call, AccuseSegment):
                leaf = transaction.call.leaf
                self._accused[(leaf.lease, leaf.batch_no), leaf.i] = leaf
        burnt = 0
        for _, event in block.events:
            if isinstance(event, SegmentConvicted):
                leaf = self._accused[(event.lease, event.batch_no), event.i]
                is_wrong = (leaf.lease, leaf.job) in self._world.rooms.wrong
                assert is_wrong, f"convicted of what was right: {event}"
                burnt += event.fine.value - event.bounty.value
            elif isinstance(event, SilenceConvicted):
                burnt += event.fine.value
            elif isinstance(event, BatchFinalised):
                burnt += event.burnt.value
        return burnt

    def _locks_are_of_open_batches(self) -> None:
        book = self._world.chain.book
        locked: dict[MachineKey, int] = dict.fromkeys(book.machines, 0)
        for (lease, batch_no), row in book.audits.batches.items():
            locked[lease.machine] += row.locked
            assert row.left >= 0, (lease, batch_no, row)
            assert row.audit >= 0, (lease, batch_no, row)
            if row.state not in OPEN:
                assert row.left == row.audit == row.locked == 0, (lease, batch_no, row)
        for machine, amount in locked.items():
            assert book.machines[machine].locked == amount, (machine, amount)
        for held in book.audits.held.values():
            assert held.amount >= 0, held
            assert held.audit >= held.needed, held

    # The end of a season.

    def at_the_end(self) -> None:
        """Held pay and bonds are released, each batch paid once, and calm audits were right."""
        audits = self._world.chain.book.audits
        held = self._world.held
        assert not held, f"held and neither committed nor returned: {held}"
        for batch, row in audits.batches.items():
            assert row.state not in OPEN, (batch, row)
        committed = {_id(e): e for e in self._told() if isinstance(e, BatchCommitted)}
        ended = [e for e in self._told() if isinstance(e, BatchFinalised)]
        before = {_id(e) for e in ended if e.state is not BatchState.SLASHED}
        # Fraud may be found after a batch was paid unverified.
        late = [e for e in ended if e.state is BatchState.SLASHED and _id(e) in before]
        ended = [e for e in ended if e not in late]
        convicted = [e for e in self._told() if isinstance(e, SegmentConvicted)]
        assert sorted(_id(e) for e in ended) == sorted(committed), "one end for each batch"
        kinds = SegmentConvicted | SilenceConvicted | AccusationContested
        back = [e for e in self._told() if isinstance(e, kinds)]
        for end in ended:
            paid = end.provider.value + end.market.value + end.burnt.value
            paid += sum(e.refund.value for e in back if _id(e) == _id(end) and e.at <= end.at)
            assert paid <= committed[_id(end)].value.value, f"a batch paid twice: {end}"
        found = {(_id(e), e.i) for e in convicted}
        for end in ended:
            if self._was_calm(committed[_id(end)]):
                self._was_audited_well(end, found)

    def _told(self) -> list[ChainEvent]:
        return [event for block in self._world.chain.blocks for _, event in block.events]

    def _was_calm(self, batch: BatchCommitted) -> bool:
        """Whether everybody whom its audit needs was there, and no fault came between."""
        fair_from = self._world.fair_from // 1000 + SETTLING_S
        is_there = not any(v.has_vanished for v in self._world.verifiers)
        owner = batch.lease.provider
        return (
            batch.at >= fair_from
            and is_there
            and not self._nodes[owner].has_vanished
            and len([node for node in self._honest() if node.seat.wallet.address != owner]) >= 2
        )

    def _honest(self) -> list[NodeActor]:
        return [n for n in self._world.nodes if not n.has_vanished and not n.seat.wrong]

    def _was_audited_well(self, end: BatchFinalised, found: set[tuple[BatchId, int]]) -> None:
        provider: Address = end.lease.provider
        liars = [n for n in self._world.nodes if n.seat.wrong and not n.has_vanished]
        if not self._nodes[provider].seat.wrong:
            # Two liars among the auditors can make a segment inconclusive, one cannot.
            assert end.state is BatchState.FINAL or len(liars) > 1, f"honest and not paid: {end}"
            return
        records = [v.records.get(_id(end)) for v in self._world.verifiers]
        is_fraud = end.state is BatchState.SLASHED  # it ended by a conviction, without results
        record = next(
            (r for r in records if r is not None and (is_fraud or r.results is not None)), None
        )
        assert record is not None, f"nobody audited it: {end}"
        if is_fraud:  # what else was wrong in it needs no conviction: nothing of it is paid
            assert any(batch == _id(end) for batch, _ in found), f"ended by no conviction: {end}"
            return
        for evidence in record.evidence:
            leaf = evidence.leaf
            if (leaf.lease, leaf.job) in self._world.rooms.wrong and len(liars) == 1:
                assert (_id(end), leaf.i) in found, f"drawn, wrong and not convicted: {leaf}"


def _id(
    event: BatchCommitted
    | BatchFinalised
    | SegmentConvicted
    | SilenceConvicted
    | AccusationContested,
) -> BatchId:
    return event.lease, event.batch_no
