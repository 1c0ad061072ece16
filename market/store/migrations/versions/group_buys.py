"""Group buys: campaigns, pledges, and notices to their people."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

_WORD = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "campaign",
        _text("campaign", primary_key=True),
        _number("number", index=True),
        _number("product", index=True),
        _text("state", index=True),
        _octets("report"),
        _octets("pledges"),
        _octets("leases"),
    )
    op.create_table("pledge", _text("pledge", primary_key=True), _octets("report"))
    op.create_table(
        "notice",
        _number("number", primary_key=True, autoincrement=False),
        _text("account", index=True),
        _octets("body"),
    )


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=False, **options)


def _number(name: str, **options: Any) -> sa.Column[int]:
    return sa.Column(name, _WORD, nullable=False, **options)


def _octets(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)
