"""News of what changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"

_WORD = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "news",
        sa.Column("number", _WORD, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("topic", sa.String(), nullable=False),
        sa.Column("product", _WORD, nullable=False),
        sa.Column("accounts", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
