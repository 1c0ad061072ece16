"""Futures: orders handed in, series and positions looked at; and what is published about prices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.future_reports import ContractReport, FutureReport, Position, SeriesReport
from cloud_gpu.protocol.futures import WINDOWS_S, FutureOrder, Series
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import SignedAdvert, SignedCancellation
from cloud_gpu.protocol.price_reports import CurvePoint, IndexPoint
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.values import Address, Digest
from market.api.bodies import check_key, parsed, read_id
from market.api.errors import Refused, malformed
from market.api.front import Front, front_of
from market.api.pages import Cursor, listing, page, place_in
from market.api.schemas import answers, takes
from market.api.withdrawing import keep_cancellation
from market.books.futures_positions import reminders
from market.index.forward_curve import ClearedSeries, forward_curve
from market.ports import OrderKind, Place, SoundOrder

ANSWERED_MAX = 1_000
_REACH_S = limits.FUTURES_LEAD_S_MAX + max(WINDOWS_S)
"""A series whose deadline is longer ago is over."""
_Limit = Annotated[int, Query(ge=1, le=ANSWERED_MAX)]
_Index = Annotated[int, Path(ge=0, lt=2**32)]
_Product = Annotated[int, Query(ge=1, lt=2**32)]

ORDERS_PATH = "/v1/futures/orders"

router = APIRouter(prefix="/v1", tags=["futures"])


@router.post(
    "/futures/orders",
    status_code=201,
    responses=answers(SignedReceipt, status=201),
    openapi_extra=takes(Signed[FutureOrder], keyed=True),
)
async def place(request: Request) -> Response:
    """Take an order: on disk first, then the receipt. The same again: 200, the same place."""
    front = front_of(request)
    body = await request.body()
    order = parsed(body, Signed[FutureOrder], "body")
    check_key(request, order.payload.id)
    await front.know_product(order.payload.product)
    sound = SoundOrder(kind=OrderKind.FUTURE, id=order.payload.id, octets=body)
    placed = await front.place(sound, order.payload.trader, front.judge_future(order))
    return placed.response


@router.get("/futures/orders/{order}", responses=answers(FutureReport))
async def show(request: Request, order: str) -> Response:
    """How far an order has come, and why the last batch did not fill it."""
    return await _answer(front_of(request), read_id("order", order, Digest.parse))


@router.post(
    "/futures/orders/{order}/cancellation",
    status_code=202,
    responses=answers(FutureReport, status=202),
    openapi_extra=takes(SignedCancellation),
)
async def withdraw(request: Request, order: str) -> Response:
    """Forget what is left of an order and not on its way; only closing it on chain binds."""
    front = front_of(request)
    key = read_id("order", order, Digest.parse)

    def trader(order: Digest) -> Address | None:
        found = front.inbox.future(order)
        return None if found is None else found.payload.trader

    if not await keep_cancellation(request, key, trader):
        raise _unknown(key)
    return await _answer(front, key, status=202)


@router.get("/futures/series", responses=answers(SeriesReport, many=True))
async def series(
    request: Request,
    product: _Product | None = None,
    limit: _Limit = 100,
    cursor: Cursor = "",
) -> Response:
    """Depth and last price of series that can still be traded, by product and time."""
    front = front_of(request)
    at, after = front.at, place_in(request, cursor, int, int, str)
    found = await front.in_thread(front.futures.series, product, at, limit + 1, after)
    return listing(
        request,
        found,
        limit,
        lambda last: (last.series.product, last.deadline, str(last.series)),
    )


@router.get("/futures/history", responses=answers(ContractReport, many=True))
async def history(
    request: Request,
    product: int,
    window_start: int,
    window_seconds: int,
    limit: _Limit = 100,
    cursor: Cursor = "",
) -> Response:
    """Contracts that opened in a series, newest first."""
    front = front_of(request)
    try:
        wanted = Series(product=product, window_start=window_start, window_seconds=window_seconds)
    except ValueError as error:
        raise malformed("query", str(error), "a standard series") from error
    before = _number(request, cursor)
    found = await front.in_thread(front.futures.history, wanted, limit + 1, before)
    return listing(request, found, limit, _place)


@router.get("/futures/positions", responses=answers(Position, many=True))
async def positions(
    request: Request, account: str, limit: _Limit = 100, cursor: Cursor = ""
) -> Response:
    """An account's contracts, newest first, each with what can be done about it and by when."""
    front = front_of(request)
    key = read_id("account", account, Address.parse)
    before = _number(request, cursor)
    found = await front.in_thread(front.futures.positions, key, limit + 1, before)
    at, rules = front.at, front.deployment.futures_rules
    start_s = front.deployment.windows.start

    def shown(reports: Sequence[ContractReport]) -> list[Position]:
        return [
            Position(
                report=each,
                steps=reminders(each.contract, rules, start_window_s=start_s, at=at),
            )
            for each in reports
        ]

    return listing(request, found, limit, _place, shown=shown)


def _number(request: Request, cursor: str) -> int | None:
    place = place_in(request, cursor, int)
    return None if place is None else int(place[0])


def _place(last: ContractReport) -> Place:
    return (last.contract.id,)


@router.get("/futures/nodes/{provider}/{index}", responses=answers(SignedAdvert))
async def node(request: Request, provider: str, index: _Index) -> Response:
    """Where the node of a machine is that was promised to a future, by its own signed word."""
    front = front_of(request)
    machine = MachineKey(provider=read_id("provider", provider, Address.parse), index=index)
    found = await front.in_thread(front.futures.node, machine)
    if found is None:
        raise Refused(
            Rejection(
                reason=RejectReason.UNKNOWN_ORDER,
                field="machine",
                found=str(machine),
                needed="a machine that a live contract names, and whose node was heard",
                next="Ask again before the lease's start deadline: nodes repeat themselves.",
            )
        )
    return Response(to_json(found), media_type="application/json")


@router.get("/futures/curve", responses=answers(CurvePoint, many=True))
async def curve(request: Request, product: _Product) -> Response:
    """What a GPU-hour costs on coming days, by the last price of each series. Information only."""
    front = front_of(request)
    at = front.at
    found = await front.in_thread(front.futures.series, product, at - _REACH_S, ANSWERED_MAX)
    cleared = [
        ClearedSeries(series=each.series, price=each.last.price, units=each.last.units)
        for each in found
        if each.last is not None and each.series.window_end > at
    ]
    points = await front.in_thread(forward_curve, cleared)
    return page(request, [to_json(each) for each in points])


@router.get("/index", responses=answers(IndexPoint, many=True))
async def index(request: Request, limit: _Limit = 100, cursor: Cursor = "") -> Response:
    """The price index of each GPU class, at its newest full hour. Information only."""
    front = front_of(request)
    (after,) = place_in(request, cursor, str) or ("",)
    found = await front.in_thread(front.futures.index, str(after), limit + 1)
    return listing(request, found, limit, lambda last: (str(last.gpu_class),))


async def _answer(front: Front, order: Digest, status: int = 200) -> Response:
    report = await front.in_thread(front.futures.order, order)
    if report is None:
        if await front.in_thread(front.inbox.future, order) is None:
            raise _unknown(order)
        report = FutureReport(order=order, state=BidState.PENDING)
    return Response(to_json(report), status, media_type="application/json")


def _unknown(order: Digest) -> Refused:
    return Refused(
        Rejection(
            reason=RejectReason.UNKNOWN_ORDER,
            field="order",
            found=str(order),
            needed="an order of futures that this market has taken",
            next="Use the struct hash of the order, as in its receipt.",
        )
    )
