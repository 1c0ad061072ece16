"""Bounds on what strangers send: no request body above a limit is ever held in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.values import FixedBytes
from market.api.errors import malformed, problem, status_of

BODY_BYTES_MAX = 65_536
"""A bid with the longest terms is a sixth of it."""

ValueT = TypeVar("ValueT")
FixedT = TypeVar("FixedT", bound=FixedBytes)


class _TooLarge(Exception):
    pass


class BoundedBodies:
    """ASGI middleware: answers 413 as soon as a body is known to be too large."""

    def __init__(self, app: ASGIApp, bytes_max: int = BODY_BYTES_MAX) -> None:
        self._app, self._bytes_max = app, bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > self._bytes_max:
            await self._refuse(scope, receive, send)
            return
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._bytes_max:
                raise _TooLarge
            return message

        try:
            await self._app(scope, bounded, send)
        except _TooLarge:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        rejection = Rejection(
            reason=RejectReason.TOO_LARGE,
            field="body",
            found=f"more than {self._bytes_max} bytes",
            needed=f"at most {self._bytes_max} bytes",
            next="Send one order a request, with shorter terms.",
        )
        await problem(rejection, status_of(rejection.reason))(scope, receive, send)


async def read_body(request: Request, kind: type[ValueT]) -> ValueT:
    """The body as a protocol value. Refuses MALFORMED, naming the field; unknown fields too."""
    try:
        return from_json(await request.body(), kind)
    except ValueError as error:
        raise malformed("body", str(error), f"the JSON of a {kind.__name__}") from error


def read_id(field: str, text: str, parse: Callable[[str], FixedT]) -> FixedT:
    """A digest or address of the path or the query. Refuses MALFORMED."""
    try:
        return parse(text)
    except ValueError as error:
        raise malformed(field, str(error), "0x and hex digits") from error
