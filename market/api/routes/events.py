"""Live updates as server-sent events, from the database, on any process."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Sequence
from typing import Annotated, Final

import anyio
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason, StorageFailed
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.news import WATCH_LIFE_S_MAX, Cut, SignedWatch, Topic
from cloud_gpu.protocol.signing import verify_statement
from cloud_gpu.protocol.values import Address
from market.api.bodies import read_id
from market.api.errors import Refused, malformed
from market.api.front import Front, front_of
from market.api.newsroom import STREAMS_MAX, FellBehind, Newsroom
from market.api.schemas import event_stream
from market.ports import KeptNews

HEARTBEAT_S: Final = 15.0
PATIENCE_S: Final = 30.0
"""Who takes nothing for so long is not there."""
_NUMBER_MAX: Final = 2**53 - 1
_SCHEME: Final = "CloudGpu "

router = APIRouter(prefix="/v1", tags=["events"])


@router.get("/events", responses=event_stream())
async def events(
    request: Request,
    topic: Annotated[list[Topic] | None, Query(description="Of these alone.")] = None,
    product: Annotated[int | None, Query(ge=1, lt=2**32)] = None,
    account: str | None = None,
    last_event_id: Annotated[str | None, Header(description="Go on behind this number.")] = None,
    authorization: Annotated[str | None, Header(description="A signed `Watch`.")] = None,
) -> Response:
    """Book, trades, rounds, leases and futures as they change; with `account`, what concerns it.

    How an account's own bids fare is told to whoever shows its signature: `Authorization: CloudGpu
    <base64url of a signed Watch>`. A stream that cannot go on ends with an event `cut`.
    """
    front = front_of(request)
    whose = read_id("account", account, Address.parse) if account is not None else None
    topics = frozenset(topic or Topic)
    if authorization is not None:
        _check_watch(front, authorization, whose)
    elif topic is not None and Topic.BID in topics:
        raise Refused(
            Rejection(
                reason=RejectReason.BAD_SIGNATURE,
                field="Authorization",
                found="nothing",
                needed="a Watch that the account signed: its bids are told to nobody else",
                next="Sign one, or leave out topic=bid.",
            )
        )
    else:
        topics -= {Topic.BID}
    after = _number(last_event_id)
    if front.newsroom.streams >= STREAMS_MAX:
        raise _too_many_streams()
    wanted = _Wanted(topics, product, None if whose is None else str(whose))
    return _Stream(front, wanted, after)


def _check_watch(front: Front, authorization: str, whose: Address | None) -> None:
    """Raises Refused unless the account that is asked for signed it for this market."""
    watch = _watch_in(authorization)
    if whose is None or watch.body.account != whose or watch.body.market != front.rules.matcher:
        raise malformed(
            "Authorization",
            f"a Watch of {watch.body.account} at {watch.body.market}",
            f"one of the query's account, {whose}, at {front.rules.matcher}",
        )
    at = front.at
    refused = verify_statement(
        watch, front.rules.domain, account=whose, keys=NoDelegates(), role=None, at=at
    )
    if refused is None and watch.expiry > at + WATCH_LIFE_S_MAX:
        refused = Rejection(
            reason=RejectReason.DURATION_OUTSIDE_LIMITS,
            field="Watch.expiry",
            found=str(watch.expiry),
            needed=f"at most {at + WATCH_LIFE_S_MAX}",
            next="Sign it for a day at most.",
        )
    if refused is not None:
        raise Refused(refused)


def _watch_in(authorization: str) -> SignedWatch:
    text = authorization.removeprefix(_SCHEME)
    try:
        if text == authorization:
            raise ValueError("another scheme")
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return from_json(raw, SignedWatch)
    except ValueError as error:
        raise malformed(
            "Authorization", str(error), "CloudGpu, and the base64url of a signed Watch's JSON"
        ) from error


def _number(last_event_id: str | None) -> int | None:
    if last_event_id is None:
        return None
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 16):
        raise malformed("Last-Event-ID", last_event_id, "the id of an event of this stream")
    return min(int(last_event_id), _NUMBER_MAX)


def _too_many_streams() -> Refused:
    return Refused(
        Rejection(
            reason=RejectReason.RATE_LIMITED,
            field="streams",
            found=f"{STREAMS_MAX} open streams",
            needed="fewer",
            next="Try again in a minute, or ask GET /v1/bids/{bid} and the listings.",
        ),
        headers={"Retry-After": "60"},
    )


class _Wanted:
    """What one stream lets through."""

    def __init__(self, topics: frozenset[Topic], product: int | None, account: str | None) -> None:
        self._topics, self._product, self._account = topics, product, account

    def __call__(self, row: KeptNews) -> bool:
        return (
            row.topic in self._topics
            and self._product in (None, row.product)
            and (self._account is None or self._account in row.accounts)
        )


class _Stream(Response):
    """One reader."""

    media_type = "text/event-stream"

    def __init__(self, front: Front, wanted: _Wanted, after: int | None) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._front, self._wanted, self._after = front, wanted, after

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Until the reader leaves, is cut off, or the server ends."""
        room = self._front.newsroom
        first, newest = await self._front.in_thread(room.view.bounds)
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        async with anyio.create_task_group() as tasks:

            async def until_it_leaves() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_it_leaves)
            reason = await self._tell(room, first, newest, send)
            await _send(send, _event("cut", to_json(Cut(reason=reason))), more=False)
            tasks.cancel_scope.cancel()

    async def _tell(self, room: Newsroom, first: int, newest: int, send: Send) -> str:
        """Why it ended."""
        at = newest if self._after is None else min(self._after, newest)
        opening = b": connected\n\n"
        if at < first - 1:
            lost = Cut(reason=f"events {at + 1} to {first - 1} are not kept any more")
            opening, at = opening + _event("gap", to_json(lost)), first - 1
        if not await _send(send, opening):
            return "too slow"
        try:
            while at < newest and (rows := await room.catch_up(at)):
                at = rows[-1].number
                if not await self._show(rows, send):
                    return "too slow"
            room.join(at)
            try:
                return await self._follow(room, at, send)
            finally:
                room.leave()
        except StorageFailed:
            return "the database does not answer; go on behind the last id"

    async def _follow(self, room: Newsroom, at: int, send: Send) -> str:
        while True:
            rows: Sequence[KeptNews] = ()
            try:
                with anyio.move_on_after(HEARTBEAT_S):
                    rows = await room.after(at)
            except FellBehind:
                return "too slow: what comes next is in memory no more; go on behind the last id"
            if rows:
                at = rows[-1].number
            if not await self._show(rows, send):
                return "too slow"

    async def _show(self, rows: Sequence[KeptNews], send: Send) -> bool:
        """Rows that are wanted; a heartbeat where there are none."""
        shown = [_event(row.topic.value, row.body, row.number) for row in rows if self._wanted(row)]
        beat = b": %d\n\n" % rows[-1].number if rows else b":\n\n"
        return await _send(send, b"".join(shown) or beat)


async def _send(send: Send, body: bytes, more: bool = True) -> bool:
    """False: the reader did not take it in time."""
    with anyio.move_on_after(PATIENCE_S) as patience:
        await send({"type": "http.response.body", "body": body, "more_body": more})
    return not patience.cancelled_caught


def _event(name: str, body: bytes, number: int | None = None) -> bytes:
    """Canonical JSON has no line breaks."""
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: " + name.encode() + b"\ndata: " + body + b"\n\n"
