"""`cloud-gpu bid`: orders without a session to hold: sign, hand in, look at, take back.

What was handed in from here is remembered, so that `bid ls` can ask how far it came.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cloud_gpu.cli.confirming import confirm
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import NoSuchThing, UsageWrong
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.output import money, rate
from cloud_gpu.cli.requirements import (
    AuditBps,
    Block,
    Chunk,
    Count,
    Duration,
    ExcludeProvider,
    Interruptible,
    Isolation,
    MaxPrice,
    MinCount,
    OneRound,
    Provider,
    Region,
    Scope,
    StartAfter,
    StartBy,
    Verified,
    requirement,
)
from cloud_gpu.cli.trading import SHOWN_DIGITS, Explain, digest_of, show_explanation, table_of
from cloud_gpu.cli.verdicts import ENDED, first_verdict_on_loop, is_judged, require_standing
from cloud_gpu.cli.wallet import opened_wallet
from cloud_gpu.handing_in import HandingIn
from cloud_gpu.protocol.codec import from_json, to_builtins
from cloud_gpu.protocol.errors import MarketUnavailable, Rejected
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.units import format_duration, format_tokens
from cloud_gpu.protocol.values import Digest
from cloud_gpu.spending import escrow_of

if TYPE_CHECKING:
    from rich.table import Table

    from cloud_gpu.client import Client
    from cloud_gpu.settings import Settings

_LIVE = (BidState.PENDING, BidState.MATCHED)
_SHOWN_MAX = 50


def place(
    run: Invocation,
    gpu: Annotated[
        str | None, typer.Option("--gpu", help='A class or a word of one: "A100".')
    ] = None,
    count: Count = 1,
    max_price: MaxPrice = None,
    duration: Duration = "1h",
    start_by: StartBy = "60s",
    region: Region = None,
    isolation: Isolation = None,
    verified: Verified = False,
    audit_bps: AuditBps = None,
    exclude_provider: ExcludeProvider = None,
    provider: Provider = None,
    one_round: OneRound = False,
    interruptible: Interruptible = False,
    min_count: MinCount = 0,
    scope: Scope = None,
    chunk: Chunk = 0,
    start_after: StartAfter = None,
    block: Block = False,
    body: Annotated[
        str | None, typer.Option("--body", help="A bid that was signed before; - is stdin.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Sign and print; hand nothing in.")
    ] = False,
) -> None:
    """Hand a signed bid in. Who bids must take the lease up, or owes its no-show amount."""
    settings = run.settings(max_price=max_price)
    if (gpu is None) == (body is None):
        raise UsageWrong("a bid is either made from --gpu and the others, or read by --body")
    if body is not None:
        orders: tuple[SignedBid, ...] = _read(body)
    else:
        request = requirement(
            settings,
            gpu=gpu or "",
            count=count,
            duration=duration,
            start_by=start_by,
            region=region,
            isolation=isolation,
            verified=verified,
            audit_bps=audit_bps,
            exclude_provider=exclude_provider,
            provider=provider,
            one_round=one_round,
            interruptible=interruptible,
            min_count=min_count,
            scope=scope,
            chunk=chunk,
            start_after=start_after,
            block=block,
        )
        orders = run.ask(settings, lambda client: client.sign(request, run.say.progress))
    _confirm_and_hand_in(run, settings, orders, dry_run=dry_run)


def _print(run: Invocation, orders: tuple[SignedBid, ...]) -> None:
    rows = [_order_row(order) for order in orders]
    signed = [to_builtins(order) for order in orders]
    run.say.result("bid", {"orders": signed, "bids": rows}, lambda: _orders_table(rows))


def _confirm_and_hand_in(
    run: Invocation, settings: Settings, orders: tuple[SignedBid, ...], *, dry_run: bool
) -> None:
    if dry_run:
        _print(run, orders)
        return
    most = max(escrow_of(order.bid.payload).value for order in orders)
    confirm(run, f"Bid up to {format_tokens(most)} tokens?")
    handed = HandingIn()
    report = _hand_in(run, settings, orders, handed)
    look = _look_at(handed.standing[0].bid.payload.id if report is None else report.bid)
    if report is not None:
        require_standing(report.state, report.rejection, look)
    rows = [_order_row(order) for order in handed.standing]
    run.say.results("bid", rows, lambda: _orders_table(rows))
    if report is not None:
        run.say.progress(_how_far(report))
    run.say.next(look)


def _look_at(bid: Digest) -> str:
    return f"cloud-gpu bid show {str(bid)[:SHOWN_DIGITS]}"


def _how_far(report: BidReport) -> str:
    match report.state:
        case BidState.OPENED:
            return f"Opened: {', '.join(lease.short for lease in report.leases)}."
        case BidState.MATCHED:
            return "Matched; its lease is being opened."
        case state:
            return f"It is {state}: {report.rejection or 'no round has looked at it yet'}"


def _hand_in(
    run: Invocation, settings: Settings, orders: tuple[SignedBid, ...], handed: HandingIn
) -> BidReport | None:
    """Tell and remember each bid that the market has, or may have: its answer can be lost.

    Returns what it first tells of them.
    """

    async def submit(client: Client) -> BidReport | None:
        for order in handed.sendable(orders):
            bid = order.bid.payload.id
            is_heard = False
            try:
                with handed.trying(order):
                    await client.submit(order)
                    is_heard = True
            finally:
                if is_heard:
                    run.say.progress(f"bid {bid}")
                elif order in handed.standing:
                    run.say.progress(
                        f"no answer about a bid; it may stand: cloud-gpu bid show {bid}"
                    )
        for failure in handed.settled():
            run.say.progress(f"one market less has a bid: {failure}")
        return await first_verdict_on_loop(
            run,
            _look_at(handed.standing[0].bid.payload.id),
            lambda: _best_of(client, handed.standing),
            lambda one: is_judged(one.state, one.rejection),
        )

    try:
        return run.ask(settings, submit)
    finally:
        rows = [{**_order_row(order), "market": settings.market} for order in handed.standing]
        if rows:
            run.outside.remember("bids", rows)


async def _best_of(client: Client, orders: Sequence[SignedBid]) -> BidReport:
    """Of alternatives, how the one fares that came furthest, by the markets that answer."""
    reports: list[BidReport] = []
    silent: MarketUnavailable | Rejected | None = None
    for order in orders:
        try:
            reports.append(await client.report(order.bid.payload.id))
        except (MarketUnavailable, Rejected) as error:
            silent = error
    if silent is not None and all(one.state in ENDED for one in reports):
        raise silent
    return min(reports, key=lambda one: (one.state in ENDED, one.state is BidState.PENDING))


def _read(body: str) -> tuple[SignedBid, ...]:
    """One signed bid, or all that `bid place --dry-run --json` printed."""
    try:
        text = sys.stdin.read() if body == "-" else Path(body).read_text()
        return orders_in(text)
    except (OSError, ValueError) as error:
        raise UsageWrong(f"--body {body}: {error}") from error


class _Printed(msgspec.Struct, frozen=True):
    """What a dry run prints; the rest of it is for people."""

    orders: tuple[SignedBid, ...]


def orders_in(text: str) -> tuple[SignedBid, ...]:
    """Read signed bids strictly. Raises ValueError naming the field."""
    if '"orders"' in text:
        return from_json(text, _Printed).orders
    return (from_json(text, SignedBid),)


def show(
    run: Invocation,
    bid: Annotated[
        str, typer.Argument(metavar="BID", help="Its id, or its beginning as `bid ls` shows it.")
    ],
    explain: Explain = False,
) -> None:
    """Say how far a bid came, by the market's word."""
    wanted = digest_of(bid, "BID", _noted(run))
    report = run.ask(run.settings(), lambda client: client.report(wanted))
    row = _report_row(report)
    if explain and report.explanation is not None:
        show_explanation(run, "bid", row, report.explanation, "asks")
        return
    run.say.result("bid", row, lambda: _reports_table([row]))
    if row["why"]:
        run.say.progress(row["why"])
    if explain:
        waits = report.state in _LIVE
        run.say.progress("no round explained this bid" + " yet" * waits)


def ls(run: Invocation) -> None:
    """List the bids that were handed in from here, newest first."""
    settings = run.settings()
    mine = [b for b in run.outside.remembered("bids") if b.get("market") == settings.market]
    newest = mine[::-1][:_SHOWN_MAX]
    rows = run.ask(settings, lambda client: _reports(client, newest, settings))
    run.say.results("bid", rows, lambda: _reports_table(rows))


async def _reports(
    client: Client, bids: list[dict[str, Any]], settings: Settings
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    silent: list[MarketUnavailable] = []
    for known in bids:
        try:
            found = _report_row(await client.report(digest_of(known["bid"], "BID")))
        except Rejected as error:
            found = {"bid": known["bid"], "state": f"unknown ({error.rejection.reason})"}
        except MarketUnavailable as error:
            if not settings.other_markets:  # else another one may tell of the other bids
                raise
            found = {"bid": known["bid"], "state": "not told: its market does not answer"}
            silent.append(error)
        rows.append({**found, "wanted": f"{known['count']} x {known['gpu_classes']}"})
    if silent and len(silent) == len(bids):
        raise silent[0]
    return rows


def cancel(
    run: Invocation,
    bid: Annotated[str, typer.Argument(metavar="BID", help="Its id.")],
) -> int:
    """Void a bid: its nonce on chain, which binds everybody, then in the market's book."""
    settings, wanted = run.settings(), digest_of(bid, "BID", _noted(run))
    report = run.ask(settings, lambda client: client.report(wanted))
    if report.state not in _LIVE:
        raise NoSuchThing(
            f"bid {bid} is {report.state}", "one that may still open", "cloud-gpu bid ls"
        )
    known = next((b for b in run.outside.remembered("bids") if b["bid"] == str(wanted)), None)
    if known is not None:
        confirm(run, "Void the bid's nonce on chain (it costs gas)?")
        with opened_wallet(run, settings) as wallet:
            wallet.cancel_one(int(known["nonce"]))
    else:
        run.say.progress("it was not placed from here: its nonce stays valid until it expires")
    run.ask(settings, lambda client: client.cancel(wanted))
    payload = {"bid": str(wanted), "voided_on_chain": known is not None}
    run.say.result("bid-cancelled", payload, lambda: f"Cancelled {bid}.")
    return ExitCode.DONE


def _noted(run: Invocation) -> list[str]:
    return [each["bid"] for each in run.outside.remembered("bids")]


def _order_row(order: SignedBid) -> dict[str, Any]:
    bid = order.bid.payload
    return {
        "bid": str(bid.id),
        "gpu_classes": ", ".join(order.terms.gpu_classes),
        "count": bid.count,
        "max_price": rate(bid.max_price_per_hour),
        "duration_s": bid.duration,
        "expires_at": bid.start_by,
        "nonce": bid.nonce,
        "escrow_max": money(escrow_of(bid)),
    }


def _report_row(report: BidReport) -> dict[str, Any]:
    return {
        "bid": str(report.bid),
        "state": str(report.state),
        "reason": str(report.rejection.reason) if report.rejection is not None else "",
        "why": str(report.rejection) if report.rejection is not None else "",
        "price": rate(report.price) if report.price is not None else None,
        "leases": [str(lease) for lease in report.leases],
    }


def _orders_table(rows: list[dict[str, Any]]) -> Table:
    return table_of(
        ("bid", "GPUs", "a GPU-hour", "for", "locks at most"),
        [
            (
                row["bid"][:SHOWN_DIGITS],
                f"{row['count']} x {row['gpu_classes']}",
                row["max_price"]["amount"],
                format_duration(row["duration_s"]),
                row["escrow_max"]["amount"],
            )
            for row in rows
        ],
    )


def _reports_table(rows: list[dict[str, Any]]) -> Table:
    return table_of(
        ("bid", "wanted", "state", "price", "lease", "why"),
        [
            (
                row["bid"][:SHOWN_DIGITS],
                row.get("wanted", ""),
                row["state"],
                (row.get("price") or {}).get("amount", ""),
                "\n".join(LeaseKey.parse(lease).short for lease in row.get("leases", ())),
                row.get("reason", ""),
            )
            for row in rows
        ],
    )
