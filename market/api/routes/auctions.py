"""Block auctions that have cleared: prices, matches, and whom price alone does not explain."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from market.api.errors import Refused
from market.api.front import front_of
from market.api.pages import page
from market.api.schemas import answers

ANSWERED_MAX = 100

router = APIRouter(prefix="/v1/auctions", tags=["auctions"])


@router.get("", responses=answers(AuctionReport, many=True))
async def auctions(
    request: Request,
    before: Annotated[int | None, Query(ge=0, lt=2**32)] = None,
    limit: Annotated[int, Query(ge=1, le=ANSWERED_MAX)] = 24,
) -> Response:
    """The newest first; `before` a window's begin (Unix seconds): those before that one."""
    front = front_of(request)
    found = await front.in_thread(front.view.auctions, before, limit + 1)
    shown = found[:limit]
    following = {"before": str(shown[-1].window)} if len(found) > limit else None
    return page(request, [to_json(each) for each in shown], following)


@router.get("/{window}", responses=answers(AuctionReport))
async def auction(request: Request, window: Annotated[int, Path(ge=0, lt=2**32)]) -> Response:
    """The auction whose window begins at this second: every bid that took part, and why not."""
    front = front_of(request)
    found = await front.in_thread(front.view.auction, window)
    if found is None:
        raise Refused(
            Rejection(
                reason=RejectReason.UNKNOWN_ORDER,
                field="window",
                found=str(window),
                needed="the second at which a block auction closed",
                next="GET /v1/auctions lists them; one without a sealed bid leaves nothing.",
            )
        )
    return Response(to_json(found), media_type="application/json")
