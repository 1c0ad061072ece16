"""The public tables of futures and prices: the matchmaker's effects in, the API's answers out."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select, tuple_

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import (
    FutureReported,
    ReportContract,
    ReportFuture,
    ReportIndex,
    ReportNode,
    ReportSeries,
)
from cloud_gpu.protocol.future_reports import (
    ContractReport,
    ContractState,
    FutureReport,
    SeriesReport,
)
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.price_reports import IndexPoint
from cloud_gpu.protocol.values import Address, Digest
from market.ports import Place
from market.store.database import Database, octets, table_of, upsert
from market.store.tables import (
    FutureContractRow,
    FutureNodeRow,
    FutureOrderRow,
    FutureSeriesRow,
    PriceIndexRow,
)


class SqlFutures:
    """The port `FuturesView` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def order(self, order: Digest) -> FutureReport | None:
        """See `FuturesView`."""
        table = table_of(FutureOrderRow)
        with self._database.reading() as connection:
            wanted = select(table.c.report).where(table.c.order_id == str(order))
            body = connection.scalar(wanted)
        return from_json(body, FutureReport) if body is not None else None

    def series(
        self, product: int | None, at: int, count_max: int, after: Place | None = None
    ) -> Sequence[SeriesReport]:
        """See `FuturesView`."""
        table = table_of(FutureSeriesRow)
        wanted = select(table.c.report).where(table.c.deadline >= at)
        if product is not None:
            wanted = wanted.where(table.c.product == product)
        place = table.c.product, table.c.deadline, table.c.series
        if after is not None:
            wanted = wanted.where(tuple_(*place) > tuple_(*after))
        wanted = wanted.order_by(*place)
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted.limit(count_max)).all()
        return [from_json(body, SeriesReport) for body in bodies]

    def history(
        self, series: Series, count_max: int, before: int | None = None
    ) -> Sequence[ContractReport]:
        """See `FuturesView`."""
        columns = table_of(FutureContractRow).c
        is_meant = and_(columns.series == str(series), columns.state != ContractState.UNDONE.value)
        return self._contracts(is_meant, count_max, before)

    def positions(
        self, account: Address, count_max: int, before: int | None = None
    ) -> Sequence[ContractReport]:
        """See `FuturesView`."""
        columns = table_of(FutureContractRow).c
        is_side = or_(columns.long == str(account), columns.short == str(account))
        return self._contracts(is_side, count_max, before)

    def node(self, machine: MachineKey) -> SignedAdvert | None:
        """See `FuturesView`."""
        columns = table_of(FutureNodeRow).c
        wanted = select(columns.advert).where(columns.machine == str(machine))
        with self._database.reading() as connection:
            body = connection.scalar(wanted)
        return from_json(body, SignedAdvert) if body is not None else None

    def index(self, after: str = "", count_max: int | None = None) -> Sequence[IndexPoint]:
        """See `FuturesView`."""
        columns = table_of(PriceIndexRow).c
        wanted = select(columns.report).where(columns.gpu_class > after)
        wanted = wanted.order_by(columns.gpu_class).limit(count_max)
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted).all()
        return [from_json(body, IndexPoint) for body in bodies]

    def told(self) -> dict[tuple[str, str], bytes]:
        """The last report of each ("future", order) and each ("contract", number), as its bytes."""
        orders, contracts = table_of(FutureOrderRow).c, table_of(FutureContractRow).c
        with self._database.reading() as connection:
            rows = [
                *(
                    (("future", key), body)
                    for key, body in connection.execute(select(orders.order_id, orders.report))
                ),
                *(
                    (("contract", str(key)), body)
                    for key, body in connection.execute(
                        select(contracts.contract, contracts.report)
                    )
                ),
            ]
        return {subject: octets(body) for subject, body in rows}

    def _contracts(
        self, is_meant: ColumnElement[bool], count_max: int, before: int | None
    ) -> Sequence[ContractReport]:
        columns = table_of(FutureContractRow).c
        wanted = select(columns.report).where(is_meant)
        if before is not None:
            wanted = wanted.where(columns.contract < before)
        wanted = wanted.order_by(columns.contract.desc()).limit(count_max)
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted).all()
        return [from_json(body, ContractReport) for body in bodies]


def write_future(connection: Connection, effect: FutureReported | ReportIndex) -> None:
    """Carry out one effect in the caller's transaction."""
    match effect:
        case ReportFuture(report=report):
            table = table_of(FutureOrderRow)
            upsert(connection, table, "order_id", str(report.order), report=to_json(report))
        case ReportContract(report=report):
            _write_contract(connection, report)
        case ReportSeries(report=report):
            upsert(
                connection,
                table_of(FutureSeriesRow),
                "series",
                str(report.series),
                product=report.series.product,
                deadline=report.deadline,
                report=to_json(report),
            )
        case ReportNode(machine=machine, advert=None):
            nodes = table_of(FutureNodeRow)
            connection.execute(delete(nodes).where(nodes.c.machine == str(machine)))
        case ReportNode(machine=machine, advert=advert):
            body = to_json(advert)
            upsert(connection, table_of(FutureNodeRow), "machine", str(machine), advert=body)
        case ReportIndex(report=point):
            table, key = table_of(PriceIndexRow), str(point.gpu_class)
            upsert(connection, table, "gpu_class", key, report=to_json(point))


def _write_contract(connection: Connection, report: ContractReport) -> None:
    contract = report.contract
    upsert(
        connection,
        table_of(FutureContractRow),
        "contract",
        contract.id,
        series=str(contract.series),
        long=str(contract.long),
        short=str(contract.short),
        state=contract.state.value,
        opened_at=contract.opened_at,
        report=to_json(report),
    )
