"""The published rounds: what a stranger computes the market's matches from again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.rounds import PublishedRound, SignedHeader
from market.api.errors import Refused
from market.api.front import front_of
from market.api.pages import page
from market.api.schemas import answers

HEADERS_ANSWERED_MAX = 1_000
_NUMBER_MAX = 2**53 - 1

router = APIRouter(prefix="/v1", tags=["rounds"])


@router.get("/rounds", responses=answers(SignedHeader, many=True))
async def headers(
    request: Request,
    after: Annotated[int, Query(ge=0, le=_NUMBER_MAX)] = 0,
    limit: Annotated[int, Query(ge=1, le=HEADERS_ANSWERED_MAX)] = 100,
) -> Response:
    """Signed headers of the rounds behind a number, in order; keep the newest."""
    front = front_of(request)
    found = await front.in_thread(front.rounds.headers, after, limit + 1)
    shown, following = found[:limit], None
    if len(found) > limit:
        following = {"after": str(from_json(shown[-1], SignedHeader).body.facts.number)}
    return page(request, shown, following)


@router.get("/rounds/{number}", responses=answers(PublishedRound))
async def published(
    request: Request, number: Annotated[int, Path(ge=1, le=_NUMBER_MAX)]
) -> Response:
    """One round: its header, and what changed since the lane's round before."""
    front = front_of(request)
    found = await front.in_thread(front.rounds.round, number)
    if found is None:
        raise Refused(
            Rejection(
                reason=RejectReason.UNKNOWN_ROUND,
                field="number",
                found=str(number),
                needed="a round that was published",
                next="GET /v1/rounds lists them.",
            )
        )
    return Response(found, media_type="application/json")
