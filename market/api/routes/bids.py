"""Bids: handed in, asked about, withdrawn.

The signature under a bid is all the access control there is: no session, no password.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import SignedBid, SignedCancellation
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.values import Address, Digest
from market.api.bodies import check_key, parsed, read_id
from market.api.errors import Refused
from market.api.front import Front, front_of
from market.api.schemas import answers, takes
from market.api.withdrawing import keep_cancellation
from market.ports import OrderKind, SoundOrder

router = APIRouter(prefix="/v1/bids", tags=["bids"])


@router.post(
    "",
    status_code=201,
    responses=answers(SignedReceipt, status=201),
    openapi_extra=takes(SignedBid, keyed=True),
)
async def place(request: Request) -> Response:
    """Take a bid: on disk first, then the receipt. The same bid again: 200, the same place.

    The bid's id is its idempotency key; a header `Idempotency-Key` may only repeat it.
    """
    front = front_of(request)
    body = await request.body()
    order = parsed(body, SignedBid, "body")
    bid = order.bid.payload.id
    check_key(request, bid)
    await front.know_product(order.bid.payload.product)
    found = front.judge(order)
    sound = SoundOrder(kind=OrderKind.BID, id=bid, octets=body)
    refused = found if isinstance(found, Rejection) else None
    return (await front.place(sound, order.bid.payload.buyer, refused)).response


@router.get("/{bid}", responses=answers(BidReport))
async def show(request: Request, bid: str) -> Response:
    """How far a bid has come, and why it did not match yet."""
    return await _answer(front_of(request), read_id("bid", bid, Digest.parse))


@router.post(
    "/{bid}/cancellation",
    status_code=202,
    responses=answers(BidReport, status=202),
    openapi_extra=takes(SignedCancellation),
)
async def withdraw(request: Request, bid: str) -> Response:
    """Forget a bid unless its opening is on its way; only a nonce voided on chain binds."""
    front = front_of(request)
    key = read_id("bid", bid, Digest.parse)

    def buyer(bid: Digest) -> Address | None:
        order = front.inbox.bid(bid)
        return None if order is None else order.bid.payload.buyer

    if not await keep_cancellation(request, key, buyer):
        raise _unknown(key)
    return await _answer(front, key, status=202)


async def _answer(front: Front, bid: Digest, status: int = 200) -> Response:
    report = await front.in_thread(front.view.report, bid)
    if report is None:
        if await front.in_thread(front.inbox.bid, bid) is None:
            raise _unknown(bid)
        report = BidReport(bid=bid, state=BidState.PENDING)
    return Response(to_json(report), status, media_type="application/json")


def _unknown(bid: Digest) -> Refused:
    return Refused(
        Rejection(
            reason=RejectReason.UNKNOWN_ORDER,
            field="bid",
            found=str(bid),
            needed="a bid that this market has taken",
            next="Use the struct hash of the bid, as in its receipt.",
        )
    )
