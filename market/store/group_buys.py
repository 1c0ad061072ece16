"""The public tables of group buys: the matchmaker's effects in, the API's answers out."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import (
    GroupReported,
    KeepNotice,
    ReportCampaign,
    ReportPledge,
)
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignReport,
    CampaignState,
    GroupLease,
    LockedPledge,
    PledgeReport,
)
from cloud_gpu.protocol.values import Address, Digest
from market.store.database import Database, octets, table_of, upsert
from market.store.tables import CampaignRow, NoticeRow, PledgeRow


class SqlGroups:
    """The port `GroupsView` over a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def campaigns(
        self, *, product: int | None, state: CampaignState | None, after: int, count_max: int
    ) -> Sequence[CampaignReport]:
        """See `GroupsView`."""
        table = table_of(CampaignRow)
        wanted = select(table.c.report).where(table.c.number > after).order_by(table.c.number)
        if product is not None:
            wanted = wanted.where(table.c.product == product)
        if state is not None:
            wanted = wanted.where(table.c.state == state.value)
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted.limit(count_max)).all()
        return [from_json(body, CampaignReport) for body in bodies]

    def campaign(self, campaign: Digest) -> ReportCampaign | None:
        """See `GroupsView`."""
        columns = table_of(CampaignRow).c
        wanted = select(columns.report, columns.pledges, columns.leases)
        with self._database.reading() as connection:
            row = connection.execute(wanted.where(columns.campaign == str(campaign))).first()
        if row is None:
            return None
        return ReportCampaign(
            report=from_json(row[0], CampaignReport),
            pledges=from_json(row[1], tuple[LockedPledge, ...]),
            leases=from_json(row[2], tuple[GroupLease, ...]),
        )

    def pledge(self, pledge: Digest) -> PledgeReport | None:
        """See `GroupsView`."""
        table = table_of(PledgeRow)
        with self._database.reading() as connection:
            wanted = select(table.c.report).where(table.c.pledge == str(pledge))
            body = connection.scalar(wanted)
        return from_json(body, PledgeReport) if body is not None else None

    def notices(self, account: Address, after: int, count_max: int) -> Sequence[CampaignNotice]:
        """See `GroupsView`."""
        table = table_of(NoticeRow)
        wanted = (
            select(table.c.body)
            .where(table.c.account == str(account), table.c.number > after)
            .order_by(table.c.number)
            .limit(count_max)
        )
        with self._database.reading() as connection:
            bodies = connection.scalars(wanted).all()
        return [from_json(body, CampaignNotice) for body in bodies]

    def told(self) -> dict[tuple[str, str], bytes]:
        """The last report of each ("campaign", id) and each ("pledge", id), as its bytes."""
        campaigns, pledges = table_of(CampaignRow).c, table_of(PledgeRow).c
        wanted = (
            ("campaign", select(campaigns.campaign, campaigns.report)),
            ("pledge", select(pledges.pledge, pledges.report)),
        )
        with self._database.reading() as connection:
            return {
                (kind, key): octets(body)
                for kind, rows in wanted
                for key, body in connection.execute(rows)
            }


def write_group(connection: Connection, effect: GroupReported) -> None:
    """Carry out one effect in the caller's transaction."""
    match effect:
        case ReportCampaign(report=report):
            upsert(
                connection,
                table_of(CampaignRow),
                "campaign",
                str(report.id),
                number=report.number,
                product=report.campaign.product,
                state=report.state.value,
                report=to_json(report),
                pledges=to_json(effect.pledges),
                leases=to_json(effect.leases),
            )
        case ReportPledge(report=report):
            table, key = table_of(PledgeRow), str(report.pledge)
            upsert(connection, table, "pledge", key, report=to_json(report))
        case KeepNotice(notice=notice):
            upsert(
                connection,
                table_of(NoticeRow),
                "number",
                notice.number,
                account=str(notice.account),
                body=to_json(notice),
            )
