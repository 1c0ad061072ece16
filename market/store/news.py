"""News: what changed in the public tables, numbered, for streams of any process to read on.

Written in the transaction of the change itself, by the matchmaker alone; so numbers have no gaps
and become visible in order. What is stated again at a start, and did not change, is no news.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, func, select

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import (
    ListAsk,
    MarketEffect,
    PublishRound,
    ReportBid,
    ReportContract,
    ReportLease,
    ReportSeries,
    UnlistAsk,
)
from cloud_gpu.protocol.future_reports import SeriesReport
from cloud_gpu.protocol.lease import LeaseReport
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.news import BookChange, Cleared, NewsBody, Topic, Trade
from cloud_gpu.protocol.orders import Ask, Bid, SignedAdvert, SignedBid
from cloud_gpu.protocol.values import Address, Digest
from market.ports import KeptNews
from market.store.database import Database, octets, table_of
from market.store.tables import (
    AskRow,
    BidRow,
    FutureContractRow,
    FutureSeriesRow,
    InboxRow,
    LeaseRow,
    NewsRow,
    RoundRow,
)

KEPT_MAX: Final = 100_000
_PRUNED_EVERY: Final = 1_000


class SqlNews:
    """The port `NewsView` over a database."""

    def __init__(self, database: Database) -> None:
        self._database, self._table = database, table_of(NewsRow)

    def bounds(self) -> tuple[int, int]:
        """See `NewsView`."""
        number = self._table.c.number
        with self._database.reading() as connection:
            first, last = connection.execute(select(func.min(number), func.max(number))).one()
        return (first or 1), (last or 0)

    def after(self, number: int, count_max: int) -> Sequence[KeptNews]:
        """See `NewsView`."""
        wanted = select(self._table).where(self._table.c.number > number)
        wanted = wanted.order_by(self._table.c.number).limit(count_max)
        with self._database.reading() as connection:
            return [
                KeptNews(
                    number=row.number,
                    topic=Topic(row.topic),
                    product=row.product,
                    accounts=frozenset(filter(None, row.accounts.split(" "))),
                    body=octets(row.body),
                )
                for row in connection.execute(wanted)
            ]


class NewsDesk:
    """What one transaction has to tell."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[dict[str, Any]] = []

    def consider(self, effect: MarketEffect) -> None:
        """Before the effect is carried out: would it change anything worth telling?"""
        match effect:
            case ListAsk(ask=key, advert=advert):
                if self._kept(AskRow, "ask", str(key), "ask") is None:
                    ask = advert.body.ask.payload
                    change = _listed(key, ask, advert)
                    self._tell(Topic.BOOK, change, ask.product, ask.provider)
            case UnlistAsk(ask=key):
                found = self._kept(AskRow, "ask", str(key), "advert")
                if found is not None:
                    ask = from_json(found, SignedAdvert).body.ask.payload
                    change = BookChange(ask=key, product=ask.product)
                    self._tell(Topic.BOOK, change, ask.product, ask.provider)
            case ReportBid(report=report):
                self._consider_bid(report)
            case ReportLease(report=report):
                self._consider_lease(report)
            case ReportSeries() | ReportContract():
                self._consider_future(effect)
            case PublishRound(facts=facts):
                if self._kept(RoundRow, "number", facts.number, "number") is None:
                    self._tell(Topic.ROUND, Cleared(lane=facts.lane.value, number=facts.number))
            case _:
                pass

    def restart(self) -> None:
        """The list of asks was emptied."""
        self._tell(Topic.BOOK, BookChange(ask=None))

    def write(self) -> None:
        """Number it and keep it; forget the oldest."""
        if not self._rows:
            return
        table = table_of(NewsRow)
        last: int = self._connection.scalar(select(func.max(table.c.number))) or 0
        rows = [{"number": last + place, **row} for place, row in enumerate(self._rows, 1)]
        self._connection.execute(table.insert(), rows)
        newest = last + len(rows)
        if newest // _PRUNED_EVERY != last // _PRUNED_EVERY:
            self._connection.execute(delete(table).where(table.c.number <= newest - KEPT_MAX))

    def _consider_lease(self, report: LeaseReport) -> None:
        key, body = str(report.terms.key), to_json(report)
        if self._kept(LeaseRow, "lease", key, "report") != body:
            bid, parties = self._bid(report.bid), (report.terms.buyer, report.terms.key.provider)
            self._tell(Topic.LEASE, report, bid.product if bid else 0, *parties)

    def _consider_future(self, effect: ReportSeries | ReportContract) -> None:
        told, body = effect.report, to_json(effect.report)
        if isinstance(told, SeriesReport):
            if self._kept(FutureSeriesRow, "series", str(told.series), "report") != body:
                self._tell(Topic.SERIES, told, told.series.product)
            return
        contract = told.contract
        if self._kept(FutureContractRow, "contract", contract.id, "report") != body:
            sides = contract.long, contract.short
            self._tell(Topic.CONTRACT, told, contract.series.product, *sides)

    def _consider_bid(self, report: BidReport) -> None:
        """A bid that waits is not told of, least of all a sealed one."""
        key, body = str(report.bid), to_json(report)
        if report.state is BidState.PENDING or self._kept(BidRow, "bid", key, "report") == body:
            return
        bid, asks = self._bid(report.bid), [each.body.ask.payload for each in report.adverts]
        product = bid.product if bid is not None else 0
        if bid is not None:
            self._tell(Topic.BID, report, product, bid.buyer)
        if report.state in (BidState.MATCHED, BidState.OPENED) and asks:
            trade = Trade(
                bid=report.bid,
                state=report.state,
                product=product,
                asks=tuple(ask.id for ask in asks),
                price=report.price,
            )
            self._tell(Topic.TRADE, trade, product, *(ask.provider for ask in asks))

    def _bid(self, key: Digest) -> Bid | None:
        body = self._kept(InboxRow, "key", str(key), "body")
        return None if body is None else from_json(body, SignedBid).bid.payload

    def _kept(self, kind: Any, name: str, key: object, column: str) -> Any:
        table = table_of(kind)
        wanted = select(table.c[column]).where(table.c[name] == key)
        return self._connection.scalar(wanted)

    def _tell(self, topic: Topic, body: NewsBody, product: int = 0, *accounts: Address) -> None:
        self._rows.append(
            {
                "topic": topic.value,
                "product": product,
                "accounts": " ".join(sorted({str(each) for each in accounts})),
                "body": to_json(body),
            }
        )


def _listed(key: Digest, ask: Ask, advert: SignedAdvert) -> BookChange:
    return BookChange(
        ask=key,
        product=ask.product,
        gpu_class=advert.body.profile.gpu_class,
        price=ask.min_price_per_hour,
    )
