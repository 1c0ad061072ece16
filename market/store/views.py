"""The public tables: written by the matchmaker's effects, read by the API alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, or_, select, tuple_

from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import (
    KeepNotice,
    ListAsk,
    ListProduct,
    MarketEffect,
    PublishRound,
    ReportAuction,
    ReportBid,
    ReportCampaign,
    ReportContract,
    ReportFuture,
    ReportIndex,
    ReportLease,
    ReportNode,
    ReportPledge,
    ReportSeries,
    UnlistAsk,
)
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.values import Address, Digest
from market.ports import Place, SignHeader
from market.standing import Standing
from market.store.database import Database, octets, table_of, upsert
from market.store.futures import write_future
from market.store.group_buys import write_group
from market.store.news import NewsDesk
from market.store.rounds import write_round
from market.store.tables import (
    AskRow,
    AuctionRow,
    BidRow,
    FutureNodeRow,
    LeaseRow,
    ProductRow,
    StoreFact,
)

_STANDING = "standing"


class SqlBook:
    """The ports `BookView` and `BookWriter` over a database."""

    def __init__(self, database: Database, sign: SignHeader | None = None) -> None:
        """`sign` is the market's; None: this one is for reading."""
        self._database, self._sign = database, sign

    # Reading.

    def report(self, bid: Digest) -> BidReport | None:
        """See `BookView`."""
        table = table_of(BidRow)
        with self._database.reading() as connection:
            body = connection.scalar(select(table.c.report).where(table.c.bid == str(bid)))
        return from_json(body, BidReport) if body is not None else None

    def waiting(self, count_max: int) -> Sequence[BidReport]:
        """Bids without a match, by id."""
        table = table_of(BidRow)
        wanted = (
            select(table.c.report)
            .where(table.c.state == BidState.PENDING.value)
            .order_by(table.c.bid)
            .limit(count_max)
        )
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted).all()
        return [from_json(body, BidReport) for body in bodies]

    def asks(
        self, gpu: str, count_max: int, at: int, after: Place | None = None
    ) -> Sequence[SignedAdvert]:
        """See `BookView`. `gpu` matches by words: "A100" is one of "A100-SXM4-80GB"."""
        columns = table_of(AskRow).c
        wanted = select(columns.advert).where(columns.start_by > at)
        if after is not None:
            wanted = wanted.where(tuple_(columns.price, columns.ask) > tuple_(*after))
        wanted = wanted.order_by(columns.price, columns.ask).limit(count_max)
        with self._database.reading() as connection:
            if gpu:
                classes = connection.scalars(select(columns.gpu_class).distinct()).all()
                meant = [each for each in classes if _words(gpu) <= _words(each)]
                wanted = wanted.where(columns.gpu_class.in_(meant))
            adverts = connection.scalars(wanted).all()
        return [from_json(advert, SignedAdvert) for advert in adverts]

    def products(self, after: int = 0, count_max: int | None = None) -> Sequence[Product]:
        """See `BookView`."""
        table = table_of(ProductRow)
        wanted = select(table.c.body).where(table.c.product > after).order_by(table.c.product)
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted.limit(count_max)).all()
        return [from_json(body, Product) for body in bodies]

    def standing(self) -> Standing | None:
        """See `BookView`."""
        table = table_of(StoreFact)
        wanted = select(table.c.text).where(table.c.name == _STANDING)
        with self._database.reading() as connection:
            found: str | None = connection.scalar(wanted)
        return from_json(found, Standing) if found is not None else None

    def leases(
        self,
        *,
        buyer: Address | None = None,
        provider: Address | None = None,
        bid: Digest | None = None,
        state: LeaseState | None = None,
        count_max: int = 100,
        after: Place | None = None,
    ) -> Sequence[LeaseReport]:
        """See `BookView`."""
        table = table_of(LeaseRow)
        wanted = select(table.c.report).order_by(table.c.opened_at.desc(), table.c.lease)
        for name, value in (("buyer", buyer), ("provider", provider), ("bid", bid)):
            if value is not None:
                wanted = wanted.where(table.c[name] == str(value))
        if state is not None:
            wanted = wanted.where(table.c.state == state.value)
        if after is not None:
            opened_at, lease = after
            is_older = table.c.opened_at < opened_at
            wanted = wanted.where(
                or_(is_older, and_(table.c.opened_at == opened_at, table.c.lease > lease))
            )
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted.limit(count_max)).all()
        return [from_json(body, LeaseReport) for body in bodies]

    def auctions(self, before: int | None, count_max: int) -> Sequence[AuctionReport]:
        """See `BookView`."""
        table = table_of(AuctionRow)
        wanted = select(table.c.report).order_by(table.c.closed_at.desc()).limit(count_max)
        if before is not None:
            wanted = wanted.where(table.c.closed_at < before)
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted).all()
        return [from_json(body, AuctionReport) for body in bodies]

    def auction(self, window: int) -> AuctionReport | None:
        """See `BookView`."""
        table = table_of(AuctionRow)
        wanted = select(table.c.report).where(table.c.closed_at == window)
        with self._database.reading() as connection:
            body = connection.scalar(wanted)
        return from_json(body, AuctionReport) if body is not None else None

    def told(self) -> dict[tuple[str, str], bytes]:
        """The last report of each ("bid", id), ("lease", key) and ("auction", window), as bytes."""
        bids, leases, auctions = (table_of(row).c for row in (BidRow, LeaseRow, AuctionRow))
        with self._database.reading() as connection:
            rows = [
                *(
                    (("bid", key), body)
                    for key, body in connection.execute(select(bids.bid, bids.report))
                ),
                *(
                    (("lease", key), body)
                    for key, body in connection.execute(select(leases.lease, leases.report))
                ),
                *(
                    (("auction", str(key)), body)
                    for key, body in connection.execute(select(auctions.closed_at, auctions.report))
                ),
            ]
        return {subject: octets(body) for subject, body in rows}

    # Writing.

    def clear_asks(self) -> None:
        """See `BookWriter`."""
        with self._database.transaction() as connection:
            connection.execute(delete(table_of(AskRow)))
            connection.execute(delete(table_of(FutureNodeRow)))
            desk = NewsDesk(connection)
            desk.restart()
            desk.write()

    def stand(self, standing: Standing) -> None:
        """See `BookWriter`."""
        text = to_json(standing).decode()
        with self._database.transaction() as connection:
            upsert(connection, table_of(StoreFact), "name", _STANDING, text=text)

    def write(self, effects: Sequence[MarketEffect]) -> None:
        """See `BookWriter`."""
        with self._database.transaction() as connection:
            desk = NewsDesk(connection)
            for effect in effects:
                desk.consider(effect)
                if isinstance(effect, PublishRound):
                    assert self._sign is not None, "only the matchmaker's book publishes"
                    write_round(connection, effect, self._sign)
                else:
                    _write(connection, effect)
            desk.write()


def _write(connection: Connection, effect: MarketEffect) -> None:
    match effect:
        case ReportBid():
            _write_bid(connection, effect.report)
        case ListAsk():
            _write_ask(connection, effect)
        case UnlistAsk():
            table = table_of(AskRow)
            connection.execute(delete(table).where(table.c.ask == str(effect.ask)))
        case ListProduct():
            body = to_json(effect.product)
            upsert(connection, table_of(ProductRow), "product", effect.product.id, body=body)
        case ReportLease():
            _write_lease(connection, effect.report)
        case ReportAuction(report=report):
            body = to_json(report)
            upsert(connection, table_of(AuctionRow), "closed_at", report.window, report=body)
        case ReportFuture() | ReportContract() | ReportSeries() | ReportNode() | ReportIndex():
            write_future(connection, effect)
        case ReportCampaign() | ReportPledge() | KeepNotice():
            write_group(connection, effect)
        case _:
            raise AssertionError(f"{type(effect).__name__} is no effect on the public tables")


def _write_bid(connection: Connection, report: BidReport) -> None:
    upsert(
        connection,
        table_of(BidRow),
        "bid",
        str(report.bid),
        state=report.state.value,
        report=to_json(report),
    )


def _write_ask(connection: Connection, effect: ListAsk) -> None:
    ask = effect.advert.body.ask.payload
    upsert(
        connection,
        table_of(AskRow),
        "ask",
        str(effect.ask),
        gpu_class=effect.advert.body.profile.gpu_class,
        price=ask.min_price_per_hour.value,
        start_by=ask.start_by,
        advert=to_json(effect.advert),
    )


def _write_lease(connection: Connection, report: LeaseReport) -> None:
    upsert(
        connection,
        table_of(LeaseRow),
        "lease",
        str(report.terms.key),
        buyer=str(report.terms.buyer),
        provider=str(report.terms.key.provider),
        bid=str(report.bid),
        state=report.state.value,
        opened_at=report.terms.opened_at,
        report=to_json(report),
    )


def _words(gpu_class: str) -> set[str]:
    return set(re.findall(r"[A-Z0-9]+", gpu_class.upper()))
