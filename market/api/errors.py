"""One table from reject reasons to HTTP, and the one shape of an error: problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fastapi import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason, StorageFailed
from cloud_gpu.protocol.values import Value

_R = RejectReason

STATUS: Final = MappingProxyType(
    {
        _R.MALFORMED: 400,
        _R.TOO_LARGE: 413,
        _R.RATE_LIMITED: 429,
        _R.BAD_SIGNATURE: 403,
        _R.KEY_NOT_AUTHORISED: 403,
        _R.NOT_THE_BUYER: 403,
        _R.UNKNOWN_LEASE: 404,
        _R.UNKNOWN_JOB: 404,
        _R.UNKNOWN_ORDER: 404,
        _R.UNKNOWN_ROUND: 404,
        _R.DUPLICATE: 409,
        _R.MACHINE_NOT_FREE: 409,
        _R.PROVIDER_BARRED: 409,
        _R.STALE_SEQUENCE: 409,
        _R.NONCE_USED: 409,
        _R.ORDER_CLOSED: 409,
        _R.NO_MATCH: 409,
        _R.WRONG_STATE: 409,
        _R.CASH_TOO_LOW: 402,
        _R.OPENING_PAUSED: 503,
        _R.RUNTIME_UNAVAILABLE: 503,
        _R.MARKET_STOPPING: 503,
    }
)
"""What is not listed is a well-formed order that breaks a rule: 422."""

_RULE_BROKEN: Final = 422
PROBLEM_TYPE: Final = "application/problem+json"


class Problem(Value, frozen=True, kw_only=True):
    """The body of every error."""

    type: str
    title: str
    status: int
    detail: str
    reason: RejectReason
    field: str
    found: str
    needed: str
    next: str


class Refused(Exception):
    """Raised by routes: answer with this rejection."""

    def __init__(
        self,
        rejection: Rejection,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(str(rejection))
        self.rejection = rejection
        self.status = status or status_of(rejection.reason)
        self.headers = headers


def status_of(reason: RejectReason) -> int:
    """The HTTP status of a reason."""
    return STATUS.get(reason, _RULE_BROKEN)


def problem_of(rejection: Rejection, status: int) -> Problem:
    """A rejection in HTTP's words."""
    return Problem(
        type=f"urn:cloud-gpu:reject:{rejection.reason}",
        title=rejection.reason.replace("-", " "),
        status=status,
        detail=str(rejection),
        reason=rejection.reason,
        field=rejection.field,
        found=rejection.found,
        needed=rejection.needed,
        next=rejection.next,
    )


def problem(
    rejection: Rejection, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer that says so."""
    body = to_json(problem_of(rejection, status))
    return Response(body, status, headers, media_type=PROBLEM_TYPE)


def malformed(field: str, found: str, needed: str) -> Refused:
    """A request that cannot be read."""
    return Refused(
        Rejection(
            reason=RejectReason.MALFORMED,
            field=field,
            found=found[:200],
            needed=needed,
            next="GET /openapi.json describes every request.",
        )
    )


async def on_refused(_request: Request, refused: Exception) -> Response:
    """A route refused."""
    assert isinstance(refused, Refused)
    return problem(refused.rejection, refused.status, refused.headers)


async def on_storage_failed(_request: Request, failure: Exception) -> Response:
    """The disk or the database did not keep it: nothing was acknowledged."""
    assert isinstance(failure, StorageFailed)
    rejection = Rejection(
        reason=RejectReason.MARKET_STOPPING,
        field="market",
        found="a database that does not take orders now",
        needed="a durable copy before a receipt is given",
        next="Try again, or use another market.",
    )
    return problem(rejection, 503)


async def on_http_error(request: Request, error: Exception) -> Response:
    """No such path or method."""
    assert isinstance(error, HTTPException)
    rejection = Rejection(
        reason=RejectReason.MALFORMED,
        field="path" if error.status_code == 404 else "request",
        found=f"{request.method} {request.url.path}"[:200],
        needed="a path and method of this API",
        next="GET /openapi.json lists them.",
    )
    return problem(rejection, error.status_code)
