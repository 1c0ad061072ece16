"""What commands of futures and group buys share: options, an opened account, words of errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.bidding import WordUnclear
from cloud_gpu.cli.failures import StillWaiting, UsageWrong
from cloud_gpu.cli.flags import flag_of
from cloud_gpu.cli.invocation import Invocation, price
from cloud_gpu.protocol.codec import to_builtins
from cloud_gpu.protocol.errors import ChainUnavailable, Rejected
from cloud_gpu.protocol.match import Explanation
from cloud_gpu.protocol.values import Digest
from cloud_gpu.settings import Settings

if TYPE_CHECKING:
    from rich.table import Table

    from cloud_gpu.group_buyer import GroupBuyer
    from cloud_gpu.trader import Trader

_SIGNED = ("bids", "futures", "assignments", "pledges")
"""Kinds of what is remembered that carry a nonce of the account."""
SHOWN_DIGITS = len("0x") + 10
"""Of an id, where a whole one leaves no room: enough to name it by."""
_BEGINNING_MIN = len("0x") + 6
"""Fewer digits are sooner a slip than an id."""

Product = Annotated[
    str, typer.Option("--gpu", metavar="PRODUCT", help='A product: its number, or "A100:2".')
]
MaybeProduct = Annotated[
    str | None,
    typer.Option("--gpu", metavar="PRODUCT", help='A product: its number, or "A100:2".'),
]
Start = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="UTC|DURATION",
        help='When the window starts: "2026-12-08T16:00", or "7d": the first from then on.',
    ),
]
Length = Annotated[str, typer.Option("--length", help="The window's length: 1h, 4h, 1d or 7d.")]
Units = Annotated[int, typer.Option("--units", help="Machines of the product.")]
MinPrice = Annotated[
    str,
    typer.Option(
        "--min-price", parser=price, metavar="TOKENS", help='Limit in tokens a GPU-hour: "1.20".'
    ),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="What each limit costs; of a match, why its price.")
]
Stands = Annotated[
    str, typer.Option("--stands", help="How long it stands unless it is cancelled: 1d at most.")
]


@contextmanager
def opened_trader(run: Invocation, settings: Settings) -> Iterator[Trader]:
    """The wallet's futures. Raises UsageWrong for a word that cannot be meant."""
    look = "cloud-gpu future positions"
    with (
        patience(run, look),
        words_as_flags(),
        run.outside.trader(settings, run.wait_s) as trader,
    ):
        yield trader


@contextmanager
def opened_group_buyer(run: Invocation, settings: Settings) -> Iterator[GroupBuyer]:
    """The wallet's group buys. Raises UsageWrong for a word that cannot be meant."""
    look = "cloud-gpu group show CAMPAIGN"
    with (
        patience(run, look),
        words_as_flags(),
        run.outside.group_buyer(settings, run.wait_s) as buyer,
    ):
        yield buyer


@contextmanager
def patience(run: Invocation, look: str) -> Iterator[None]:
    """Raises StillWaiting for a transaction that is not mined in the time there is."""
    began = time.monotonic()
    try:
        yield
    except ChainUnavailable as error:
        if time.monotonic() - began < run.wait_s:
            raise
        raise StillWaiting(
            str(error), "an answer in that time", f"{look}, before it is sent again"
        ) from error


@contextmanager
def words_as_flags() -> Iterator[None]:
    """A word that cannot be meant is named by its flag. Raises UsageWrong."""
    try:
        yield
    except WordUnclear as error:
        known = flag_of(error.field)
        flag = known if known.startswith("--") else f"--{error.field.replace('_', '-')}"
        raise UsageWrong(f"{flag}: {error.problem}") from error


def taken_nonces(run: Invocation) -> frozenset[int]:
    """Nonces of what was handed in from here and still stands."""
    now = int(time.time())
    noted = [row for kind in _SIGNED for row in run.outside.remembered(kind)]
    return frozenset(int(row["nonce"]) for row in noted if int(row["expires_at"]) >= now)


def digest_of(text: str, name: str, noted: Iterable[str] = ()) -> Digest:
    """An id on the command line, or the beginning of the one of `noted` that has it, as `ls`
    shows them. Raises UsageWrong.
    """
    begun = {each for each in noted if len(text) >= _BEGINNING_MIN and each.startswith(text)}
    if len(begun) > 1:
        raise UsageWrong(f"{name}: {text!r} begins {len(begun)} ids, needed more digits")
    try:
        return Digest.parse(begun.pop() if begun else text)
    except ValueError as error:
        raise UsageWrong(f"{name}: {error}") from error


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Rows under a head; one without words is none."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, show_header=any(columns), padding=(0, 1, 0, 0)
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def show_explanation(
    run: Invocation, kind: str, row: dict[str, Any], how: Explanation, others: str
) -> None:
    """What each limit of an order costs it, and why its price; it was compared with `others`."""
    rows = [(each.field, str(each.asks), str(each.alone)) for each in how.obstructions]
    rows += [("went to those before it", str(how.taken), "")] if how.taken else []
    columns = (f"of {how.asks} {others}", "kept off", "by this alone")
    told = {**row, "explanation": to_builtins(how)}
    run.say.result(kind, told, lambda: table_of(columns, rows))
    sentences = [each for each in (how.price, how.change) if each]
    for sentence in sentences or [row.get("why", "")]:  # no single change would do
        if sentence:
            run.say.progress(sentence)


def hand_in(
    run: Invocation, kind: str, row: dict[str, Any], place: Callable[[], object], doubt: str
) -> None:
    """Hand something signed in, and remember it if the market has it, or may: answers get lost.

    `doubt` is told when no answer came.
    """
    try:
        place()
    except Rejected:
        raise
    except BaseException:
        run.outside.remember(kind, [row])
        run.say.progress(f"no answer; {doubt}")
        raise
    run.outside.remember(kind, [row])
