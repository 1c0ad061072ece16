"""Campaigns of group buys as rows and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloud_gpu.cli.output import rate
from cloud_gpu.cli.trading import SHOWN_DIGITS, table_of
from cloud_gpu.protocol.group_reports import CampaignReport
from cloud_gpu.protocol.units import format_duration
from cloud_gpu.protocol.utc import format_utc

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


def campaign_row(report: CampaignReport, names: Mapping[int, str]) -> dict[str, Any]:
    """A campaign and how far it is; `names` are its products' in words."""
    said = report.campaign
    return {
        "campaign": str(report.id),
        "state": str(report.state),
        "product": said.product,
        "gpus": names.get(said.product, ""),
        "price": rate(said.price_per_hour),
        "duration_s": said.duration,
        "goal": said.goal,
        "slices": report.slices,
        "missing_slices": report.missing_slices,
        "missing_machines": report.missing_machines,
        "start": format_utc(said.window_start),
        "deadline": format_utc(said.deadline),
        "organiser": str(said.organiser),
    }


def campaigns_table(rows: list[dict[str, Any]]) -> Table:
    """One line each."""
    return table_of(
        ("campaign", "product", "a GPU-hour", "pledged", "machines"),
        [
            (
                row["campaign"][:SHOWN_DIGITS],
                f"{row['gpus']}\nuntil {row['deadline']}",
                f"{row['price']['amount']} for {format_duration(row['duration_s'])}",
                f"{row['slices']} of {row['goal']}\n{row['state']}",
                f"{row['missing_machines']} missing" if row["missing_machines"] else "enough",
            )
            for row in rows
        ],
    )


def campaign_table(row: dict[str, Any]) -> Group:
    """One campaign, its pledges below it."""
    from rich.console import Group

    shown = ("campaign", "each", "spot", "start", "organiser", "why")
    facts = [(name, _text(row[name])) for name in shown if row[name]]
    facts += [("your lease", lease) for lease in row["leases"]]
    facts += [("handed in", f"{each['state']} {each.get('why', '')}") for each in row["handed_in"]]
    pledges = [
        (
            str(each["place"]),
            each["buyer"][:SHOWN_DIGITS] + (" (you)" if each["yours"] else ""),
            str(each["slices"]),
            each["amount"]["amount"],
            each["state"],
        )
        for each in row["pledges"]
    ]
    return Group(
        campaigns_table([row]),
        table_of(("", ""), facts),
        table_of(("place", "buyer", "slices", "locked", "state"), pledges),
    )


def _text(value: Any) -> str:
    return str(value["amount"]) if isinstance(value, dict) else str(value)


def notices_table(rows: list[dict[str, Any]]) -> Table:
    """One line each."""
    return table_of(
        ("", "at", "campaign", "what", "pledged", "tokens"),
        [
            (
                str(row["number"]),
                row["at"],
                row["campaign"][:SHOWN_DIGITS],
                row["kind"],
                f"{row['slices']} of {row['goal']}",
                row["amount"]["amount"],
            )
            for row in rows
        ],
    )
