"""Bounds on what strangers send: no request body above a limit is ever held in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.values import Digest, FixedBytes
from market.api.errors import Refused, malformed, problem, status_of

BODY_BYTES_MAX = 65_536
"""A bid with the longest terms is a sixth of it."""

BULK_BYTES_MAX = 2**21
"""Of a list of orders."""

IDEMPOTENCY_KEY = "Idempotency-Key"

ValueT = TypeVar("ValueT")
FixedT = TypeVar("FixedT", bound=FixedBytes)


class _TooLarge(Exception):
    pass


class BoundedBodies:
    """ASGI middleware: answers 413 as soon as a body is known to be too large."""

    def __init__(self, app: ASGIApp, longer: Mapping[str, int]) -> None:
        """`longer` says how many bytes a path may take, where that is not BODY_BYTES_MAX."""
        self._app, self._longer = app, longer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bytes_max = self._longer.get(scope["path"], BODY_BYTES_MAX)
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > bytes_max:
            await _refuse(bytes_max, scope, receive, send)
            return
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > bytes_max:
                raise _TooLarge
            return message

        try:
            await self._app(scope, bounded, send)
        except _TooLarge:
            await _refuse(bytes_max, scope, receive, send)


async def _refuse(bytes_max: int, scope: Scope, receive: Receive, send: Send) -> None:
    rejection = too_large("body", bytes_max)
    await problem(rejection, status_of(rejection.reason))(scope, receive, send)


def too_large(field: str, bytes_max: int) -> Rejection:
    """More bytes than anybody may send there."""
    return Rejection(
        reason=RejectReason.TOO_LARGE,
        field=field,
        found=f"more than {bytes_max} bytes",
        needed=f"at most {bytes_max} bytes",
        next="Send fewer orders in a request, or shorter terms.",
    )


async def read_body(request: Request, kind: type[ValueT]) -> ValueT:
    """The body as a protocol value. Refuses MALFORMED, naming the field; unknown fields too."""
    return parsed(await request.body(), kind, "body")


def check_key(request: Request, order: Digest) -> None:
    """An order's id is its idempotency key: a header may repeat it. Refuses MALFORMED."""
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is not None and key.strip('"') != str(order):
        raise malformed(IDEMPOTENCY_KEY, key, f"{order}, the id of what is handed in, or none")


async def read_list(request: Request, count_max: int) -> list[bytes]:
    """The members of the body's list, each still JSON. Refuses MALFORMED, TOO_LARGE."""
    try:
        found = msgspec.json.decode(await request.body(), type=list[msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise malformed("body", str(error), "a JSON list") from error
    if len(found) <= count_max:
        return [bytes(each) for each in found]
    raise Refused(
        Rejection(
            reason=RejectReason.TOO_LARGE,
            field="body",
            found=f"a list of {len(found)}",
            needed=f"at most {count_max}",
            next="Send the rest in another request.",
        )
    )


def parsed(body: bytes, kind: type[ValueT], field: str) -> ValueT:
    """JSON as a protocol value. Refuses MALFORMED."""
    try:
        return from_json(body, kind)
    except ValueError as error:
        raise malformed(field, str(error), f"the JSON of a {kind.__name__}") from error


def read_id(field: str, text: str, parse: Callable[[str], FixedT]) -> FixedT:
    """A digest or address of the path or the query. Refuses MALFORMED."""
    try:
        return parse(text)
    except ValueError as error:
        raise malformed(field, str(error), "0x and hex digits") from error
