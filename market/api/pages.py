"""Listings, a page at a time: where the next one begins is said in a `Link` header (RFC 8288).

A cursor is the place of the last row shown, not a count, so rows that come or go move nothing. The
link is relative: the same path, whatever stands before this server.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar
from urllib.parse import urlencode

from fastapi import Query, Request
from fastapi.responses import Response

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from market.api.errors import Refused
from market.api.schemas import json_list
from market.ports import Place

CURSOR_CHARACTERS_MAX: Final = 512
Cursor = Annotated[
    str,
    Query(
        max_length=CURSOR_CHARACTERS_MAX,
        description="From the link to the next page; empty: from the front.",
    ),
]
_PART_MAX: Final = 2**63 - 1
_WORD_MAX: Final = 256

ItemT = TypeVar("ItemT")


def cursor_after(request: Request, place: Place) -> str:
    """Opaque to whoever reads it; good for the listing that gave it alone."""
    return urlsafe_b64encode(json.dumps([request.url.path, *place]).encode()).decode().rstrip("=")


def place_in(request: Request, cursor: str, *kinds: type) -> Place | None:
    """What a cursor says; None: from the front. Refuses MALFORMED."""
    if not cursor:
        return None
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        path, *place = json.loads(raw)
        if path != request.url.path or len(place) != len(kinds):
            raise ValueError("another listing's")
        if not all(_is_part(part, kind) for part, kind in zip(place, kinds, strict=True)):
            raise ValueError("no row's place")
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(
            Rejection(
                reason=RejectReason.MALFORMED,
                field="cursor",
                found=cursor[:200],
                needed="the cursor of this listing's last answer, unchanged",
                next='Follow the answer\'s header `Link: <…>; rel="next"`, or leave it out to'
                " begin at the front.",
            )
        ) from error
    return tuple(place)


def _is_part(part: object, kind: type) -> bool:
    if type(part) is int:
        return kind is int and 0 <= part <= _PART_MAX
    return type(part) is str and kind is str and len(part) <= _WORD_MAX and part.isprintable()


def listing(
    request: Request,
    found: Sequence[ItemT],
    limit: int,
    place_of: Callable[[ItemT], Place],
    *,
    shown: Callable[[Sequence[ItemT]], Sequence[object]] = lambda items: items,
) -> Response:
    """The first `limit` of what was found, and where the next page begins when there was more."""
    items = found[:limit]
    following = None
    if len(found) > limit:
        following = {"cursor": cursor_after(request, place_of(items[-1]))}
    return page(request, [to_json(each) for each in shown(items)], following)


def page(
    request: Request, parts: Sequence[bytes], following: dict[str, str] | None = None
) -> Response:
    """A JSON list; `following` is what the query for the next page has in place of this one's."""
    headers = {}
    if following is not None:
        kept = [each for each in request.query_params.multi_items() if each[0] not in following]
        query = urlencode([*kept, *following.items()])
        headers["Link"] = f'<?{query}>; rel="next"'
    return Response(json_list(parts), media_type="application/json", headers=headers)
