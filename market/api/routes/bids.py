"""Bids: handed in, asked about, withdrawn."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.match import BidReport, BidState, SignedReceipt
from cloud_gpu.protocol.orders import SignedBid, SignedCancellation
from cloud_gpu.protocol.values import Digest
from market.api.bodies import read_body, read_id
from market.api.errors import Refused, malformed
from market.api.front import Front, front_of
from market.api.schemas import answers, takes
from market.intake import check_bid, check_cancellation

router = APIRouter(prefix="/v1/bids", tags=["bids"])


@router.post(
    "",
    status_code=201,
    responses=answers(SignedReceipt, status=201),
    openapi_extra=takes(SignedBid),
)
async def place(request: Request) -> Response:
    """Take a bid: on disk first, then the receipt. The same bid again: 200, the same receipt."""
    front = front_of(request)
    order = await read_body(request, SignedBid)
    now = front.clock.now()
    refused = check_bid(
        order,
        rules=front.rules,
        products=await front.products(order.bid.payload.product),
        fee=front.fee(),
        at=now // 1000,
    )
    if isinstance(refused, Rejection):
        known = await _receipt_of(front, order) if _may_be_known(refused) else None
        if known is None:
            raise Refused(refused)
        return Response(to_json(known), 200, media_type="application/json")
    receipt, is_new = await front.in_thread(front.inbox.keep_bid, order, now, front.sign)
    front.arrived()
    return Response(to_json(receipt), 201 if is_new else 200, media_type="application/json")


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
    cancellation = await read_body(request, SignedCancellation)
    if cancellation.body.bid != key:
        raise malformed("body.body.bid", str(cancellation.body.bid), f"{key}, as in the path")
    order = await front.in_thread(front.inbox.bid, key)
    if order is None:
        raise _unknown(key)
    now = front.clock.now()
    refused = check_cancellation(
        cancellation, buyer=order.bid.payload.buyer, rules=front.rules, at=now // 1000
    )
    if refused is not None:
        raise Refused(refused)
    await front.in_thread(front.inbox.keep_cancellation, cancellation, now)
    front.arrived()
    return await _answer(front, key, status=202)


async def _answer(front: Front, bid: Digest, status: int = 200) -> Response:
    report = await front.in_thread(front.view.report, bid)
    if report is None:
        if await front.in_thread(front.inbox.bid, bid) is None:
            raise _unknown(bid)
        report = BidReport(bid=bid, state=BidState.PENDING)
    return Response(to_json(report), status, media_type="application/json")


def _may_be_known(refused: Rejection) -> bool:
    """A bid that was taken in time is asked for again after its start-by."""
    return refused.reason is RejectReason.EXPIRED


async def _receipt_of(front: Front, order: SignedBid) -> SignedReceipt | None:
    return await front.in_thread(front.inbox.receipt, order.bid.payload.id)


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
