"""The inbox: orders that passed the door, on disk before anybody is told so.

Positions count from 1 without gaps and in the order of commits: the matchmaker reads on from the
last one it handled, however many processes write here.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.events import (
    BidSubmitted,
    BidWithdrawn,
    CampaignSubmitted,
    FutureSubmitted,
    PledgeSubmitted,
)
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.group_buy import Pledge, SignedCampaign
from cloud_gpu.protocol.orders import SignedBid, SignedCancellation
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest
from market.ports import InboxEvent, Kept, OrderKind, SoundOrder
from market.store.database import Database, table_of
from market.store.tables import InboxRow
from market.store.turns import Turn, in_postgres, in_sqlite

_CANCEL = "cancel:"
_FUTURE = f"{OrderKind.FUTURE}:"
_CAMPAIGN = f"{OrderKind.CAMPAIGN}:"
_PLEDGE = f"{OrderKind.PLEDGE}:"


class SqlInbox:
    """The port `Inbox` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = table_of(InboxRow)
        self._turn: Turn = in_postgres if database.is_postgres else in_sqlite

    def keep(self, orders: Sequence[SoundOrder], received_at: Instant) -> Sequence[Kept]:
        """See `Inbox`."""
        rows = [(_key_of(each.kind, each.id), each.octets) for each in orders]
        return self._keep(rows, received_at)

    def kept(self, kind: OrderKind, order: Digest) -> Kept | None:
        """See `Inbox`."""
        columns, key = self._table.c, _key_of(kind, order)
        wanted = select(columns.position, columns.received_at).where(columns.key == key)
        with self._database.reading() as connection:
            row = connection.execute(wanted).first()
        return None if row is None else Kept(position=row[0], received_at=row[1], is_new=False)

    def keep_cancellation(self, cancellation: SignedCancellation, received_at: Instant) -> int:
        """See `Inbox`."""
        row = f"{_CANCEL}{cancellation.body.bid}", to_json(cancellation)
        return self._keep([row], received_at)[0].position

    def future(self, order: Digest) -> Signed[FutureOrder] | None:
        """See `Inbox`."""
        body = self._body(f"{_FUTURE}{order}")
        return from_json(body, Signed[FutureOrder]) if body is not None else None

    def campaign(self, campaign: Digest) -> SignedCampaign | None:
        """See `Inbox`."""
        body = self._body(f"{_CAMPAIGN}{campaign}")
        return from_json(body, SignedCampaign) if body is not None else None

    def _keep(self, rows: Sequence[tuple[str, bytes]], received_at: Instant) -> list[Kept]:
        """One commit for all; a key that is there already keeps its place."""
        with self._database.driver() as connection:
            return self._turn(connection, rows, received_at)

    def bid(self, bid: Digest) -> SignedBid | None:
        """See `Inbox`."""
        body = self._body(str(bid))
        return from_json(body, SignedBid) if body is not None else None

    def _body(self, key: str) -> bytes | None:
        with self._database.reading() as connection:
            wanted = select(self._table.c.body).where(self._table.c.key == key)
            body: bytes | None = connection.scalar(wanted)
        return body

    def after(self, position: int, count_max: int) -> Sequence[InboxEvent]:
        """See `Inbox`."""
        wanted = (
            select(self._table.c.position, self._table.c.key, self._table.c.body)
            .where(self._table.c.position > position)
            .order_by(self._table.c.position)
            .limit(count_max)
        )
        with self._database.reading() as connection:
            rows = connection.execute(wanted).all()
        return [_event(*row) for row in rows]


def _key_of(kind: OrderKind, order: Digest) -> str:
    return str(order) if kind is OrderKind.BID else f"{kind}:{order}"


def _event(position: int, key: str, body: bytes) -> InboxEvent:
    if key.startswith(_FUTURE):
        return FutureSubmitted(order=from_json(body, Signed[FutureOrder]), inbox=position)
    if key.startswith(_CAMPAIGN):
        return CampaignSubmitted(offer=from_json(body, SignedCampaign), inbox=position)
    if key.startswith(_PLEDGE):
        return PledgeSubmitted(pledge=from_json(body, Signed[Pledge]), inbox=position)
    if key.startswith(_CANCEL):
        return BidWithdrawn(bid=from_json(body, SignedCancellation).body.bid, inbox=position)
    return BidSubmitted(order=from_json(body, SignedBid), inbox=position)
