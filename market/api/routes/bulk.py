"""Many bids in one request: one commit, and for each what it alone would have been answered."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.signing import Verified
from market.api.bodies import BODY_BYTES_MAX, parsed, read_list, too_large
from market.api.errors import Refused, problem_of
from market.api.front import Front, front_of
from market.api.schemas import Placed, answers, json_list, takes
from market.api.taking import Acknowledged
from market.ports import OrderKind, SoundOrder
from market.rate_limits import BULK_ORDERS_MAX

PATH = "/v1/bids:bulk"

router = APIRouter(tags=["bids"])


@router.post(
    PATH,
    responses=answers(Placed, many=True),
    openapi_extra=takes(SignedBid, many_max=BULK_ORDERS_MAX),
)
async def place_many(request: Request) -> Response:
    """Take many bids in one commit. Answers in order; a bad one does not hold up the others."""
    front = front_of(request)
    bodies = await read_list(request, BULK_ORDERS_MAX)
    refused = front.limiting.refused_address(request.scope, max(0, len(bodies) - 1))
    if refused is not None:
        raise refused
    examined = await front.computed(_examine_all, front, bodies)
    sound = [each for each in examined if isinstance(each, SoundOrder)]
    taken = await front.take(sound) if sound else ()
    body = await front.computed(_written, examined, taken)
    return Response(body, media_type="application/json")


def _examine_all(front: Front, bodies: Sequence[bytes]) -> list[SoundOrder | bytes]:
    return [_examine(front, place, body) for place, body in enumerate(bodies)]


def _examine(front: Front, place: int, body: bytes) -> SoundOrder | bytes:
    """A bid to keep, or the answer that it has already: a `Placed` as JSON."""
    field = f"body[{place}]"
    if len(body) > BODY_BYTES_MAX:  # it is kept as it came
        return _told(Refused(too_large(field, BODY_BYTES_MAX)))
    try:
        order = parsed(body, SignedBid, field)
    except Refused as unread:
        return _told(unread)
    front.read_products(order.bid.payload.product)
    found = front.judge(order)
    if isinstance(found, Verified):
        refused = front.limiting.refused_account(order.bid.payload.buyer)
        if refused is not None:
            return _told(refused)
        return SoundOrder(kind=OrderKind.BID, id=found.struct_hash, octets=body)
    before = front.kept_before(OrderKind.BID, order.bid.payload.id, found)
    if before is None:
        return _told(Refused(found))
    return _placed(front.acknowledged([order.bid.payload.id], [before])[0])


def _written(examined: Sequence[SoundOrder | bytes], taken: Sequence[Acknowledged]) -> bytes:
    rest = map(_placed, taken)
    return json_list([each if isinstance(each, bytes) else next(rest) for each in examined])


def _placed(answer: Acknowledged) -> bytes:
    return b'{"receipt":%b,"status":%d}' % (answer.receipt, answer.status)


def _told(refused: Refused) -> bytes:
    told = Placed(status=refused.status, problem=problem_of(refused.rejection, refused.status))
    return to_json(told)
