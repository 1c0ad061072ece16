"""The published rounds: what a stranger computes the market's matches from again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.rounds import PublishedRound, Sequenced, SignedHeader
from market.api.errors import Refused
from market.api.front import front_of
from market.api.pages import page
from market.api.schemas import answers
from market.doors.arrivals import sequenced

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


@router.get("/arrivals/{position}", responses=answers(Sequenced))
async def arrival(
    request: Request, position: Annotated[int, Path(ge=1, le=_NUMBER_MAX)]
) -> Response:
    """The second receipt: what came out of the inbox at the position that a receipt names, as which
    entry of the journal, and the path to a signed header. 404 until a round says so.
    """
    front = front_of(request)
    found = await front.in_thread(front.rounds.covering, position)
    place = sequenced(from_json(found, PublishedRound), position) if found is not None else None
    if place is None:
        raise Refused(
            Rejection(
                reason=RejectReason.UNKNOWN_ROUND,
                field="position",
                found=str(position),
                needed="a position that a published round covers",
                next="Ask again after the next round; ten minutes late, the receipt is a proof.",
            )
        )
    return Response(to_json(place), media_type="application/json")
