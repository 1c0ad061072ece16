"""For whoever runs the market: is it well, and what does it do."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import to_json
from market.api.front import front_of
from market.api.metrics import CONTENT_TYPE
from market.api.schemas import answers
from market.health import Health

router = APIRouter(tags=["service"])


@router.get("/healthz", responses=answers(Health))
async def healthz(request: Request) -> Response:
    """200 when all is well, 503 with the problems in words when not."""
    health = front_of(request).health()
    return Response(to_json(health), 200 if health.ok else 503, media_type="application/json")


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    return Response(front_of(request).metrics.exposition(), media_type=CONTENT_TYPE)
