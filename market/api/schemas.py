"""What travels over HTTP beside protocol values, and the OpenAPI description of all of it.

Schemas are made from the very types that parse and write the bytes, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.future_reports import (
    ContractReport,
    FutureReport,
    Position,
    SeriesReport,
)
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.group_buy import Pledge, SignedCampaign
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignPage,
    CampaignReport,
    GroupLease,
    PledgeReport,
)
from cloud_gpu.protocol.lease import LeaseReport
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.news import (
    BookChange,
    Cleared,
    Cut,
    SignedWatch,
    Topic,
    Trade,
)
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid, SignedCancellation
from cloud_gpu.protocol.price_reports import CurvePoint, IndexPoint
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.rounds import PublishedRound, Sequenced, SignedHeader
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import BasisPoints
from cloud_gpu.protocol.values import Address, Value
from market.api.describing import Describer
from market.api.errors import PROBLEM_TYPE, Problem
from market.health import Health


class MarketFacts(Value, frozen=True, kw_only=True):
    """Whom a buyer deals with here; checked against its own deployment file."""

    matcher: Address
    market_id: int
    fee_bps: BasisPoints
    round_ms: int
    block_s: int
    chain_id: int
    lease_book: Address
    token: Address
    peer: str
    addresses: tuple[str, ...]


class Placed(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one bid of many: a receipt or a problem, and the status of it alone."""

    status: int
    receipt: SignedReceipt | None = None
    problem: Problem | None = None


_TYPES: Final[tuple[Any, ...]] = (
    SignedBid,
    SignedReceipt,
    SignedCancellation,
    SignedAdvert,
    BidReport,
    AuctionReport,
    LeaseReport,
    Product,
    MarketFacts,
    Health,
    Problem,
    Placed,
    Signed[FutureOrder],
    FutureReport,
    SeriesReport,
    ContractReport,
    Position,
    IndexPoint,
    CurvePoint,
    SignedCampaign,
    Signed[Pledge],
    CampaignReport,
    CampaignPage,
    PledgeReport,
    GroupLease,
    CampaignNotice,
    SignedHeader,
    PublishedRound,
    Sequenced,
)
_NEWS: Final = BookChange, Trade, Cleared, Cut, SignedWatch
_describer = Describer()
_REFERENCES: Final = {kind: _describer.of(kind) for kind in (*_TYPES, *_NEWS)}
COMPONENTS: Final = _describer.components


_NEXT_PAGE: Final = {
    "Link": {
        "description": 'To the next page, when there is one: `<?query>; rel="next"` (RFC 8288).',
        "schema": {"type": "string"},
    }
}


_RETRY_AFTER: Final = {
    "Retry-After": {
        "description": "Of a 429: in how many seconds to come again.",
        "schema": {"type": "integer", "minimum": 1},
    }
}


def answers(kind: Any, *, many: bool = False, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """A route's `responses`: one kind of value, or a problem."""
    schema = {"type": "array", "items": _REFERENCES[kind]} if many else _REFERENCES[kind]
    done = {"description": "Done.", "content": {"application/json": {"schema": schema}}}
    return {
        status: {**done, "headers": _NEXT_PAGE} if many else done,
        "default": {
            "description": "Refused: what was found, what was needed, what to do.",
            "content": {PROBLEM_TYPE: {"schema": _REFERENCES[Problem]}},
            "headers": _RETRY_AFTER,
        },
    }


def event_stream() -> dict[int | str, dict[str, Any]]:
    """The `responses` of the event stream: its events' bodies, by name."""
    names = ", ".join(f"`{each}`" for each in Topic)
    stream = {
        "type": "string",
        "description": f"Events {names}, whose data is JSON; `gap` and `cut` say what is missing.",
    }
    return {
        **answers(Problem),
        200: {
            "description": "Events, until either side ends it.",
            "content": {"text/event-stream": {"schema": stream}},
        },
    }


def takes(kind: Any, *, many_max: int = 0, keyed: bool = False) -> dict[str, Any]:
    """A route's `openapi_extra`: the body it reads, or a list of so many.

    `keyed`: handed in twice it is taken once, and a header may say so.
    """
    schema = _REFERENCES[kind]
    if many_max:
        schema = {"type": "array", "items": schema, "maxItems": many_max}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"requestBody": body, "parameters": [_KEY]} if keyed else {"requestBody": body}


_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The id of what is handed in, which makes it the same however often it comes.",
    "schema": {"type": "string"},
}


def json_list(parts: Sequence[bytes]) -> bytes:
    """A JSON list of values that are JSON already."""
    return b"[" + b",".join(parts) + b"]"
