"""Nodes of machines that were promised to futures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "future_node",
        sa.Column("machine", sa.String(), primary_key=True, nullable=False),
        sa.Column("advert", sa.LargeBinary(), nullable=False),
    )
