"""The tables. Protocol values lie in them as their canonical JSON; columns are for finding them.

They are made and changed by `migrations` alone; a test holds the two equal.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer
from sqlmodel import Field, SQLModel

_WORD = BigInteger().with_variant(Integer, "sqlite")
"""64 bits; SQLite's own name for that is INTEGER, and only so a key of it is the row's number."""

_OURS = {"autoincrement": False}
"""A number that no database may choose."""


class StoreFact(SQLModel, table=True):
    """What this store is: whose journal it holds, what its market last said of itself."""

    __tablename__ = "store_fact"
    name: str = Field(primary_key=True)
    text: str


class InboxRow(SQLModel, table=True):
    """One verified order or cancellation, in the order of acceptance."""

    __tablename__ = "inbox"
    position: int = Field(primary_key=True, sa_type=_WORD, sa_column_kwargs=_OURS)
    key: str = Field(unique=True)
    """The bid's id; "cancel:" before it for a cancellation, "future:" before an order's,
    "campaign:" and "pledge:" before those of group buys."""
    body: bytes
    received_at: int = Field(sa_type=_WORD)


class JournalRow(SQLModel, table=True):
    """One event that the matchmaker handled, chained to all before it."""

    __tablename__ = "journal"
    position: int = Field(primary_key=True, sa_type=_WORD, sa_column_kwargs=_OURS)
    at: int = Field(sa_type=_WORD)
    """The party's clock when it handled the event, Unix milliseconds."""
    event: bytes
    head: bytes
    """keccak256 of the head before, and of this row."""


class BidRow(SQLModel, table=True):
    """What the API answers about a bid."""

    __tablename__ = "bid"
    bid: str = Field(primary_key=True)
    state: str = Field(index=True)
    report: bytes


class AskRow(SQLModel, table=True):
    """One ask on offer."""

    __tablename__ = "ask"
    ask: str = Field(primary_key=True)
    gpu_class: str = Field(index=True)
    price: int = Field(index=True, sa_type=_WORD)
    start_by: int = Field(sa_type=_WORD)
    advert: bytes


class ProductRow(SQLModel, table=True):
    """One product."""

    __tablename__ = "product"
    product: int = Field(primary_key=True, sa_type=_WORD, sa_column_kwargs=_OURS)
    body: bytes


class LeaseRow(SQLModel, table=True):
    """One lease, open or over."""

    __tablename__ = "lease"
    lease: str = Field(primary_key=True)
    buyer: str = Field(index=True)
    provider: str = Field(index=True)
    bid: str = Field(index=True)
    state: str
    opened_at: int = Field(index=True, sa_type=_WORD)
    report: bytes


class FutureOrderRow(SQLModel, table=True):
    """What the API answers about an order of futures."""

    __tablename__ = "future_order"
    order_id: str = Field(primary_key=True)
    report: bytes


class FutureContractRow(SQLModel, table=True):
    """One contract of futures, live or over."""

    __tablename__ = "future_contract"
    contract: int = Field(primary_key=True, sa_type=_WORD, sa_column_kwargs=_OURS)
    series: str = Field(index=True)
    long: str = Field(index=True)
    short: str = Field(index=True)
    state: str
    opened_at: int = Field(sa_type=_WORD)
    report: bytes


class FutureSeriesRow(SQLModel, table=True):
    """A series' depth at the end of its last batch."""

    __tablename__ = "future_series"
    series: str = Field(primary_key=True)
    product: int = Field(index=True, sa_type=_WORD)
    deadline: int = Field(index=True, sa_type=_WORD)
    report: bytes


class FutureNodeRow(SQLModel, table=True):
    """Where the node of a machine is that was promised to a future."""

    __tablename__ = "future_node"
    machine: str = Field(primary_key=True)
    advert: bytes


class AuctionRow(SQLModel, table=True):
    """A block auction that cleared."""

    __tablename__ = "auction"
    closed_at: int = Field(primary_key=True, sa_type=_WORD, sa_column_kwargs=_OURS)
    report: bytes


class CampaignRow(SQLModel, table=True):
    """A group buy."""

    __tablename__ = "campaign"
    campaign: str = Field(primary_key=True)
    number: int = Field(index=True, sa_type=_WORD)
    product: int = Field(index=True, sa_type=_WORD)
    state: str = Field(index=True)
    report: bytes
    pledges: bytes
    leases: bytes


class PledgeRow(SQLModel, table=True):
    """What the API answers about a pledge."""

    __tablename__ = "pledge"
    pledge: str = Field(primary_key=True)
    report: bytes


class NoticeRow(SQLModel, table=True):
    """What an account should know of a campaign."""

    __tablename__ = "notice"
    number: int = Field(primary_key=True, sa_type=_WORD, sa_column_kwargs=_OURS)
    account: str = Field(index=True)
    body: bytes


class PriceIndexRow(SQLModel, table=True):
    """The newest point of a GPU class."""

    __tablename__ = "price_index"
    gpu_class: str = Field(primary_key=True)
    report: bytes


class NewsRow(SQLModel, table=True):
    """One thing that changed."""

    __tablename__ = "news"
    number: int = Field(primary_key=True, sa_type=_WORD, sa_column_kwargs=_OURS)
    topic: str
    product: int = Field(sa_type=_WORD)
    """0: none, or not known."""
    accounts: str
    """Those concerned, parted by spaces."""
    body: bytes


class RoundRow(SQLModel, table=True):
    """One published round."""

    __tablename__ = "round"
    number: int = Field(primary_key=True, sa_type=_WORD, sa_column_kwargs=_OURS)
    inbox_to: int = Field(index=True, sa_type=_WORD)
    """Up to which position it covers the inbox."""
    header: bytes
    """Signed."""
    body: bytes
