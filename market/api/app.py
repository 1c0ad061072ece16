"""The FastAPI app: routes, bounds, errors, a count of every request. Runs on trio and asyncio."""

from __future__ import annotations

from typing import Any

import anyio
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
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
from market.api.metrics import Metrics
from market.api.routes import auctions, bids, bulk, futures, group_buys, leases, market, service
from market.api.schemas import COMPONENTS

API_VERSION = "1"


def create_app(front: Front, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """One app over one front; `lifespan` surrounds its serving."""
    app = FastAPI(
        title="cloud-gpu market",
        version=API_VERSION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.front = front
    for each in (market, auctions, bids, bulk, futures, group_buys, leases, service):
        app.include_router(each.router)
    app.add_exception_handler(Refused, on_refused)
    app.add_exception_handler(StorageFailed, on_storage_failed)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_middleware(BoundedBodies, longer={bulk.PATH: BULK_BYTES_MAX})
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = anyio.current_time(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests.labels(scope["method"], route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(anyio.current_time() - began)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    refused = malformed(field, str(first.get("input", "")), str(first["msg"]))
    return problem(refused.rejection, refused.status)
