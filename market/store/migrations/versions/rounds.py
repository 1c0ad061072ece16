"""Published rounds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "round",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            primary_key=True,
            autoincrement=False,
            nullable=False,
        ),
        sa.Column(
            "inbox_to",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            index=True,
            nullable=False,
        ),
        sa.Column("header", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
