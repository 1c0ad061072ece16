"""What the API stands on: ports, facts and a few questions; main makes one and hands it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

import anyio
from anyio import to_thread
from fastapi import Request

from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.ports import Clock
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import BasisPoints
from market.api.metrics import Metrics
from market.health import Health
from market.ports import BookView, Inbox, SignReceipt
from market.rules import MarketRules

_THREADS = 8

ResultT = TypeVar("ResultT")
ParamsT = ParamSpec("ParamsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Everything that a route may use."""

    rules: MarketRules
    deployment: Deployment
    inbox: Inbox
    view: BookView
    clock: Clock
    sign: SignReceipt
    arrived: Callable[[], None]
    """Something new lies in the inbox."""
    fee: Callable[[], BasisPoints]
    peer: str
    addresses: Callable[[], tuple[str, ...]]
    health: Callable[[], Health]
    metrics: Metrics
    _threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(_THREADS))
    _products: dict[int, Product] = field(default_factory=dict)

    async def in_thread(
        self, work: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """Run blocking work beside the event loop."""
        return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=self._threads)

    async def products(self, wanted: int) -> dict[int, Product]:
        """The products; read again only for one that was never seen, since rows never change."""
        if wanted not in self._products:
            rows = await self.in_thread(self.view.products)
            self._products.update({product.id: product for product in rows})
        return self._products


def front_of(request: Request) -> Front:
    """The front of the app that serves a request."""
    front = request.app.state.front
    assert isinstance(front, Front)
    return front
