"""`cloud-gpu future`: GPU time in a later window: orders, series, prices.

A long buys, a short delivers. What was handed in from here is remembered, so that `future ls` can
ask how far it came; what came of it is `positions`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.cli.confirming import confirm
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import NoSuchThing
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.output import money, rate
from cloud_gpu.cli.positions import show_contract
from cloud_gpu.cli.requirements import MaxPrice
from cloud_gpu.cli.series import series_words
from cloud_gpu.cli.trading import (
    SHOWN_DIGITS,
    Explain,
    Length,
    MinPrice,
    Product,
    Stands,
    Start,
    Units,
    digest_of,
    hand_in,
    opened_trader,
    show_explanation,
    table_of,
    taken_nonces,
)
from cloud_gpu.cli.verdicts import first_verdict, is_judged, require_standing
from cloud_gpu.ordering import FutureRequest, product_words, window_words
from cloud_gpu.protocol.codec import to_builtins
from cloud_gpu.protocol.errors import Rejected
from cloud_gpu.protocol.future_reports import FutureReport
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import TokenAmount, format_tokens
from cloud_gpu.protocol.utc import format_utc

if TYPE_CHECKING:
    from rich.table import Table

    from cloud_gpu.trader import Trader

_KIND = "futures"
_LIVE = (BidState.PENDING, BidState.MATCHED)
_SHOWN_MAX = 50

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it locks; hand nothing in.")]


def buy(
    run: Invocation,
    gpu: Product,
    start: Start,
    length: Length,
    units: Units = 1,
    max_price: MaxPrice = None,
    stands: Stands = "1h",
    dry_run: DryRun = False,
) -> None:
    """Order machines for a later window, at a limit price or less.

    A contract locks a margin. Before its deadline the whole price must be locked, too (`future
    fund`), or the margin is lost. In the window the machines become ordinary leases.
    """
    settings = run.settings(max_price=max_price)
    settings.need("max_price")
    with opened_trader(run, settings) as trader:
        request = trader.wish(
            gpu,
            is_buy=True,
            start=start,
            length=length,
            units=units,
            limit=settings.max_price,
            stands=stands,
        )
        _order(run, trader, request, settings.market, dry_run=dry_run)


def sell(
    run: Invocation,
    gpu: Product,
    start: Start,
    length: Length,
    min_price: MinPrice,
    units: Units = 1,
    stands: Stands = "1h",
    dry_run: DryRun = False,
) -> None:
    """Offer machines for a later window, at a limit price or more.

    A contract locks a margin. Before its deadline the machines must be named (`future nominate`),
    or the margin is lost. Sign with the provider's wallet, not with a node's key.
    """
    settings = run.settings()
    with opened_trader(run, settings) as trader:
        request = trader.wish(
            gpu,
            is_buy=False,
            start=start,
            length=length,
            units=units,
            limit=min_price,
            stands=stands,
        )
        _order(run, trader, request, settings.market, dry_run=dry_run)


def _order(
    run: Invocation,
    trader: Trader,
    request: FutureRequest,
    market: str,
    *,
    dry_run: bool,
) -> None:
    product = trader.product(request.series.product)
    order, margin = trader.order(request, taken_nonces(run)), trader.margin(request)
    row = _order_row(order, margin) | {
        "gpus": product_words(product),
        "deadline": format_utc(trader.deadline(request.series)),
    }
    if dry_run:
        signed = {**row, "signed": to_builtins(order)}
        run.say.result("future-order", signed, lambda: _order_table(row))
        return
    verb, edge = ("Buy", "or less") if request.is_buy else ("Sell", "or more")
    confirm(
        run,
        f"{verb} {request.units} x ({product.slice_gpus} x {product.gpu_class})"
        f" {series_words(request.series)} at {format_tokens(request.limit)} a GPU-hour {edge},"
        f" and lock {format_tokens(margin)} tokens of margin as contracts open?",
    )
    look = f"cloud-gpu future show {row['order'][:SHOWN_DIGITS]}"
    doubt = f"the order may stand: {look}"
    hand_in(run, _KIND, {**row, "market": market}, lambda: trader.place(order), doubt)
    key = order.payload.id
    report = first_verdict(
        run,
        look,
        lambda: trader.market.report(key),
        lambda found: is_judged(found.state, found.rejection),
    )
    if report is not None:
        require_standing(report.state, report.rejection, look)
        row |= _report_row(report)
    run.say.result("future-order", row, lambda: _order_table(row))
    if report is not None:
        run.say.progress(_how_far(report))
    is_opened = report is not None and report.state is BidState.OPENED
    run.say.next("cloud-gpu future positions" if is_opened else look)


def _how_far(report: FutureReport) -> str:
    match report.state:
        case BidState.OPENED:
            return f"Filled: {report.filled} machines are in contracts."
        case BidState.MATCHED:
            return f"Matched: {report.units} machines, on their way into contracts."
        case state:
            return f"It is {state}: {report.rejection or 'no batch has looked at it yet'}"


def show(
    run: Invocation,
    wanted: Annotated[
        str, typer.Argument(metavar="ORDER|CONTRACT", help="An order's id, or a contract's number.")
    ],
    explain: Explain = False,
) -> None:
    """Say how far an order came, or what a contract is."""
    with opened_trader(run, run.settings()) as trader:
        if wanted.isascii() and wanted.isdigit():
            show_contract(run, trader, int(wanted))
            return
        key = digest_of(wanted, "ORDER", _noted(run))
        report = trader.market.report(key)
        noted = [each for each in run.outside.remembered(_KIND) if each["order"] == str(key)]
        row = _facts(noted[-1], _names(trader)) if noted else {}
        row |= _report_row(report)
    if explain and report.explanation is not None:
        show_explanation(run, "future-order", row, report.explanation, "orders of the other side")
    else:
        run.say.result("future-order", row, lambda: _reports_table([row]))
        run.say.progress(_how_far(report))
        if explain:
            waits = report.state in _LIVE
            run.say.progress("no batch explained this order" + " yet" * waits)
    for each in row["contracts"]:
        run.say.next(f"cloud-gpu future show {each['contract']}")


def ls(run: Invocation) -> None:
    """List the orders that were handed in from here, newest first."""
    settings = run.settings()
    mine = [row for row in run.outside.remembered(_KIND) if row.get("market") == settings.market]
    with opened_trader(run, settings) as trader:
        names = _names(trader)
        rows = [_known_row(trader, known, names) for known in mine[::-1][:_SHOWN_MAX]]
    run.say.results("future-order", rows, lambda: _reports_table(rows))


def cancel(
    run: Invocation, order: Annotated[str, typer.Argument(metavar="ORDER", help="Its id.")]
) -> int:
    """Close an order, or what is left of it: on chain, which binds everybody, then in the book.

    Contracts that came of it stay.
    """
    wanted = digest_of(order, "ORDER", _noted(run))
    with opened_trader(run, run.settings()) as trader:
        report = trader.market.report(wanted)
        if report.state not in _LIVE:
            raise NoSuchThing(
                f"order {order} is {report.state}", "one that may still open", "cloud-gpu future ls"
            )
        confirm(run, "Close the order on chain (it costs gas)?")
        trader.cancel(wanted)
    payload = {"order": str(wanted), "filled": report.filled}
    run.say.result("future-order-cancelled", payload, lambda: f"Cancelled {order}.")
    return ExitCode.DONE


def _noted(run: Invocation) -> list[str]:
    return [each["order"] for each in run.outside.remembered(_KIND)]


def _names(trader: Trader) -> dict[int, str]:
    return {product.id: product_words(product) for product in trader.products()}


def _known_row(trader: Trader, known: dict[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    try:
        found = _report_row(trader.market.report(digest_of(known["order"], "ORDER")))
    except Rejected as error:
        found = {"order": known["order"], "state": f"unknown ({error.rejection.reason})"}
    return {**_facts(known, names), **found}


def _facts(known: dict[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    """What was noted of an order when it was handed in."""
    kept = ("side", "product", "start", "length", "units", "limit", "expires_at")
    facts = {name: known[name] for name in kept}
    return facts | {"gpus": names.get(known["product"], "")}


def _order_row(order: Signed[FutureOrder], margin: TokenAmount) -> dict[str, Any]:
    said = order.payload
    return {
        "order": str(said.id),
        "side": "buy" if said.is_buy else "sell",
        "product": said.product,
        "start": format_utc(said.window_start),
        "length": window_words(said.window_seconds),
        "units": said.units,
        "limit": rate(said.limit_price_per_hour),
        "margin": money(margin),
        "expires_at": said.start_by,
        "nonce": said.nonce,
    }


def _report_row(report: FutureReport) -> dict[str, Any]:
    row: dict[str, Any] = {
        "order": str(report.order),
        "state": str(report.state),
        "filled": report.filled,
        "contracts": [
            {"contract": each.contract, "units": each.units, "per_hour": money(each.per_hour)}
            for each in report.contracts
        ],
    }
    if report.price is not None:
        row |= {"matched": report.units, "price": rate(report.price)}
    if report.rejection is not None:
        row |= {"reason": str(report.rejection.reason), "why": str(report.rejection)}
    return row


def _order_table(row: dict[str, Any]) -> Table:
    facts = {
        "order": row["order"],
        "side": row["side"],
        "product": row["gpus"],
        "machines": str(row["units"]),
        "window": f"{row['start']} {row['length']}",
        "limit": f"{row['limit']['amount']} a GPU-hour",
        "margin": f"{row['margin']['amount']} tokens, as contracts open",
        "deadline": row["deadline"],
    }
    return table_of(("", ""), list(facts.items()))


def _reports_table(rows: list[dict[str, Any]]) -> Table:
    return table_of(
        ("order", "product", "filled", "state", "a GPU-hour"),
        [
            (
                f"{row['order'][:SHOWN_DIGITS]}\n{row.get('side', '')}",
                f"{row['gpus']}\n{row['start']} {row['length']}" if "start" in row else "",
                _filled(row),
                "\n".join(filter(None, (row["state"], row.get("reason", "")))),
                _prices(row),
            )
            for row in rows
        ],
    )


def _filled(row: dict[str, Any]) -> str:
    """How much, and in which contracts."""
    filled, units = str(row.get("filled", "")), row.get("units")
    amount = filled if units is None else f"{filled} of {units}".lstrip()
    contracts = ", ".join(str(each["contract"]) for each in row.get("contracts", ()))
    return f"{amount}\nin {contracts}" if contracts else amount


def _prices(row: dict[str, Any]) -> str:
    """Of its contracts, and of what is on its way; else its limit."""
    paid = [each["per_hour"]["amount"] for each in row.get("contracts", ())]
    coming = [row["price"]["amount"]] if "price" in row else []
    limit = f"limit {row['limit']['amount']}" if "limit" in row else ""
    return ", ".join(dict.fromkeys([*paid, *coming])) or limit
