"""Draws and ends that are due together go out together: most of their gas is the transaction's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cloud_gpu.protocol.calls import ChainCall, Draw, Ending, FinaliseBatches, RevealPreimages
from cloud_gpu.protocol.effects import Transact, VerifierEffect
from verifier.ledger import BatchId

GROUP_MAX: Final = 10
"""Batches to a transaction; more save little and fail together."""


class Groups:
    """Which batches may share a transaction."""

    def __init__(self) -> None:
        self._alone: set[BatchId] = set()

    def failed(self, call: ChainCall) -> None:
        """A transaction reverted: from now on its batches go by themselves, or one spoils all."""
        self._alone |= {(each.lease, each.batch_no) for each in _members(call)}

    def forget(self, batch: BatchId) -> None:
        """The batch has ended."""
        self._alone.discard(batch)

    def grouped(self, effects: Iterable[VerifierEffect]) -> Sequence[VerifierEffect]:
        """The same instructions in fewer transactions, after what is none of these."""
        others: list[VerifierEffect] = []
        draws: list[Draw] = []
        endings: list[Ending] = []
        for effect in effects:
            call = effect.call if isinstance(effect, Transact) else None
            if isinstance(call, RevealPreimages) and self._may_share(call):
                draws += call.draws
            elif isinstance(call, FinaliseBatches) and self._may_share(call):
                endings += call.endings
            else:
                others.append(effect)
        for start in range(0, len(draws), GROUP_MAX):
            draw = RevealPreimages(draws=tuple(draws[start : start + GROUP_MAX]))
            others.append(Transact(call=draw))
        for start in range(0, len(endings), GROUP_MAX):
            ending = FinaliseBatches(endings=tuple(endings[start : start + GROUP_MAX]))
            others.append(Transact(call=ending))
        return others

    def _may_share(self, call: ChainCall) -> bool:
        return not any((each.lease, each.batch_no) in self._alone for each in _members(call))


def _members(call: ChainCall) -> Iterator[Draw | Ending]:
    if isinstance(call, RevealPreimages):
        yield from call.draws
    elif isinstance(call, FinaliseBatches):
        yield from call.endings
