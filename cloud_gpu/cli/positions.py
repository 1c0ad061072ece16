"""`cloud-gpu future positions`, `fund`, `nominate`, `join`, `assign`: what orders became."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cloud_gpu.cli.confirming import confirm
from cloud_gpu.cli.failures import NoSuchThing, UsageWrong
from cloud_gpu.cli.invocation import Invocation, amount
from cloud_gpu.cli.output import money
from cloud_gpu.cli.series import series_words
from cloud_gpu.cli.trading import opened_trader, table_of, taken_nonces
from cloud_gpu.ordering import product_words, read_stands, window_words
from cloud_gpu.protocol.codec import from_json, to_builtins
from cloud_gpu.protocol.future_reports import Position, Reminder
from cloud_gpu.protocol.futures import Assignment
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount, format_tokens
from cloud_gpu.protocol.utc import format_utc
from cloud_gpu.protocol.values import Address

if TYPE_CHECKING:
    from rich.table import Table

    from cloud_gpu.trader import Trader

Contract = Annotated[int, typer.Argument(metavar="CONTRACT", min=1, help="Its number.")]


class Side(StrEnum):
    """Of a contract."""

    LONG = "long"
    SHORT = "short"


def positions(run: Invocation) -> None:
    """List this account's contracts, newest first, with what must be done by when."""
    with opened_trader(run, run.settings()) as trader:
        names = {product.id: product_words(product) for product in trader.products()}
        rows = [_position_row(each, trader.address, names) for each in trader.positions()]
    run.say.results("position", rows, lambda: _positions_table(rows))
    if not rows:
        run.say.progress("No order of this account became a contract yet.")
        run.say.next("cloud-gpu future ls")
    for row in rows:
        for step in row["steps"]:
            if step["step"] in ("fund", "nominate") and step["yours"]:
                run.say.next(f"cloud-gpu future {step['step']} {row['contract']}")


def show_contract(run: Invocation, trader: Trader, number: int) -> None:
    """A contract as the chain has it, and its whole price."""
    found = trader.contracts.get(number)
    payload = {
        "contract": number,
        "long": str(found.long),
        "short": str(found.short),
        "product": found.series.product,
        "gpus": product_words(trader.product(found.series.product)),
        "start": format_utc(found.series.window_start),
        "length": window_words(found.series.window_seconds),
        "units": found.units,
        "per_hour": money(found.per_hour),
        "price": money(trader.contracts.price(found)),
        "long_margin": money(found.long_margin),
        "short_margin": money(found.short_margin),
        "funded": found.is_funded,
        "nominated": found.is_nominated,
        "deadline": format_utc(trader.contracts.deadline(found)),
    }
    run.say.result("contract", payload, lambda: _contract_table(payload))


def fund(run: Invocation, contract: Contract) -> None:
    """Lock the whole price of a contract that you are long in. Until its deadline, or the margin
    is lost.
    """
    with opened_trader(run, run.settings()) as trader:
        price = trader.contracts.may_fund(contract)
        confirm(run, f"Lock {format_tokens(price)} tokens, the whole price of {contract}?")
        trader.contracts.fund(contract)
    payload = {"contract": contract, "locked": money(price)}
    run.say.result("contract-funded", payload, lambda: f"Funded {contract}.")
    run.say.next(f"cloud-gpu take {contract}, before the window starts: it waits, and starts it")


def nominate(
    run: Invocation,
    contract: Contract,
    machine: Annotated[
        list[int] | None,
        typer.Option("--machine", min=0, help="Its index; repeatable. Default: as suggested."),
    ] = None,
) -> None:
    """Name the machines that a contract you are short in will get, in place of any named before.

    Until its deadline, or the margin is lost. A machine that is not free when the window starts
    costs its part of the margin; so what its node asked for it before is voided on chain.
    """
    with opened_trader(run, run.settings()) as trader:
        indexes = tuple(machine or _suggested(trader, contract))
        found = trader.contracts.may_nominate(contract, indexes)
        named = ", ".join(map(str, indexes))
        missing = found.units - len(indexes)
        short = f" {missing} of {found.units} stay without one and cost their margin." * (
            missing > 0
        )
        confirm(run, f"Deliver machines {named} {series_words(found.series)}?{short}")
        trader.contracts.nominate(contract, indexes)
    payload = {"contract": contract, "machines": list(indexes)}
    run.say.result("contract-nominated", payload, lambda: f"Named {named} for {contract}.")
    run.say.next("cloud-gpu future positions")


def _suggested(trader: Trader, contract: int) -> tuple[int, ...]:
    trader.contracts.get(contract)
    known = [each.report for each in trader.positions() if each.report.contract.id == contract]
    if known and known[0].suggested:
        return known[0].suggested
    raise NoSuchThing(
        f"the market suggests no machine for contract {contract}",
        "a machine of its product that no other window needs",
        "name one: --machine INDEX",
    )


def join(
    run: Invocation,
    contract: Contract,
    side: Annotated[Side, typer.Option("--side", help="Which side to take over.")],
    pays: Annotated[
        TokenAmount | None,
        typer.Option("--pays", parser=amount, metavar="TOKENS", help="What you give for it."),
    ] = None,
    receives: Annotated[
        TokenAmount | None,
        typer.Option("--receives", parser=amount, metavar="TOKENS", help="What you want for it."),
    ] = None,
    stands: Annotated[str, typer.Option("--stands", help="How long your word stands.")] = "1h",
) -> None:
    """Sign that you take over a side of somebody's contract, with its margin. They `assign` it.

    Print it with --json into a file, and send them that.
    """
    with opened_trader(run, run.settings()) as trader:
        is_buy, stands_s = side is Side.LONG, read_stands(stands)
        gives, gets = pays or ZERO_TOKENS, receives or ZERO_TOKENS
        found = trader.contracts.may_join(contract, is_buy=is_buy, pays=gives)
        margin = found.long_margin if is_buy else found.short_margin
        confirm(
            run,
            f"Become {side} in {contract}, {series_words(found.series)}, for a margin of"
            f" {format_tokens(margin)} tokens, pay {format_tokens(gives)} and receive"
            f" {format_tokens(gets)}?",
        )
        signed = trader.contracts.join(
            contract,
            is_buy=is_buy,
            pays=gives,
            receives=gets,
            stands_s=stands_s,
            taken=taken_nonces(run),
        )
    said = signed.payload
    note = {"order": str(said.struct_hash()), "nonce": said.nonce, "expires_at": said.expiry}
    run.outside.remember("assignments", [note])
    payload = {"assignment": to_builtins(signed), "leaver": str(said.leaver), "expiry": said.expiry}
    run.say.result("assignment", payload, lambda: _signed_text(signed))
    run.say.progress(f"{said.leaver} sends it: cloud-gpu future assign FILE")


def assign(
    run: Invocation,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What `future join --json` printed; - is stdin.")
    ],
) -> None:
    """Hand your side of a contract to who signed for it; your margin comes back."""
    signed = _read(file)
    said = signed.payload
    with opened_trader(run, run.settings()) as trader:
        trader.contracts.may_assign(signed)
        confirm(
            run,
            f"Hand contract {said.contract_id} to {said.joiner}, pay"
            f" {format_tokens(said.leaver_pays)} tokens and receive"
            f" {format_tokens(said.joiner_pays)}?",
        )
        trader.contracts.assign(signed)
    payload = {"contract": said.contract_id, "joiner": str(said.joiner)}
    run.say.result(
        "contract-assigned", payload, lambda: f"{said.joiner} holds {said.contract_id} now."
    )


class _Printed(msgspec.Struct, frozen=True):
    """What `join` prints; the rest of it is for people."""

    assignment: Signed[Assignment]


def _read(file: str) -> Signed[Assignment]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        return from_json(text, _Printed).assignment
    except (OSError, ValueError) as error:
        raise UsageWrong(f"FILE {file}: {error}") from error


def _position_row(position: Position, account: Address, names: Mapping[int, str]) -> dict[str, Any]:
    report = position.report
    found = report.contract
    return {
        "contract": found.id,
        "side": "long" if found.long == account else "short",
        "product": found.series.product,
        "gpus": names.get(found.series.product, ""),
        "start": format_utc(found.series.window_start),
        "length": window_words(found.series.window_seconds),
        "units": found.units,
        "per_hour": money(found.per_hour),
        "margin": money(found.long_margin if found.long == account else found.short_margin),
        "state": str(found.state),
        "funded": found.is_funded,
        "machines": list(found.machines),
        "suggested": list(report.suggested),
        "leases": [str(lease) for lease in found.leases],
        "deadline": format_utc(report.deadline),
        "steps": [_step(each, account) for each in position.steps],
    }


def _step(reminder: Reminder, account: Address) -> dict[str, Any]:
    return {
        "step": str(reminder.step),
        "yours": reminder.account == account,
        "anybody": reminder.account is None,
        "since": format_utc(reminder.since),
        "until": None if reminder.until is None else format_utc(reminder.until),
    }


def _positions_table(rows: list[dict[str, Any]]) -> Table:
    return table_of(
        ("contract", "product", "units", "a GPU-hour", "state", "to do"),
        [
            (
                f"{row['contract']}\n{row['side']}",
                f"{row['gpus']}\n{row['start']} {row['length']}",
                str(row["units"]),
                row["per_hour"]["amount"],
                row["state"],
                "\n".join(f"{s['step']} until\n{s['until']}" for s in row["steps"] if s["yours"]),
            )
            for row in rows
        ],
    )


def _contract_table(payload: dict[str, Any]) -> Table:
    rows = [
        (name.replace("_", " "), value["amount"] if isinstance(value, dict) else str(value))
        for name, value in payload.items()
        if name != "product"  # its words begin with it
    ]
    return table_of(("", ""), rows)


def _signed_text(signed: Signed[Assignment]) -> str:
    said = signed.payload
    until = format_utc(said.expiry)
    return f"Signed for contract {said.contract_id} until {until}; --json prints it."
