"""The FastAPI app: routes, bounds, errors, a count of every request. Runs on trio and asyncio."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from cloud_gpu.protocol.errors import StorageFailed
from market.api.bodies import BULK_BYTES_MAX, BoundedBodies
from market.api.errors import (
    Refused,
    malformed,
    on_http_error,
    on_refused,
    on_storage_failed,
    problem,
)
from market.api.front import Front
from market.api.limiting import Limited
from market.api.metrics import Metrics
from market.api.routes import (
    auctions,
    bids,
    bulk,
    events,
    futures,
    group_buys,
    leases,
    market,
    rounds,
    service,
)
from market.api.schemas import COMPONENTS

API_VERSION = "1"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
"""A stranger's own invention does not become a metric."""


class _ShortWay(Route):
    """As FastAPI's routes, it says which one it is."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, {**found, "route": self}


_SHORT_WAYS = [
    _ShortWay(path, place, methods=["POST"])
    for path, place in (
        (bids.router.prefix, bids.place),
        (bulk.PATH, bulk.place_many),
        (futures.ORDERS_PATH, futures.place),
    )
]
"""Routes that orders take, found before FastAPI's own, which describe them: a fifth of the time."""


_ROUTES = market, auctions, bids, bulk, events, futures, group_buys, leases, rounds, service


def create_app(front: Front, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """One app over one front; `lifespan` surrounds its serving."""
    app = FastAPI(
        title="cloud-gpu market",
        version=API_VERSION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `Metrics` counts
    )
    app.state.front = front
    app.router.routes += _SHORT_WAYS
    for each in _ROUTES:
        app.include_router(each.router)
    app.add_exception_handler(Refused, on_refused)
    app.add_exception_handler(StorageFailed, on_storage_failed)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_middleware(BoundedBodies, longer={bulk.PATH: BULK_BYTES_MAX})
    app.add_middleware(Limited, limiting=front.limiting)
    app.add_middleware(_Counted, metrics=front.metrics)
    plain = app.openapi

    def described() -> dict[str, Any]:
        document = plain()
        document.setdefault("components", {}).setdefault("schemas", {}).update(COMPONENTS)
        return document

    app.openapi = described  # type: ignore[method-assign]
    return app


class _Counted:
    """ASGI middleware: how many requests, how long each took."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._seconds: dict[str, Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._note(method, route, status, perf_counter() - began)

    def _note(self, method: str, route: str, status: int, took_s: float) -> None:
        # Finding a metric by its labels takes longer than counting.
        counter = self._counters.get((method, route, status))
        if counter is None:
            counter = self._metrics.requests.labels(method, route, str(status))
            self._counters[method, route, status] = counter
        seconds = self._seconds.get(route)
        if seconds is None:
            seconds = self._seconds[route] = self._metrics.seconds.labels(route)
        counter.inc()
        seconds.observe(took_s)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    refused = malformed(field, str(first.get("input", "")), str(first["msg"]))
    return problem(refused.rejection, refused.status)
