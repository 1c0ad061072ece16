"""The first tables: inbox, journal, and what the API answers from."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

_WORD = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make them all."""
    op.create_table("store_fact", _text("name", primary_key=True), _text("text"))
    op.create_table(
        "inbox",
        _number("position", primary_key=True, autoincrement=False),
        _text("key", unique=True),
        _octets("body"),
        _number("received_at"),
    )
    op.create_table(
        "journal",
        _number("position", primary_key=True, autoincrement=False),
        _number("at"),
        _octets("event"),
        _octets("head"),
    )
    op.create_table(
        "bid", _text("bid", primary_key=True), _text("state", index=True), _octets("report")
    )
    op.create_table(
        "ask",
        _text("ask", primary_key=True),
        _text("gpu_class", index=True),
        _number("price", index=True),
        _number("start_by"),
        _octets("advert"),
    )
    op.create_table(
        "product", _number("product", primary_key=True, autoincrement=False), _octets("body")
    )
    op.create_table(
        "lease",
        _text("lease", primary_key=True),
        _text("buyer", index=True),
        _text("provider", index=True),
        _text("bid", index=True),
        _text("state"),
        _number("opened_at", index=True),
        _octets("report"),
    )
    _make_futures()


def _make_futures() -> None:
    op.create_table("future_order", _text("order_id", primary_key=True), _octets("report"))
    op.create_table(
        "future_contract",
        _number("contract", primary_key=True, autoincrement=False),
        _text("series", index=True),
        _text("long", index=True),
        _text("short", index=True),
        _text("state"),
        _number("opened_at"),
        _octets("report"),
    )
    op.create_table(
        "future_series",
        _text("series", primary_key=True),
        _number("product", index=True),
        _number("deadline", index=True),
        _octets("report"),
    )
    op.create_table("price_index", _text("gpu_class", primary_key=True), _octets("report"))


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=False, **options)


def _number(name: str, **options: Any) -> sa.Column[int]:
    return sa.Column(name, _WORD, nullable=False, **options)


def _octets(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)
