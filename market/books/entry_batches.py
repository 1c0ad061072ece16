"""Entry batches of one book: which is open, and the seeds that tie keys are drawn with.

An entry batch is one round's interval. Inside it a hash decides whose seed covers all its orders:
the hour of arrival buys nothing. Whoever sends last could still search for a lucky order.
"""

from __future__ import annotations

from collections.abc import Iterable

from cloud_gpu.protocol.ties import EntryBatch, batch_of
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest


class EntryBatches:
    """Numbers them; no number is used twice. Who entered, the book knows."""

    def __init__(self) -> None:
        self._open: Instant = 0
        self._drawn: Instant = -1
        """The newest whose tie keys were drawn."""
        self.seed = ZERO_DIGEST
        """Of the newest; it covers every order of all batches that ended."""
        self.ended: list[EntryBatch] = []
        """Batches that ended and were not published yet."""

    def is_over(self, interval: Instant) -> bool:
        """Whether what comes in an interval that began then enters another batch."""
        return interval > self._open

    def number_for(self, interval: Instant) -> Instant:
        """The batch that an order enters in an interval that began then.

        Where the interval began earlier than the one before, the rounds became longer.
        """
        return interval if self.is_over(interval) else self._open + (self._open == self._drawn)

    def enter(self, batch: Instant, waiting: int) -> None:
        """An order entered; `waiting` entered before it and have no tie key yet."""
        assert batch == self._open or not waiting, f"{waiting} orders of batch {self._open} wait"
        self._open = batch

    def draw(self, entered: Iterable[Digest]) -> Digest:
        """The open one is over, in which these subjects entered: its seed.

        It covers all of them and every batch before; the order in which they came changes nothing.
        """
        ended = batch_of(self._open, self.seed, entered)
        self.ended.append(ended)
        self.seed, self._drawn = ended.seed, ended.batch
        return self.seed

    def rows(self) -> list[object]:
        """Everything in it that decides what comes, for a digest of the state."""
        return [self._open, self._drawn, self.seed]
