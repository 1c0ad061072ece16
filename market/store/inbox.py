"""The inbox: orders that passed the door, on disk before anybody is told so.

Positions count from 1 without gaps and in the order of commits: the matchmaker reads on from the
last one it handled, however many processes write here.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.events import BidSubmitted, BidWithdrawn
from cloud_gpu.protocol.match import SignedReceipt
from cloud_gpu.protocol.orders import SignedBid, SignedCancellation
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest
from market.ports import SignReceipt
from market.store.database import SCHEMA_FACT, Database, table_of
from market.store.tables import InboxRow, StoreFact

_CANCEL = "cancel:"


class SqlInbox:
    """The port `Inbox` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = table_of(InboxRow)

    def keep_bid(
        self, order: SignedBid, received_at: Instant, sign: SignReceipt
    ) -> tuple[SignedReceipt, bool]:
        """See `Inbox`."""
        bid = order.bid.payload.id
        with self._database.transaction() as connection:
            position = self._next_position(connection)
            wanted = select(self._table.c.receipt).where(self._table.c.key == str(bid))
            known: bytes | None = connection.scalar(wanted)
            if known is not None:
                return from_json(known, SignedReceipt), False
            receipt = sign(bid, received_at, position)
            connection.execute(
                self._table.insert().values(
                    position=position,
                    key=str(bid),
                    body=to_json(order),
                    receipt=to_json(receipt),
                    received_at=received_at,
                )
            )
        return receipt, True

    def keep_cancellation(self, cancellation: SignedCancellation, received_at: Instant) -> int:
        """See `Inbox`."""
        key = f"{_CANCEL}{cancellation.body.bid}"
        with self._database.transaction() as connection:
            position = self._next_position(connection)
            wanted = select(self._table.c.position).where(self._table.c.key == key)
            known: int | None = connection.scalar(wanted)
            if known is not None:
                return known
            connection.execute(
                self._table.insert().values(
                    position=position,
                    key=key,
                    body=to_json(cancellation),
                    received_at=received_at,
                )
            )
        return position

    def bid(self, bid: Digest) -> SignedBid | None:
        """See `Inbox`."""
        with self._database.reading() as connection:
            wanted = select(self._table.c.body).where(self._table.c.key == str(bid))
            body: bytes | None = connection.scalar(wanted)
        return from_json(body, SignedBid) if body is not None else None

    def receipt(self, bid: Digest) -> SignedReceipt | None:
        """See `Inbox`."""
        with self._database.reading() as connection:
            wanted = select(self._table.c.receipt).where(self._table.c.key == str(bid))
            body: bytes | None = connection.scalar(wanted)
        return from_json(body, SignedReceipt) if body is not None else None

    def after(self, position: int, count_max: int) -> Sequence[BidSubmitted | BidWithdrawn]:
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

    def _next_position(self, connection: Connection) -> int:
        # One writer at a time, on PostgreSQL by this row's lock: a reader never meets a gap.
        facts = table_of(StoreFact)
        connection.execute(
            select(facts.c.name).where(facts.c.name == SCHEMA_FACT).with_for_update()
        )
        newest: int | None = connection.scalar(select(func.max(self._table.c.position)))
        return (newest or 0) + 1


def _event(position: int, key: str, body: bytes) -> BidSubmitted | BidWithdrawn:
    if key.startswith(_CANCEL):
        return BidWithdrawn(bid=from_json(body, SignedCancellation).body.bid, inbox=position)
    return BidSubmitted(order=from_json(body, SignedBid), inbox=position)
