"""Leases as the chain tells of them, this market's and others'."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.values import Address, Digest
from market.api.bodies import read_id
from market.api.front import front_of
from market.api.pages import Cursor, listing, place_in
from market.api.schemas import answers

LEASES_ANSWERED_MAX = 500

router = APIRouter(prefix="/v1/leases", tags=["leases"])


@router.get("", responses=answers(LeaseReport, many=True))
async def leases(
    request: Request,
    buyer: str | None = None,
    provider: str | None = None,
    bid: str | None = None,
    state: LeaseState | None = None,
    limit: Annotated[int, Query(ge=1, le=LEASES_ANSWERED_MAX)] = 100,
    cursor: Cursor = "",
) -> Response:
    """Leases that satisfy every filter given, newest first."""
    front = front_of(request)
    found = await front.in_thread(
        front.view.leases,
        buyer=read_id("buyer", buyer, Address.parse) if buyer is not None else None,
        provider=read_id("provider", provider, Address.parse) if provider is not None else None,
        bid=read_id("bid", bid, Digest.parse) if bid is not None else None,
        state=state,
        count_max=limit + 1,
        after=place_in(request, cursor, int, str),
    )
    return listing(request, found, limit, lambda last: (last.terms.opened_at, str(last.terms.key)))
