"""Block auctions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"

_WORD = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "auction",
        sa.Column("closed_at", _WORD, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("report", sa.LargeBinary(), nullable=False),
    )
