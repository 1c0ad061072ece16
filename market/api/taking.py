"""Orders that arrive while the disk is busy are kept together: one commit for all that wait.

The first of those that wait writes for all of them, under one signature, then passes the pen on.
Nobody is answered before the commit that holds its orders.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio
from fastapi.responses import Response

from market.ports import SoundOrder

ORDERS_AT_ONCE = 2_000
_GATHER_S = 0.001
"""Those who were answered together ask again together: a commit for the first of them alone would
have the others wait for two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """What is answered for an order."""

    receipt: bytes
    """A `SignedReceipt` as JSON."""
    status: int

    @property
    def response(self) -> Response:
        """To it alone."""
        return Response(self.receipt, self.status, media_type="application/json")


class _Waiting:
    def __init__(self, orders: Sequence[SoundOrder]) -> None:
        self.orders = orders
        self.turn = anyio.Event()
        self.found: Sequence[Acknowledged] | Exception | None = None


class Taking:
    """One process' way into the inbox."""

    def __init__(
        self, keep: Callable[[Sequence[SoundOrder]], Awaitable[Sequence[Acknowledged]]]
    ) -> None:
        """`keep` writes orders in one commit; it is not called again before it returned."""
        self._keep = keep
        self._queue: list[_Waiting] = []
        self._has_writer = False

    async def take(self, orders: Sequence[SoundOrder]) -> Sequence[Acknowledged]:
        """The receipt of each order, once they are durable. Raises StorageFailed."""
        waiting = _Waiting(orders)
        self._queue.append(waiting)
        with anyio.CancelScope(shield=True):  # whoever left could not pass the pen on
            if self._has_writer:
                await waiting.turn.wait()
            if waiting.found is None:
                await self._write()
        assert waiting.found is not None
        if isinstance(waiting.found, Exception):
            raise waiting.found
        return waiting.found

    async def _write(self) -> None:
        self._has_writer = True
        await anyio.sleep(_GATHER_S)
        batch = self._next_batch()
        found: Sequence[Acknowledged] | Exception
        try:
            found = await self._keep([order for each in batch for order in each.orders])
        except Exception as error:  # raised again in each that waits
            found = error
        taken = 0
        for each in batch:
            if isinstance(found, Exception):
                each.found = found
            else:
                each.found = found[taken : taken + len(each.orders)]
            taken += len(each.orders)
            each.turn.set()
        self._has_writer = bool(self._queue)
        if self._queue:
            self._queue[0].turn.set()

    def _next_batch(self) -> list[_Waiting]:
        """Those at the head of the queue, one at least."""
        count, orders = 1, len(self._queue[0].orders)
        for each in self._queue[1:]:
            orders += len(each.orders)
            if orders > ORDERS_AT_ONCE:
                break
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch
