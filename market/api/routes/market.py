"""What this market is, what can be traded, what is on offer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.product import Product
from market.api.front import front_of
from market.api.pages import Cursor, listing, place_in
from market.api.schemas import MarketFacts, answers
from market.ports import Place

ASKS_ANSWERED_MAX = PRODUCTS_ANSWERED_MAX = 1_000

router = APIRouter(prefix="/v1", tags=["market"])


@router.get("/market", responses=answers(MarketFacts))
async def market(request: Request) -> Response:
    """Who matches here, for which fee, on which chain; and where the overlay reaches it."""
    front = front_of(request)
    standing = front.standing()
    facts = MarketFacts(
        matcher=front.rules.matcher,
        market_id=front.rules.market_id,
        fee_bps=standing.fee,
        round_ms=front.rules.round_ms,
        block_s=front.rules.block_s,
        chain_id=front.deployment.chain_id,
        lease_book=front.deployment.lease_book,
        token=front.deployment.token,
        peer=standing.peer,
        addresses=standing.addresses,
    )
    return Response(to_json(facts), media_type="application/json")


@router.get("/products", responses=answers(Product, many=True))
async def products(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=PRODUCTS_ANSWERED_MAX)] = 1_000,
    cursor: Cursor = "",
) -> Response:
    """Every product that LeaseBook knows."""
    front = front_of(request)
    (after,) = place_in(request, cursor, int) or (0,)
    found = await front.in_thread(front.view.products, int(after), limit + 1)
    return listing(request, found, limit, lambda last: (last.id,))


@router.get("/asks", responses=answers(SignedAdvert, many=True))
async def asks(
    request: Request,
    gpu: Annotated[str, Query(max_length=64)] = "",
    limit: Annotated[int, Query(ge=1, le=ASKS_ANSWERED_MAX)] = 100,
    cursor: Cursor = "",
) -> Response:
    """What is on offer now, cheapest first. `gpu` by words: "A100" finds "A100-SXM4-80GB"."""
    front = front_of(request)
    at = front.at
    after = place_in(request, cursor, int, str)
    found = await front.in_thread(front.view.asks, gpu, limit + 1, at, after)
    return listing(request, found, limit, _place)


def _place(last: SignedAdvert) -> Place:
    ask = last.body.ask.payload
    return ask.min_price_per_hour.value, str(ask.id)
